"""Before anything runs: one byte that differs is named, everybody says yes, and who comes back is who was there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from veracausa.errors import InputError, RunError, WireError
from veracausa.federation.consent import (
    CONSENT,
    TERMS,
    Agreement,
    ConsentStore,
    Declined,
    Disagreement,
    PartnerChanged,
    Terms,
    consent,
    difference,
    exchange,
)
from veracausa.wire.link import Link
from veracausa.wire.message import Declared
from veracausa.wire.threads import thread_links

SENDS = (
    Declared("representation", ("bank",), "rows × 16", "epoch", 1000),
    Declared("ready", ("bank",), "", "run", None),
)
TERMS_OF = {name: Terms(b"net = 1\n", b"seed = 0\nepochs = 3\n", SENDS, f"data of {name}") for name in ("bank", "lab")}
PRINTS = {"bank": "AAAA", "lab": "BBBB"}


def together(work: Callable[[Link], object], names: str | tuple[str, ...] = ("bank", "lab")) -> dict[str, object]:
    """What every party's work gives, or the error it ends with."""
    links, results = thread_links(names, timeout=10.0), {}

    def run(name: str) -> None:
        try:
            results[name] = work(links[name])
        except RunError as error:
            results[name] = error
            links[name].give_up(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def agreements(terms: dict[str, Terms]) -> dict[str, object]:
    return together(lambda link: exchange(link, terms[link.me], {p: PRINTS[p] for p in link.peers}, "0.1"))


def agreed(held: dict[str, set[int]] | None = None, **changes: Terms) -> Agreement:
    terms = {**TERMS_OF, **changes}
    for name, steps in (held or {}).items():
        terms[name] = replace(terms[name], held=frozenset(steps))
    found = agreements(terms)["bank"]
    assert isinstance(found, Agreement)
    return found


def test_the_same_terms_are_the_same_hash_everywhere():
    found = agreements(TERMS_OF)
    assert found["bank"].hash == found["lab"].hash  # type: ignore[attr-defined]
    assert found["bank"].others["lab"].sends == SENDS  # type: ignore[attr-defined]


def test_one_byte_that_differs_is_named_on_both_sides():
    other = replace(TERMS_OF["lab"], job=b"seed = 0\nepochs = 4\n")
    found = agreements({**TERMS_OF, "lab": other})
    assert isinstance(found["bank"], Disagreement)
    assert str(found["bank"]).startswith("job.toml is not the same at 'lab': here 'epochs = 3', there 'epochs = 4'")
    assert "here 'epochs = 4', there 'epochs = 3'" in str(found["lab"])


def test_a_line_end_that_differs_is_said_to():
    assert "line ends" in difference(b"a = 1\n", b"a = 1\r\n")
    assert "nothing" in difference(b"a = 1\n", b"a = 1\nb = 2\n")


def test_all_go_on_from_the_newest_checkpoint_that_all_hold():
    assert agreed({"bank": {5, 10, 15}, "lab": {10, 5}}).start == 10
    assert agreed({"bank": {5}, "lab": {10}}).start is None


def test_everybody_must_say_yes():
    answers = {"bank": iter([None, True, True, True]), "lab": iter([True, None, None, True])}

    def work(link: Link) -> str:
        agreement = exchange(link, TERMS_OF[link.me], {p: PRINTS[p] for p in link.peers}, "0.1")
        consent(link, agreement, lambda: next(answers[link.me]), lambda: None)
        return "yes"

    assert together(work) == {"bank": "yes", "lab": "yes"}


def test_one_no_ends_it_for_all():
    def work(link: Link) -> None:
        agreement = exchange(link, TERMS_OF[link.me], {p: PRINTS[p] for p in link.peers}, "0.1")
        consent(link, agreement, lambda: link.me != "lab", lambda: None)

    found = together(work)
    assert all(isinstance(error, Declined) for error in found.values())
    assert all("'lab' declined" in str(error) for error in found.values())


def test_a_yes_is_kept_and_not_asked_for_again(tmp_path: Path):
    first = agreed()
    ConsentStore(tmp_path).keep(first)
    assert ConsentStore(tmp_path).agreed(agreed({"bank": {5}, "lab": {5}}))
    assert not ConsentStore(tmp_path).agreed(agreed(bank=replace(TERMS_OF["bank"], sends=SENDS[:1])))


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"lab": replace(TERMS_OF["lab"], data="other rows")}, PartnerChanged, "'lab' came back with other data"),
        ({"bank": replace(TERMS_OF["bank"], data="other rows")}, PartnerChanged, "'bank' came back with other data"),
    ],
)
def test_who_comes_back_with_other_data_is_refused(tmp_path: Path, changed, error, words):
    ConsentStore(tmp_path).keep(agreed())
    with pytest.raises(error, match=words):
        ConsentStore(tmp_path).check(agreed(**changed))


def test_who_comes_back_with_another_number_of_ids_is_refused(tmp_path: Path):
    """Also one that claims to have the same data."""
    first = agreed(lab=replace(TERMS_OF["lab"], ids=(500, 0)))
    assert first.ids == {"lab": (500, 0)}
    ConsentStore(tmp_path).keep(first)
    assert ConsentStore(tmp_path).announced("lab") == 500
    assert ConsentStore(tmp_path).announced("nobody") == 0
    ConsentStore(tmp_path).check(first)
    more = agreed(lab=replace(TERMS_OF["lab"], ids=(9000, 0)))
    assert not ConsentStore(tmp_path).agreed(more)
    with pytest.raises(PartnerChanged, match="'lab' came back with another number of ids"):
        ConsentStore(tmp_path).check(more)


@pytest.mark.parametrize("ids", [-1, 1 << 50])
def test_a_number_of_ids_that_can_not_be_is_refused(ids: int):
    found = agreements({**TERMS_OF, "lab": replace(TERMS_OF["lab"], ids=(0, ids))})["bank"]
    assert isinstance(found, WireError)
    assert "terms.test_ids: 'lab' claims" in str(found)


def test_another_certificate_or_job_is_refused(tmp_path: Path):
    ConsentStore(tmp_path).keep(agreed())
    with pytest.raises(PartnerChanged, match="another certificate"):
        ConsentStore(tmp_path).check(replace(agreed(), fingerprints={"lab": "CCCC"}))
    both = {name: replace(terms, job=b"seed = 1\n") for name, terms in TERMS_OF.items()}
    with pytest.raises(InputError, match=r"another federation\.toml or job\.toml"):
        ConsentStore(tmp_path).check(agreed(**both))


def test_a_damaged_memory_says_so(tmp_path: Path):
    (tmp_path / "agreed.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        ConsentStore(tmp_path)


@pytest.mark.parametrize(
    "raw",
    [b"{}", b"[1]", b'[{"kind": 1}]', b"[" * 10_000, b'[{"kind":"a","to":["b"],"shape":"","per":"day","bytes":1}]'],
)
def test_what_a_peer_declares_must_be_readable(raw: bytes):
    import torch

    def work(link: Link) -> object:
        if link.me == "bank":
            return exchange(link, TERMS_OF["bank"], {"lab": "BBBB"}, "0.1")
        link.declare(TERMS, CONSENT)
        text = torch.tensor(list(b"x"), dtype=torch.uint8)
        said = {"network": text, "job": text, "sends": torch.tensor(list(raw), dtype=torch.uint8)}
        said["held"] = torch.zeros(0, dtype=torch.int64)
        link.send("bank", TERMS, 0, said, data="", version="", ids=0, test_ids=0)
        return None

    assert isinstance(together(work)["bank"], WireError)
