"""A ledger that counts apart what is sent ahead of the steps, and what a step waits for."""

from __future__ import annotations

from veracausa.discovery.federated.protocol import OFFLINE
from veracausa.wire.ledger import Ledger, read_ledger
from veracausa.wire.message import Message


class PhaseLedger(Ledger):
    """Messages and bytes of one party; those of offline kinds also on their own."""

    offline_messages = 0
    offline_bytes = 0

    def record(self, message: Message, nbytes: int) -> None:
        super().record(message, nbytes)
        self._count(message.kind, nbytes)

    def resume(self, messages: int, bytes_sent: int) -> None:
        super().resume(messages, bytes_sent)
        self.offline_messages = self.offline_bytes = 0
        if self.path is not None and self.path.exists():
            for line in read_ledger(self.path):
                self._count(line["kind"], line["bytes"])

    def _count(self, kind: str, nbytes: int) -> None:
        if kind in OFFLINE:
            self.offline_messages += 1
            self.offline_bytes += nbytes

    def told(self) -> dict[str, int]:
        return {
            "bytes": self.bytes_sent,
            "messages": self.messages,
            "offline_bytes": self.offline_bytes,
            "offline_messages": self.offline_messages,
        }
