"""A small federation, provisioned as its members would do it: bank serves, hospital and lab dial."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from veracausa.federation import membership
from veracausa.federation.identity import Authority
from veracausa.federation.invitation import new_folder
from veracausa.wire.credentials import Credentials, read_certificate, read_key

JOB = """\
name = "risk"
data = { name = "csv", label = "y", id = "id" }
model = { name = "mlp" }
parties = { active = "bank", passive = ["hospital", "lab"] }
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def provision_all(folder: Path, port: int = 8002, scheme: str = "tcp", members: tuple[str, ...] = ("bank",)) -> Path:
    """A folder for each of `members`, and the coordinator's, which is `coordinator`."""
    job = folder / "job.toml"
    job.write_text(JOB)
    network = membership.describe("risk", membership.parties_of(job), f"bank@localhost:{port}", (), scheme)
    coordinator = folder / "coordinator"
    with new_folder(coordinator) as new:
        membership.found(new, network, job)
    for member in members:
        join(coordinator, folder / member, member)
    return coordinator


def join(coordinator: Path, folder: Path, member: str) -> Credentials:
    """Invitation, request, approval and the certificate in its place."""
    with new_folder(folder) as new:
        membership.unpack_invitation(coordinator / "invitation.zip", new)
        membership.ask(new, member)
    request = membership.read_request(coordinator, folder / f"{member}.request.zip")
    return membership.accept(folder, membership.approve(coordinator, request).archive)


def certificate_with_dates(coordinator: Path, own: Credentials, start: timedelta, end: timedelta) -> bytes:
    """The member's certificate as the authority would have signed it at another time."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    authority = Authority(coordinator / "authority")
    model, now = read_certificate(own.certificate), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(model.issuer, model.subject, model.public_key(), x509.random_serial_number())
        .not_valid_before(now + start)
        .not_valid_after(now + end)
    )
    for extension in model.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(read_key(authority.key), hashes.SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]
