"""A link between organisations that must wait: for room, for a slow reader, for one that is gone."""

from __future__ import annotations

import time

import pytest
import torch
from refusals import Peer

from federation.joined import (
    FLOATS,
    NOTE,
    Pipes,
    identities,
    in_thread,
    send_all,
    still_works,
    took_all,
    two,
    wait_until,
)
from veracausa.errors import PeerLost
from veracausa.wire.flare import link as links
from veracausa.wire.flare.session import PeerIdentity

Who = dict[str, PeerIdentity]


@pytest.fixture(scope="module")
def who(tmp_path_factory: pytest.TempPathFactory) -> Who:
    return identities(tmp_path_factory.mktemp("who"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tick asks: what a second brings about in earnest comes at once."""
    monkeypatch.setattr(links, "IMPATIENT", -1.0)


# ---- the window ----------------------------------------------------------------------------------------------------


def test_a_slow_reader_holds_up_the_sender_until_it_reads(who: Who) -> None:
    pipes = two(who, window=1 << 16)
    sent = in_thread(lambda: send_all(pipes, [1000] * 60))
    time.sleep(0.2)
    waiting = len(pipes.links["lab"]._of["bank"].inbox)
    assert not sent
    assert 5 < waiting < 20
    for step in range(60):
        assert len(pipes.links["lab"].receive("bank", FLOATS, step).tensors["x"]) == 1000
        pipes.tick()
    wait_until(lambda: sent == [None])


def test_a_message_larger_than_the_window_passes(who: Who) -> None:
    pipes = two(who, window=1 << 16)
    sizes = [100_000, 3, 120_000]
    sent = in_thread(lambda: send_all(pipes, sizes))
    took_all(pipes, sizes)
    wait_until(lambda: sent == [None])


def test_who_is_not_read_blames_the_one_that_all_wait_for(who: Who) -> None:
    """Bank cannot send because lab does not read; lab waits for hospital. Lab is not to blame."""
    pipes = Pipes(who, timeout=1.0, window=1 << 14)
    fast = in_thread(
        lambda: [pipes.links["bank"].send("lab", FLOATS, step, {"x": torch.ones(900)}) for step in range(40)]
    )
    slow = in_thread(lambda: pipes.links["lab"].receive("hospital", FLOATS, 0))
    wait_until(lambda: bool(fast and slow))
    assert [outcome[0].peer for outcome in (fast, slow)] == ["hospital", "hospital"]  # type: ignore[attr-defined]


def test_who_waits_for_one_that_waits_blames_the_last_of_the_chain(who: Who) -> None:
    pipes = Pipes(who, timeout=0.6)
    first = in_thread(lambda: pipes.links["bank"].receive("hospital", FLOATS, 0))
    second = in_thread(lambda: pipes.links["hospital"].receive("lab", FLOATS, 0))
    wait_until(lambda: bool(first and second))
    assert [outcome[0].peer for outcome in (first, second)] == ["lab", "lab"]  # type: ignore[attr-defined]


# ---- how it ends ---------------------------------------------------------------------------------------------------


def test_last_words_reach_everybody(who: Who) -> None:
    pipes = Pipes(who)
    start = time.monotonic()
    pipes.links["lab"].abort("its disk is full")
    for peer in ("bank", "hospital"):
        with pytest.raises(PeerLost, match="its disk is full") as lost:
            pipes.links[peer].receive("lab", NOTE, 0)
        assert lost.value.peer == "lab"
    assert time.monotonic() - start < 2


def test_who_gives_up_is_not_held_by_a_reader_that_does_not_read(who: Who) -> None:
    pipes = two(who, window=1 << 14)
    in_thread(lambda: send_all(pipes, [5000] * 20))
    time.sleep(0.1)
    start = time.monotonic()
    pipes.links["bank"].abort("enough")
    assert time.monotonic() - start < 3
    assert pipes.links["lab"]._peers.lost is not None


def test_nobody_hangs_on_a_peer_that_is_gone(who: Who) -> None:
    pipes = two(who, timeout=0.5)
    pipes.alter = lambda frame: []
    pipes.links["bank"].send("lab", NOTE, 0, n=1)
    start = time.monotonic()
    pipes.links["bank"].close()
    pipes.links["bank"].abort("over")
    assert time.monotonic() - start < 4


def test_who_has_finished_is_waited_for_no_longer(who: Who) -> None:
    pipes = two(who)
    pipes.links["bank"].send("lab", NOTE, 0, n=1)
    pipes.links["bank"].close()
    assert pipes.links["lab"].receive("bank", NOTE, 0).meta == {"n": 1}
    for fails in (
        lambda: pipes.links["lab"].receive("bank", NOTE, 1),
        lambda: pipes.links["lab"].send("bank", NOTE, 1, n=1),
    ):
        with pytest.raises(PeerLost, check=Peer("bank")):
            fails()


def test_a_relays_word_that_a_peer_began_anew_is_checked(who: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "RESTART_ANSWER_S", 0.2)
    pipes = two(who)
    pipes.links["bank"].suspect_restart("lab")  # lab answers at once
    time.sleep(0.25)
    pipes.tick()
    assert pipes.links["bank"].refused == {"lab": 1}
    still_works(pipes)
    pipes.alter = lambda frame: [frame] if frame[0] == "bank" else []
    pipes.links["bank"].suspect_restart("lab")  # lab is silent
    time.sleep(0.25)
    pipes.links["bank"].tick()
    with pytest.raises(PeerLost, match="began anew"):
        pipes.links["bank"].receive("lab", NOTE, 0)
