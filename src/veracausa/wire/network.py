"""The members of a federation, whose port the others dial, and the limits of the wire: what `federation.toml` holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_FEDERATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A federation's name stands in the root's certificate."""
_ADDRESS = re.compile(r"([A-Za-z0-9.-]+):(\d{1,5})")
CELL_OF_SERVER = "server"
"""What FLARE calls the cell that the others dial, whoever runs it."""


def is_address(text: str) -> bool:
    """Whether it is `host:port`."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 65536


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Member(_Strict):
    """One organisation. Without an address it dials out only."""

    address: str | None = None
    """`host:port` at which others reach it."""

    @field_validator("address")
    @classmethod
    def _host_and_port(cls, address: str | None) -> str | None:
        if address is not None and not is_address(address):
            raise ValueError(f"{address!r} is not host:port")
        return address


class WireLimits(_Strict):
    """How long a party waits, and how much it takes in. All members keep to the same.

    Whoever founds a federation writes these limits, and every member's machine keeps to them: so they have limits, too.
    """

    patience_s: float = Field(120.0, gt=0, le=86_400)
    """How long a member may be silent before the others count it as lost and wait for its return."""
    return_s: float = Field(3600.0, gt=0, le=30 * 86_400)
    """How long the others wait for a lost member to return before they give up."""
    attempts: int = Field(100, ge=1, le=10_000)
    """How often a run may begin anew from a checkpoint."""
    chunk_kib: int = Field(2048, ge=16, le=65536)
    """A message is cut into pieces of this size."""
    window_mib: int = Field(256, ge=1, le=8192)
    """How much may be on its way to one peer unread."""
    max_message_mib: int = Field(1024, ge=1, le=8192)
    end_to_end: Literal["relayed", "always"] = "relayed"
    """Whether direct connections are encrypted once more inside TLS; what a relay carries always is."""


class NetworkOptions(_Strict):
    """What all members know of each other."""

    name: str
    server: str
    """The member whose port the others dial. It may take part in the job or only relay."""
    scheme: Literal["tcp", "grpc"] = "tcp"
    route: Literal["relayed", "direct"] = "relayed"
    members: dict[str, Member] = Field(max_length=1000)
    wire: WireLimits = WireLimits()

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not _FEDERATION.fullmatch(name):
            raise ValueError(f"{name[:80]!r}: a name has letters, digits, '.', '-' and '_', at most 64")
        return name

    @field_validator("members")
    @classmethod
    def _names(cls, members: Mapping[str, Member]) -> Mapping[str, Member]:
        for name in members:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r}: a name has letters, digits, - and _, at most 63")
            if name.lower() in (CELL_OF_SERVER, "admin"):
                raise ValueError(f"{name!r} means something else to the engine; choose another name")
        if len({name.lower() for name in members}) < len(members):
            raise ValueError("two names differ only in case")
        return members

    @model_validator(mode="after")
    def _reachable(self) -> NetworkOptions:
        if self.server not in self.members:
            raise ValueError(f"server {self.server!r} is not among the members")
        if self.members[self.server].address is None:
            raise ValueError(f"members.{self.server}.address: is missing; the others dial it")
        return self

    def cell(self, member: str) -> str:
        """The name of a member's cell."""
        return CELL_OF_SERVER if member == self.server else member

    def member(self, cell: str) -> str:
        """Whose cell it is."""
        return self.server if cell == CELL_OF_SERVER else cell

    def relayed(self, one: str, other: str) -> bool:
        """Whether what two members say to each other passes a third."""
        if self.server in (one, other):
            return False
        reachable = self.members[one].address or self.members[other].address
        return self.route == "relayed" or reachable is None

    def to_toml(self) -> str:
        import tomli_w

        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))
