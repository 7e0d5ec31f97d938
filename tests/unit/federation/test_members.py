"""`federation.toml`: who takes part, and what is refused before anybody is dialled."""

from __future__ import annotations

from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.federation.members import read_network, wire_limits
from veracausa.federation.status import read_status
from veracausa.wire.network import Member, NetworkOptions

GOOD = """
name = "risk"
server = "bank"
[members.bank]
address = "bank.example.org:8002"
[members.lab]
[members.clinic]
address = "clinic.example.org:8002"
"""


def test_it_comes_back_as_it_was_written(tmp_path: Path):
    (tmp_path / "federation.toml").write_text(GOOD)
    network = read_network(tmp_path / "federation.toml")
    (tmp_path / "again.toml").write_text(network.to_toml())
    assert read_network(tmp_path / "again.toml") == network


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("bank.example.org:8002", "bank.example.org"), "is not host:port"),
        (("bank.example.org:8002", "bank.example.org:99999"), "is not host:port"),
        (('server = "bank"', 'server = "bakn"'), "'bakn' is not among the members"),
        (('server = "bank"', 'server = "lab"'), "members.lab.address: is missing"),
        (("[members.lab]", "[members.server]"), "choose another name"),
        (("[members.lab]", '[members."a b"]'), "a name has letters"),
        (("[members.lab]", "[members.Bank]"), "differ only in case"),
        (('name = "risk"', 'name = "risk"\nport = 1'), "port"),
        (("[members.lab]", "[wire]\npatience_s = 0\n[members.lab]"), "patience_s"),
        (("[members.lab]", "[members.lab"), "not valid TOML"),
        (('name = "risk"', 'name = "risk\\u001b[2K"'), "a name has letters"),
        *(
            (("[members.lab]", f"[wire]\n{limit} = {value}\n[members.lab]"), limit)
            for limit in ("patience_s", "return_s", "attempts", "chunk_kib", "window_mib", "max_message_mib")
            for value in ("99999999999", "-1")
        ),
        (("[members.lab]", "[wire]\npatience_s = inf\n[members.lab]"), "patience_s"),
        (("[members.lab]", "[wire]\nreturn_s = nan\n[members.lab]"), "return_s"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], words: str):
    path = tmp_path / "federation.toml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(InputError, match=r"federation\.toml") as error:
        read_network(path)
    assert words in str(error.value)


def test_who_passes_a_relay():
    members = {"bank": Member(address="a:1"), "lab": Member(), "clinic": Member(address="b:1"), "home": Member()}
    relayed = NetworkOptions(name="n", server="bank", members=members)
    assert relayed.relayed("lab", "clinic")
    assert not relayed.relayed("lab", "bank")
    direct = relayed.model_copy(update={"route": "direct"})
    assert not direct.relayed("lab", "clinic")
    assert direct.relayed("lab", "home")
    assert relayed.member(relayed.cell("bank")) == "bank"
    assert relayed.cell("lab") == "lab"


def test_limits_by_options():
    assert wire_limits(["patience_s=5", "end_to_end=always"]).patience_s == 5
    for wrong in ("patience_s", "patience_s=soon", "patience=5"):
        with pytest.raises(InputError, match="--wire"):
            wire_limits([wrong])


def test_a_status_of_nothing_says_how_to_begin(tmp_path: Path):
    with pytest.raises(InputError, match="veracausa federation run"):
        read_status(tmp_path)
