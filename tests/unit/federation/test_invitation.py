"""What arrives as a file is read with care: exact names, small, for this federation, and nothing half-written."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from refusals import Names

pytest.importorskip("nvflare")

from hypothesis import given, settings
from hypothesis import strategies as st
from provisioned import JOB, join, provision_all

from veracausa.errors import InputError
from veracausa.federation import invitation, membership
from veracausa.federation.invitation import new_folder
from veracausa.wire.credentials import Credentials


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation")
    provision_all(folder, members=("bank",))
    with new_folder(folder / "lab") as new:
        membership.unpack_invitation(folder / "coordinator" / "invitation.zip", new)
        membership.ask(new, "lab")
    return folder


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@settings(max_examples=20)
@given(st.dictionaries(st.sampled_from(["a.toml", "b.pem", "c.csr"]), st.binary(max_size=2000), min_size=1))
def test_an_archive_holds_what_was_packed(files: dict[str, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.zip"
        invitation.write_archive(path, files)
        assert invitation.read_archive(path, files, "an archive") == files


@pytest.mark.parametrize(
    "names",
    [
        ("../federation.toml", "job.toml", "root.pem"),
        ("federation.toml", "job.toml", "root.pem", "more.toml"),
        ("federation.toml", "job.toml"),
        ("federation.toml", "job.toml", "/root.pem"),
        ("federation.toml", "job.toml", "root.pem/"),
    ],
)
def test_other_names_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    path = zipped(tmp_path / "invitation.zip", dict.fromkeys(names, b""))
    with (
        pytest.raises(InputError, match="is not an invitation: it should hold"),
        new_folder(tmp_path / "into" / "lab") as folder,
    ):
        membership.unpack_invitation(path, folder)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["into", "invitation.zip"]


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("root.pem", b"one")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("root.pem", b"other")
    with pytest.raises(InputError, match="nothing else"):
        invitation.read_archive(path, ("root.pem",), "an archive")


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "bomb.zip", {"root.pem": bytes(4 * invitation.LIMIT)})
    assert path.stat().st_size < invitation.LIMIT
    with pytest.raises(InputError, match="larger than"):
        invitation.read_archive(path, ("root.pem",), "an archive")
    path.write_bytes(bytes(3 * invitation.LIMIT))
    with pytest.raises(InputError, match="too large"):
        invitation.read_archive(path, ("root.pem",), "an archive")


@given(st.data())
def test_damage_is_one_sentence(data: st.DataObject) -> None:
    import tempfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("root.pem", b"certificate " * 40)
    content = bytearray(packed.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.zip"
        path.write_bytes(content)
        # Anything but an InputError fails here; and what is read in spite of the damage is what was packed.
        with suppress(InputError):
            assert invitation.read_archive(path, ("root.pem",), "an archive") == {"root.pem": b"certificate " * 40}


def test_no_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, check=Names("missing.zip")):
        invitation.read_archive(tmp_path / "missing.zip", ("root.pem",), "an archive")


@pytest.mark.parametrize("changed", membership.INVITATION)
def test_a_request_for_another_federation_is_refused(changed: str, home: Path, tmp_path: Path) -> None:
    files = invitation.read_archive(home / "lab" / "lab.request.zip", membership.REQUEST, "a request")
    note = files["request.toml"].decode()
    own = membership.hashes(membership.invited(home / "coordinator", home / "coordinator" / "authority" / "rootCA.pem"))
    assert note.count(own[changed]) == 1
    other = {**files, "request.toml": note.replace(own[changed], "0" * 64).encode()}
    path = zipped(tmp_path / "lab.request.zip", other)
    with pytest.raises(InputError, match=f"was invited with another {changed}"):
        membership.read_request(home / "coordinator", path)
    assert membership.request_fingerprint(other) != membership.request_fingerprint(files)


def test_a_request_of_no_member_or_another_is_refused(home: Path, tmp_path: Path) -> None:
    files = invitation.read_archive(home / "lab" / "lab.request.zip", membership.REQUEST, "a request")
    for said, sentence in (("nobody", "is no member of risk"), ("hospital", "asks for the name 'lab'")):
        note = files["request.toml"].replace(b'"lab"', f'"{said}"'.encode())
        path = zipped(tmp_path / "a.request.zip", {**files, "request.toml": note})
        with pytest.raises(InputError, match=sentence):
            membership.read_request(home / "coordinator", path)
    path = zipped(tmp_path / "a.request.zip", {**files, "request.toml": b"member = 3"})
    with pytest.raises(InputError, match=r"request.toml is damaged"):
        membership.read_request(home / "coordinator", path)


def test_a_signed_certificate_must_be_ones_own(home: Path, tmp_path: Path) -> None:
    bank = Credentials.of_folder(home / "bank")
    lab = home / "lab"
    for root, sentence in ((bank.root, "'bank', not of 'lab'"), (bank.certificate, "another root than the invitation")):
        files = {"certificate.pem": bank.certificate.read_bytes(), "root.pem": root.read_bytes()}
        path = zipped(tmp_path / "lab.signed.zip", files)
        with pytest.raises(InputError, match=sentence) as refused:
            membership.accept(lab, path)
        assert str(path) in str(refused.value)
    assert not (lab / "identity" / "certificate.pem").exists()
    with pytest.raises(InputError, match="join with the invitation first"):
        membership.accept(home / "coordinator", path)


def test_another_job_since_hinders_those_who_join_and_not_those_who_renew(home: Path) -> None:
    job = home / "coordinator" / "job.toml"
    try:
        job.write_text(JOB + "seed = 1\n")
        membership.read_request(home / "coordinator", home / "bank" / "bank.request.zip")
        with pytest.raises(InputError, match=r"lab was invited with another job.toml"):
            membership.read_request(home / "coordinator", home / "lab" / "lab.request.zip")
    finally:
        job.write_text(JOB)


def test_a_second_key_needs_to_be_asked_for_and_a_renewal_does_not(home: Path, tmp_path: Path) -> None:
    coordinator = home / "coordinator"
    request = membership.read_request(coordinator, home / "bank" / "bank.request.zip")
    before = Credentials.of_folder(home / "bank").fingerprint
    renewed = membership.accept(home / "bank", membership.approve(coordinator, request).archive)
    assert renewed.fingerprint != before
    with pytest.raises(InputError, match="certificate for another key already"):
        join(coordinator, tmp_path / "bank", "bank")
    request = membership.read_request(coordinator, tmp_path / "bank" / "bank.request.zip")
    membership.accept(tmp_path / "bank", membership.approve(coordinator, request, replace=True).archive).check("bank")


@pytest.mark.parametrize(
    ("server", "members", "sentence"),
    [
        ("bank", (), "write it as NAME@host:port"),
        ("bank@nowhere", (), "is not host:port"),
        ("bank@localhost:8002", ("lob@localhost:8003",), "'lob' has no part in the job"),
        ("bank@lab:8002", (), "is the name of a member"),
        ("server@localhost:8002", (), "means something else to the engine"),
    ],
)
def test_members_that_cannot_be_are_refused(server: str, members: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        membership.describe("risk", ("bank", "hospital", "lab"), server, members)
    with pytest.raises(InputError, match="a name has letters"):
        membership.describe("a name", ("bank",), "bank@localhost:8002")


def test_who_takes_part_is_read_from_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    assert membership.parties_of(job) == ("bank", "hospital", "lab")
    job.write_text(JOB + '[party.lab.data]\npath = "secret.csv"\n')
    with pytest.raises(InputError, match=r"move it into that party's party.toml"):
        membership.parties_of(job)
    job.write_text('kind = "discovery"\ndata = { name = "x" }\nparties = { a = ["x"], b = ["y", "z"] }\n')
    assert membership.parties_of(job) == ("a", "b", "validator")
    job.write_text('kind = "discovery"\ndata = { name = "x" }\n')
    with pytest.raises(InputError, check=Names("job.toml", "parties")):
        membership.parties_of(job)
    job.write_text("= 3")
    with pytest.raises(InputError, match="not valid TOML"):
        membership.parties_of(job)


def test_a_relay_need_not_take_part() -> None:
    network = membership.describe("risk", ("bank", "lab"), "relay@relay.example.org:443", ("lab@lab.example.org:8002",))
    assert list(network.members) == ["bank", "lab", "relay"]
    assert network.members["bank"].address is None
    assert network.members["lab"].address == "lab.example.org:8002"
