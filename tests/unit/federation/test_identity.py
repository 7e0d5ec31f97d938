"""An identity is one member's: its key fits, its root signed it, its time has come and is not over."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from refusals import Names

pytest.importorskip("nvflare")

from cryptography import x509
from provisioned import certificate_with_dates, join, provision_all

from veracausa.errors import InputError
from veracausa.federation.identity import check_request, make_key
from veracausa.wire.credentials import Credentials, fingerprint, read_certificate, read_key

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation")
    provision_all(folder, members=("bank", "hospital"))
    return folder


@pytest.fixture(scope="module")
def bank(home: Path) -> Credentials:
    return Credentials.of_folder(home / "bank")


@pytest.fixture(scope="module")
def hospital(home: Path) -> Credentials:
    return Credentials.of_folder(home / "hospital")


def test_a_certificate_is_what_the_transports_expect(bank: Credentials, hospital: Credentials) -> None:
    for own, name, hosts in ((bank, "bank", ["localhost", "bank"]), (hospital, "hospital", ["hospital"])):
        own.check(name)
        certificate = read_certificate(own.certificate)
        extension = certificate.extensions.get_extension_for_class
        usage = extension(x509.KeyUsage).value
        assert usage.digital_signature
        assert not usage.key_cert_sign
        assert not extension(x509.BasicConstraints).value.ca
        assert extension(x509.SubjectKeyIdentifier)
        assert extension(x509.AuthorityKeyIdentifier)
        assert extension(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == hosts
        assert own.common_name == name
        assert timedelta(days=89) < own.expires - datetime.now(UTC) <= timedelta(days=90)
        assert certificate.public_key().curve.name == "secp256r1"  # type: ignore[union-attr]
    assert read_certificate(bank.root).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_fingerprints_are_those_of_openssl_in_groups(bank: Credentials) -> None:
    from cryptography.hazmat.primitives.hashes import SHA256

    assert re.fullmatch(r"([0-9A-F]{4} ){15}[0-9A-F]{4}", bank.fingerprint)
    assert bank.fingerprint.replace(" ", "").lower() == read_certificate(bank.certificate).fingerprint(SHA256()).hex()
    assert bank.root_fingerprint == fingerprint(read_certificate(bank.root)) != bank.fingerprint


def test_another_name_is_refused(bank: Credentials) -> None:
    with pytest.raises(InputError, check=Names("certificate.pem", "bank", "lab")):
        bank.check("lab")


def test_another_key_is_refused(bank: Credentials, hospital: Credentials) -> None:
    with pytest.raises(InputError, match="does not belong to"):
        replace(bank, key=hospital.key).check("bank")


def test_another_root_is_refused(bank: Credentials, tmp_path: Path) -> None:
    other = provision_all(tmp_path, members=())
    with pytest.raises(InputError, match="not signed by this federation's root"):
        replace(bank, root=other / "authority" / "rootCA.pem").check("bank")


@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [
        (-9 * DAY, -DAY, r"certificate.pem: expired on \d{4}-\d\d-\d\d .* approve bank.request.zip again"),
        (DAY, 9 * DAY, r"certificate.pem: is not valid before \d{4}-\d\d-\d\d"),
    ],
)
def test_a_certificate_out_of_its_time_is_refused(
    start: timedelta, end: timedelta, sentence: str, home: Path, bank: Credentials, tmp_path: Path
) -> None:
    other = tmp_path / "certificate.pem"
    other.write_bytes(certificate_with_dates(home / "coordinator", bank, -DAY, DAY))
    replace(bank, certificate=other).check("bank")
    other.write_bytes(certificate_with_dates(home / "coordinator", bank, start, end))
    with pytest.raises(InputError, match=sentence):
        replace(bank, certificate=other).check("bank")


def test_an_expired_root_is_refused(bank: Credentials) -> None:
    with pytest.raises(InputError, match=r"root.pem: expired on .* found the federation anew"):
        bank.check("bank", now=datetime.now(UTC) + timedelta(days=4000))


def test_a_key_that_others_can_read_is_refused(bank: Credentials) -> None:
    assert bank.key.stat().st_mode & 0o777 == 0o600
    assert bank.key.parent.stat().st_mode & 0o777 == 0o700
    bank.key.chmod(0o640)
    try:
        with pytest.raises(InputError, match="chmod 600"):
            bank.check("bank")
    finally:
        bank.key.chmod(0o600)


def test_a_key_is_never_overwritten(home: Path, bank: Credentials) -> None:
    before = bank.key.read_bytes()
    with pytest.raises(InputError, match="there is a key already"):
        make_key(home / "bank" / "identity", "bank")
    with pytest.raises(InputError, match="it may hold keys"):
        join(home / "coordinator", home / "bank", "bank")
    assert bank.key.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_bytes(content)
    os.chmod(damaged, 0o600)
    with pytest.raises(InputError, match="is not a private key"):
        read_key(damaged)
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(damaged)
    with pytest.raises(InputError, check=Names("missing.pem")):
        read_certificate(tmp_path / "missing.pem")


def test_a_request_is_its_own_keys_and_strong(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    request = make_key(tmp_path / "identity", "lab")
    check_request(request, "lab")
    with pytest.raises(InputError, check=Names("request.csr", "lab")):
        check_request(request, "bank")
    with pytest.raises(InputError, match="is not a certificate request"):
        check_request(b"rubbish", "lab")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP192R1())):
        weak = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        with pytest.raises(InputError, match="curve P-256 or a stronger one"):
            check_request(weak, "lab")
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        strong = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        check_request(strong, "lab")
    forged = x509.load_pem_x509_csr(request).public_bytes(Encoding.DER)
    forged = forged[:-1] + bytes((forged[-1] ^ 1,))
    with pytest.raises(InputError, match="signature is wrong"):
        check_request(x509.load_der_x509_csr(forged).public_bytes(Encoding.PEM), "lab")
