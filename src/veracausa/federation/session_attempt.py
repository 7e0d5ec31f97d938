"""One party's run across organisations: handshake, consent, run.

After a fault, the parties wait for whoever was lost and continue from a common checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veracausa import __version__
from veracausa.errors import InputError, PeerLost, RunError, VeracausaError, WireError
from veracausa.events import Observer
from veracausa.federation.consent import Agreement, ConsentStore, Terms, consent, exchange
from veracausa.federation.members import read_network
from veracausa.federation.site_program import SiteProgram
from veracausa.federation.status import Status
from veracausa.runs.folder import locked
from veracausa.wire.credentials import Credentials
from veracausa.wire.flare.cell import FlareSite
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.link import Link, closing_reason
from veracausa.wire.network import NetworkOptions, is_address

Approve = Callable[[Agreement], bool]
"""Shows a person the agreement, and returns the answer. It may take as long as the person does."""
LINGER = 20.0
"""Seconds for which a serving member stays after all are done, until the others have left."""
ROUND = 1.0
"""Seconds between two rounds of asking whether all have consented."""


@dataclass(frozen=True)
class Site:
    """One member's folder."""

    folder: Path
    network: NetworkOptions
    credentials: Credentials
    listen: str | None = None
    """Where to open the port, if the others reach it by another address."""

    @classmethod
    def read(cls, folder: Path, listen: str | None = None) -> Site:
        """The folder that `init --as` or `join` made, with everything checked that can be before anybody is dialled."""
        network = read_network(folder / "federation.toml")
        credentials = Credentials.of_folder(folder)
        site = cls(folder, network, credentials, listen)
        if site.me not in network.members:
            raise InputError(f"{credentials.certificate}: {site.me!r} is not a member of {network.name!r}")
        credentials.check(site.me)
        if listen is not None and not is_address(listen):
            raise InputError(f"--listen {listen}: write it as host:port")
        return site

    @property
    def me(self) -> str:
        return self.credentials.common_name


def run_site(site: Site, program: SiteProgram, approve: Approve, notify: Observer = lambda event: None) -> None:
    """Take part until the job is done. After a fault, wait for the lost party and continue from a common checkpoint."""
    store = ConsentStore(site.folder)
    limits = site.network.wire
    with (
        locked(program.path),
        Status(site.folder, site.me, program.peers) as status,
        FlareSite(site.me, site.network, site.credentials, site.listen) as cell,
    ):
        tell = status.observer(notify)
        lost: VeracausaError | None = None
        for attempt in range(1, limits.attempts + 1):
            tell({"event": "attempt", "attempt": attempt})
            link = cell.connect(program.peers, "run", notify=tell)
            status.link = link
            try:
                _attempt(link, program, site, store, approve, tell)
                _leave(link, site, cell)
                tell({"event": "finished_here"})
                return
            except (PeerLost, WireError) as error:
                # A peer failed, or announced that it could not continue: wait for it, and try again.
                link.give_up(error)
                lost = error
                tell({"event": "lost", "reason": str(error)})
                time.sleep(min(5.0, 0.2 * attempt))
            except BaseException as error:
                link.give_up(error)
                stopped = isinstance(error, KeyboardInterrupt)
                tell({"event": "stopped"} if stopped else {"event": "failed", "reason": closing_reason(error)})
                raise
        raise RunError(f"gave up after {limits.attempts} attempts; the last one: {lost}")


def _attempt(
    link: FlareLink, program: SiteProgram, site: Site, store: ConsentStore, approve: Approve, notify: Observer
) -> None:
    agreement = settle(link, program, site, store, approve, notify)
    program.align(link, notify)
    start = agreement.start
    notify({"event": "starts", "step": start or 0})
    program.run(link, notify, start)


def settle(
    link: FlareLink, program: SiteProgram, site: Site, store: ConsentStore, approve: Approve, notify: Observer
) -> Agreement:
    """The agreement, once all parties have consented."""
    terms = Terms(
        (site.folder / "federation.toml").read_bytes(),
        program.job_text,
        program.declared,
        program.data_digest,
        frozenset(program.store.whole_steps()),
        program.ids.announced if program.ids is not None else (0, 0),
    )
    fingerprints = {peer: session.fingerprint for peer in link.peers if (session := link.session_of(peer))}
    # A peer may still be waiting for a third one, or for a person's answer.
    link.timeout = site.network.wire.return_s
    agreement = exchange(link, terms, fingerprints, __version__)
    store.check(agreement)
    if program.ids is not None:
        program.ids.refuse(agreement.ids)
    answer = _Decision(agreement, approve, store.agreed(agreement))
    consent(link, agreement, answer.now, lambda: time.sleep(ROUND))
    link.timeout = site.network.wire.patience_s
    store.keep(agreement)
    if program.ids is not None:
        program.ids.agreed = agreement.ids
    notify({"event": "agreed", "hash": agreement.hash})
    return agreement


class _Decision:
    """A person decides in a thread of their own, while this party still answers the others."""

    def __init__(self, agreement: Agreement, approve: Approve, known: bool) -> None:
        self._said: bool | None = True if known else None
        self._error: BaseException | None = None
        if not known:
            threading.Thread(target=self._decide, args=(agreement, approve), daemon=True).start()

    def _decide(self, agreement: Agreement, approve: Approve) -> None:
        try:
            self._said = approve(agreement)
        except BaseException as error:
            self._error = error

    def now(self) -> bool | None:
        if self._error is not None:
            raise self._error
        return self._said


def _leave(link: FlareLink, site: Site, cell: FlareSite) -> None:
    """Leave only when all are done: one that fails at the last moment needs the others to continue."""
    link.close()
    link.wait_for_others(site.network.wire.patience_s)
    if site.me == site.network.server:
        # What the others say to each other last goes through here.
        deadline = time.monotonic() + LINGER
        while set(link.peers) & set(cell.here()) and time.monotonic() < deadline:
            time.sleep(0.1)


@contextmanager
def connected(
    site: Site, peers: tuple[str, ...], purpose: str, notify: Observer = lambda event: None
) -> Iterator[Link]:
    """A link to the peers for one thing other than the run itself, such as predicting."""
    with FlareSite(site.me, site.network, site.credentials, site.listen) as cell:
        link = cell.connect(peers, purpose, notify=notify)
        try:
            yield link
        except BaseException as error:
            link.give_up(error)
            raise
        _leave(link, site, cell)


def serve(site: Site, notify: Observer = lambda event: None, until: threading.Event | None = None) -> None:
    """Relay what the others send each other, and take part in nothing, until told to stop."""
    if site.me != site.network.server:
        raise InputError(
            f"{site.me!r} does not serve; {site.network.server!r} does. Take part with `veracausa federation run`"
        )
    until = until or threading.Event()
    with FlareSite(site.me, site.network, site.credentials, site.listen) as cell:
        notify({"event": "serves", "at": site.network.members[site.me].address})
        here: set[str] = set()
        while not until.wait(0.5):
            now = set(cell.here())
            for name in sorted(now - here):
                notify({"event": "came", "member": name})
            for name in sorted(here - now):
                notify({"event": "left", "member": name})
            here = now
