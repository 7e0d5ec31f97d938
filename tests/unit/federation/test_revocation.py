"""A certificate that was revoked, or replaced, gets in no more: not at the port, not in a session, not by a renewal."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from provisioned import provision_all
from typer.testing import CliRunner

from federation.certificates import Authority as OldAuthority
from federation.joined import NOTE, Sites
from veracausa.cli.main import app
from veracausa.errors import InputError, PeerLost, WireError
from veracausa.federation import membership
from veracausa.federation.identity import Authority, make_key, sign
from veracausa.federation.invitation import new_folder, read_archive, write_archive
from veracausa.federation.membership import revoke
from veracausa.wire.credentials import FILE, Credentials, DenyList, peer_certificate, read_certificate
from veracausa.wire.flare import cell as cells
from veracausa.wire.flare.session import Opening, PeerIdentity, new_life
from veracausa.wire.flare.tls_driver import ListeningDriver


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation")
    provision_all(folder, members=("bank", "lab"))
    return folder


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """Bank's folder and lab's, and the coordinator's."""
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home"


def new_request(home: Path) -> membership.Request:
    with new_folder(home / "lab-again") as new:
        membership.unpack_invitation(home / "coordinator" / "invitation.zip", new)
        membership.ask(new, "lab")
    return membership.read_request(home / "coordinator", home / "lab-again" / "lab.request.zip")


def meets(believer: Credentials, lab: Credentials) -> None:
    """Lab proves itself to bank, end to end."""
    mine = Opening(PeerIdentity("bank", believer), "lab", b"test", True, new_life())
    theirs = Opening(PeerIdentity("lab", lab), "bank", b"test", True, new_life())
    mine.session(theirs.proof(mine.public, mine.life))


def let_in(folder: Path, own: Credentials) -> bool:
    """Whether a port that reads this folder's list takes the certificate; see test_tls_driver for a real one."""
    driver = ListeningDriver()
    driver.read_deny_list(replace(own, denied=folder / FILE).for_flare())
    try:
        driver.admit(peer_certificate(read_certificate(own.certificate)).der, "here")
    except Exception:
        return False
    return True


def test_after_a_replacement_the_old_certificate_does_not_get_in(home: Path) -> None:
    coordinator, old = home / "coordinator", Credentials.of_folder(home / "lab")
    at_relay = replace(Credentials.of_folder(home / "bank"), denied=coordinator / FILE)
    meets(at_relay, old)
    assert let_in(coordinator, old)
    approval = membership.approve(coordinator, new_request(home), replace=True)
    new = membership.accept(home / "lab-again", approval.archive)
    assert approval.revoked is not None
    assert approval.revoked.sha256[0] == old.fingerprint
    with pytest.raises(WireError, match=rf"of 'lab' was revoked \({old.fingerprint}\)"):
        meets(at_relay, old)
    assert not let_in(coordinator, old)
    meets(at_relay, new)
    assert let_in(coordinator, new)


def test_every_certificate_of_a_revoked_key_is_out_and_none_is_signed_again(home: Path) -> None:
    """Renewed ones have other fingerprints; the coordinator remembers only the last."""
    coordinator, first = home / "coordinator", Credentials.of_folder(home / "lab")
    kept = home / "first.pem"
    kept.write_bytes(first.certificate.read_bytes())
    request = membership.read_request(coordinator, home / "lab" / "lab.request.zip")
    renewed = membership.accept(home / "lab", membership.approve(coordinator, request).archive)
    assert not (coordinator / FILE).exists()  # a renewal revokes nothing
    revoke(coordinator, ["lab"])
    assert not let_in(coordinator, renewed)
    assert not let_in(coordinator, replace(renewed, certificate=kept))
    with pytest.raises(InputError, match="its key was revoked; let lab join anew"):
        membership.read_request(coordinator, home / "lab" / "lab.request.zip")


@pytest.mark.parametrize("how", ["name", "fingerprint", "small letters", "file"])
def test_the_command_takes_a_name_a_fingerprint_or_a_file(how: str, home: Path) -> None:
    own = Credentials.of_folder(home / "lab")
    what = {
        "name": "lab",
        "fingerprint": own.fingerprint,
        "small letters": own.fingerprint.replace(" ", ":").lower(),
        "file": str(own.certificate),
    }[how]
    done = CliRunner().invoke(app, ["federation", "revoke", str(home / "coordinator"), what])
    assert done.exit_code == 0, done.output
    assert own.fingerprint in done.output
    assert "every other member runs" in done.output
    assert not let_in(home / "coordinator", own)
    assert let_in(home / "bank", own)  # each keeps a list of its own
    again = CliRunner().invoke(app, ["federation", "revoke", str(home / "coordinator"), what])
    assert again.exit_code == 0
    entries = (home / "coordinator" / FILE).read_text().count("[[denied]]")
    assert entries == (1 if "letters" in how or how == "fingerprint" else 2)


@pytest.mark.parametrize(
    ("folder", "what", "sentence"),
    [
        ("coordinator", "hospital", "neither a fingerprint"),
        ("coordinator", "ABCD 1234", "neither a fingerprint"),
        ("nowhere", "lab", "is no folder of a federation"),
    ],
)
def test_what_cannot_be_revoked_is_said(folder: str, what: str, sentence: str, home: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        revoke(home / folder, [what])
    assert not (home / "coordinator" / FILE).exists()


def test_a_damaged_list_lets_nobody_in(home: Path) -> None:
    """At the start it is refused; while it is in use, the list as it was stays."""
    path, own = home / "coordinator" / FILE, Credentials.of_folder(home / "lab")
    revoke(home / "coordinator", ["lab"])
    used = DenyList(path)
    for damage in ("[[denied]]\n", "denied = 3", '[[denied]]\nsha256 = "12"\n', "= x", 'other = "x"'):
        path.write_text(damage)
        assert used.refuses(peer_certificate(read_certificate(own.certificate))) == own.fingerprint
        with pytest.raises(InputError, match="is damaged"):
            DenyList(path)
        with pytest.raises(InputError, match="is damaged"):
            revoke(home / "coordinator", ["lab"])


def test_ones_own_revoked_certificate_is_said_at_the_start(home: Path) -> None:
    own = Credentials.of_folder(home / "lab")
    revoke(home / "lab", [own.fingerprint])
    with pytest.raises(InputError, match="was revoked here"):
        own.check("lab")


def test_a_session_ends_when_its_certificate_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "RELOAD_S", 0.05)
    monkeypatch.setattr(cells, "TICK", 0.02)
    monkeypatch.setattr(cells, "OFTEN", 0.02)
    sites = Sites(tmp_path)
    hospital = replace(sites.credentials["hospital"], denied=tmp_path / FILE)
    sites.credentials["hospital"] = hospital
    sites.start("hospital")
    parties = sites.connect()
    lab = sites.credentials["lab"]
    DenyList(tmp_path / FILE).add([{"sha256": lab.fingerprint}])
    with pytest.raises(PeerLost, match="its certificate was revoked") as lost:
        parties["hospital"].receive("lab", NOTE, 0)
    assert lost.value.peer == "lab"
    # And in the next meeting it is refused.
    with pytest.raises(PeerLost, match="did not come"):
        sites.sites["hospital"].connect(["lab"], "test", 0.5)
    for site in sites.sites.values():
        site._stopped.set()


def test_a_file_moved_from_one_part_of_a_request_to_the_other_changes_its_fingerprint() -> None:
    one = {"request.toml": b"member = 1", "request.csr": b"-----BEGIN"}
    other = {"request.toml": b"member = 1-----", "request.csr": b"BEGIN"}
    assert membership.request_fingerprint(one, 1) == membership.request_fingerprint(other, 1)  # as it was
    assert membership.request_fingerprint(one) != membership.request_fingerprint(other)


def test_a_request_of_an_older_version_must_be_made_again_unless_it_renews(home: Path) -> None:
    new_request(home)
    for folder in (home / "lab", home / "lab-again"):
        files = read_archive(folder / "lab.request.zip", membership.REQUEST, "a request")
        old = {**files, "request.toml": files["request.toml"].replace(b"version = 2\n", b"")}
        assert old != files
        write_archive(folder / "old.zip", old)
        if folder.name == "lab":  # its key has a certificate: nothing is believed that was not before
            known = membership.read_request(home / "coordinator", folder / "old.zip")
            assert known.fingerprint == membership.request_fingerprint(old, 1)
        else:
            with pytest.raises(InputError, match=r"was made by an older veracausa.*join anew"):
                membership.read_request(home / "coordinator", folder / "old.zip")


def test_a_federation_with_keys_of_rsa_still_loads_and_signs(home: Path) -> None:
    """Such were made before: root and members of 2048 bits."""
    old = OldAuthority(home / "old", elliptic=False)
    old.member("lab").check("lab")
    authority = Authority(home / "coordinator" / "authority")
    shutil.copy(old.root, authority.root)
    key = old._key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    authority.key.write_bytes(key)
    certificate = home / "new" / "certificate.pem"
    certificate.parent.mkdir()
    certificate.write_bytes(sign(authority, make_key(certificate.parent, "hospital"), "hospital", ("localhost",), 9))
    signed = Credentials(old.root, certificate, certificate.parent / "key.pem")
    signed.check("hospital")
    assert "expires in 8 days" in signed.expires_soon()
