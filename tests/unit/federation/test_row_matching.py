"""What a party says of its ids in party.toml, and what it is told of its partners' before it says yes."""

from __future__ import annotations

import io
import random
from datetime import date, timedelta
from types import SimpleNamespace

import pytest
import tomli_w
from refusals import Field, Names
from rich.console import Console

from veracausa.cli import console
from veracausa.cli.federation.site import _in_words, _show_ids
from veracausa.errors import InputError, RunError, WireError
from veracausa.federation import session_attempt as attempt
from veracausa.federation.consent import Agreement, ConsentStore, Terms
from veracausa.federation.inference import SitePrediction
from veracausa.federation.party_file import party_toml
from veracausa.federation.row_matching import TooManyIds
from veracausa.federation.site_program import party_program
from veracausa.wire.network import WireLimits

DAYS = [str(date(1920, 1, 1) + timedelta(days)) for days in range(36_525)]


def quiet(event):
    pass


@pytest.fixture
def guessed(tmp_path, organisations, table_job):
    """A bank whose ids are 60 dates of birth, and a lab that brings the first dates of a century."""

    def make(count, **own):
        sites = organisations(table_job(("lab",)), ("lab",), **own)
        patients = random.Random(1).sample(DAYS[:count], 60)
        rows = [f"{day},{'yes' if at % 2 else 'no'},{at}" for at, day in enumerate(patients)]
        (tmp_path / "files" / "bank.csv").write_text("\n".join(["id,y,income", *rows]) + "\n")
        rows = [f"{day},1.5,{at}" for at, day in enumerate(DAYS[:count])]
        (tmp_path / "files" / "lab.csv").write_text("\n".join(["id,a,b", *rows]) + "\n")
        return sites

    return make


def settle(sites, asked=None):
    """All come together and say yes; what each ends with."""
    ready, ended = sites.prepared(secret=True), {}
    links = sites.links(timeout=10)

    def program(name, link):
        link.session_of = lambda peer: None
        (sites.root / name / "federation.toml").write_text("")
        site = SimpleNamespace(folder=sites.root / name, network=SimpleNamespace(wire=WireLimits()))

        def approve(agreement):
            (asked if asked is not None else []).append((name, ready[name].ids.notes(agreement.ids)))
            return True

        try:
            ended[name] = attempt.settle(link, ready[name], site, ConsentStore(site.folder), approve, quiet)
        except RunError as error:
            ended[name] = error
            link.give_up(error)

    sites.each(program, links)
    return ready, ended


def set_alignment(sites, name, **settings):
    own = {**sites.owned[name], "alignment": settings}
    (sites.root / name / "party.toml").write_text(tomli_w.dumps(own))


def test_too_many_are_refused_before_a_person_is_asked_and_the_setting_is_named(guessed):
    sites, asked = guessed(1_300), []
    ready, ended = settle(sites, asked)
    assert isinstance(ended["bank"], TooManyIds)
    assert "'lab' brings 1,300 ids, at most 1,200, 20 times what is brought here" in str(ended["bank"])
    assert "raise max_ids (--max-ids, or [alignment] in party.toml)" in str(ended["bank"])
    assert "bank" not in dict(asked)
    assert not (sites.root / "bank" / "agreed.json").exists()
    # Raised as the sentence says, the same party goes on: its limits are no part of who it is.
    before = ready["bank"].data_digest
    set_alignment(sites, "bank", max_ids=1_300)
    ready, ended = settle(sites, asked := [])
    assert isinstance(ended["bank"], Agreement)
    assert ready["bank"].data_digest == before
    assert ended["lab"].ids == {"bank": (60, 0)}
    assert ready["lab"].ids.agreed == {"bank": (60, 0)}
    notes = dict(asked)["bank"]
    assert any("bank.csv: its ids look like dates" in note for note in notes)
    assert any("lab brings 1,300 ids, 21 times the 60" in note for note in notes)


def test_a_large_part_of_all_that_is_possible_is_said_to_be_so(guessed):
    sites = guessed(5_000)
    set_alignment(sites, "bank", max_ids=5_000)
    settle(sites, asked := [])
    assert any("only about 36,525 that look like this party's (dates)" in note for note in dict(asked)["bank"])


def test_what_was_announced_is_what_is_brought(organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    ready = sites.prepared()
    ready["bank"].ids.agreed = {"lab": (29, 0)}
    with pytest.raises(WireError, check=Field("align hello.count")):
        sites.each(lambda name, link: ready[name].align(link, quiet))
    ready["bank"].ids.agreed = {"lab": (30, 0)}
    sites.each(lambda name, link: ready[name].align(link, quiet))


def test_settings_of_party_toml_reach_the_alignment(organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30, lab={"alignment": {"pad_to": 77, "workers": 0}})
    ready, heard, links = sites.prepared(), [], sites.links()
    assert ready["lab"].ids.announced == (77, 0)
    send = links["lab"].send

    def recorded(to, kind, step, tensors=None, **meta):
        heard.extend([meta["count"]] if kind.name == "align hello" else [])
        send(to, kind, step, tensors, **meta)

    links["lab"].send = recorded
    sites.each(lambda name, link: ready[name].align(link, quiet), links)
    assert heard == [77]
    assert len(ready["lab"].data.train) + len(ready["lab"].data.validation) + len(ready["lab"].data.test) == 30


@pytest.mark.parametrize(
    ("alignment", "problem"),
    [({"max_idz": 3}, r"alignment\.max_idz"), ({"max_ids": 0}, r"alignment\.max_ids"), ({"min_share": 2}, "min_share")],
)
def test_a_setting_that_can_not_be_is_said_at_home(organisations, table_job, alignment, problem):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30, lab={"alignment": alignment})
    with pytest.raises(InputError, match=rf"party\.toml: .*{problem}"):
        party_program(sites.root / "lab", "lab")


def test_the_active_partys_number_of_rows_can_not_be_padded(organisations, table_job):
    job = table_job(("lab",), data={"match": "active"})
    sites = organisations(job, ("lab",), rows=30, bank={"alignment": {"pad_to": 99}})
    with pytest.raises(InputError, check=Names("party.toml", "alignment.pad_to", "99")):
        party_program(sites.root / "bank", "bank")


def test_ids_that_are_the_same_are_refused_before_anybody_is_dialled(tmp_path, organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    file = tmp_path / "files" / "lab.csv"
    text = file.read_text()
    for twice, problem in (("p7,", "stands in rows"), (" p7 ,", "have the same id")):
        file.write_text(text + f"{twice}1.0,2.0\n")
        with pytest.raises(InputError, match=problem):
            party_program(sites.root / "lab", "lab")


def test_a_discovery_has_the_same_settings(tmp_path):
    job = {"kind": "discovery", "data": {"on": "id"}, "parties": {"bank": [], "lab": []}}
    rows = "\n".join(f"p{n},{n * 7 % 13}" for n in range(40))
    (tmp_path / "mine.csv").write_text(f"id,a\n{rows}\n")
    (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
    own = {"data": {"path": "mine.csv"}, "alignment": {"pad_to": 50, "max_ids": 60}}
    (tmp_path / "party.toml").write_text(tomli_w.dumps(own))
    site = party_program(tmp_path, "bank")
    assert site.ids.announced == (50, 0)
    with pytest.raises(TooManyIds, match="'lab' brings 61 ids, at most 60 are taken"):
        site.ids.refuse({"lab": (61, 0), "validator": (0, 0)})
    assert {line.kind: line for line in site.declared}["align masked"].bytes == 32 * 2 * 50
    own["alignment"] = {"pad": 1}
    (tmp_path / "party.toml").write_text(tomli_w.dumps(own))
    with pytest.raises(InputError, match=r"alignment\.pad"):
        party_program(tmp_path, "bank")


def test_test_rows_have_a_number_of_their_own(tmp_path, organisations, table_job, people):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    tests = people(tmp_path / "tests.csv", range(100, 120), ("y", "income"), 3)
    own = sites.owned["bank"]["data"] | {"test_path": str(tests)}
    (sites.root / "bank" / "party.toml").write_text(tomli_w.dumps({"data": own, "alignment": {"max_ids": 25}}))
    bank, lab = (party_program(sites.root / name, name) for name in ("bank", "lab"))
    assert (bank.ids.announced, lab.ids.announced) == ((30, 20), (30, 0))
    with pytest.raises(TooManyIds, match="'lab' brings 30 ids, at most 25"):
        bank.ids.refuse({"lab": (20, 26 + 4)})
    lab.ids.agreed, bank.ids.agreed = {"bank": (30, 20)}, {"lab": (30, 0)}
    assert [lab.ids.brought(number).expected for number in (0, 1)] == [{"bank": 30}, {"bank": 20}]
    assert [bank.ids.brought(number).expected for number in (0, 1)] == [{"lab": 30}, {"lab": 30}]
    assert [len(lab.ids.brought(number).ids) for number in (0, 1)] == [30, 30]


def test_with_few_new_rows_a_partner_may_bring_the_table_that_it_trained_with(
    tmp_path, organisations, table_job, people
):
    sites = organisations(table_job(("lab",), training={"epochs": 1, "batch_size": 32}), ("lab",), rows=30)
    sites.run()
    new = people(tmp_path / "new.csv", range(100, 103), ("y", "income"), 3)
    party = SitePrediction(sites.root / "bank", "bank", new)
    assert party._options().limit(3) == 1_000
    terms = Terms(b"", b"", (), "", ids=(90, 0))
    ConsentStore(sites.root / "bank").keep(Agreement("bank", terms, {"lab": terms}, {}))
    assert party._options().limit(3) == 1_800
    set_alignment(sites, "bank", max_ids=40)
    assert party._options().limit(3) == 40


def test_the_numbers_are_on_the_screen(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=shown, width=200))
    own, lab, relay = (Terms(b"", b"", (), "", ids=ids) for ids in ((520, 100), (36_525, 0), (0, 0)))
    _show_ids(Agreement("clinic", own, {"lab": lab, "validator": relay}, {}))
    assert shown.getvalue().strip() == "ids to be matched    here 520 (test rows 100), lab 36,525"
    assert _in_words({"event": "warning", "party": "clinic", "text": "lab: 3 of"}) == "warning: lab: 3 of"


def test_join_writes_what_is_set():
    text = party_toml("lab", settings=("alignment.max_ids=70000", "alignment.pad_to=1000"))
    assert "[alignment]\nmax_ids = 70000\npad_to = 1000" in text
    with pytest.raises(InputError, match=r"party\.toml: alignment\.max_ids"):
        party_toml("lab", settings=("alignment.max_ids=many",))


def test_what_is_found_suspicious_is_heard_and_stays_on_the_page(guessed):
    sites, heard = guessed(900), []
    for again in (False, True):  # as it was found, and as it was kept
        ready = sites.prepared()
        sites.each(lambda name, link: ready[name].align(link, heard.append))  # noqa: B023
        assert any("60 of the 60 ids here are among its 900" in note for note in ready["bank"].notes), again
        assert not any("ids here" in note for note in ready["lab"].notes)
    warnings = [event for event in heard if event["event"] == "warning"]
    assert [event["party"] for event in warnings] == ["bank"]
