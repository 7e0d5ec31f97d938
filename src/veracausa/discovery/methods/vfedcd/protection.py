"""What a discovery kept from whom, in words: the same on terminal, page and in the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veracausa.discovery.privacy.mechanism import said

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.estimator import VFedCD

OPENED_FEATURES = (
    "no encryption hides this: a party opens the features of its own attributes for every row, which are mixtures of "
    "the other parties' columns, and enough of them can be solved for those columns; strong = true opens only sums"
)
"""Of every discovery between parties but one in the strong mode."""


def protection_in_words(method: VFedCD, engine: str, parties: int, resamples_apart: bool) -> tuple[str, ...]:
    """Notes on a fit of so many parties by this engine."""
    notes = []
    if engine == "federated" and method.strong:
        notes.append(
            "strong: of rows only sums over batches were opened, if the validator keeps its masks to itself and "
            "links are encrypted; here all parties ran in one place"
        )
    elif engine == "federated" and method.encryption == "none":
        notes.append(
            "encryption none: the parties exchanged the protocol's messages, but nothing in them was encrypted; "
            "this is a simulation and protects nobody"
        )
    if engine == "federated" and not method.strong:
        notes.append(OPENED_FEATURES)
    if engine == "federated" and method.validator == "M1":
        notes.append("validator M1: it was sent all weights, and with any one party's help it can read all columns")
    if engine == "federated" and method.settings().threshold == "held_out_graphs":
        notes.append(
            "threshold held_out_graphs: rows kept apart were opened under every candidate graph, and differences "
            "of these show single columns"
        )
    if engine == "floating" and parties > 1:
        notes.append("engine floating: all columns were in one place, and no party was protected from another")
    if method.noise_ is not None:
        notes.append(said(method.noise_))
    if engine == "federated" and not resamples_apart:
        notes.append(
            "the resamples were trained with all columns in one place (engine = 'federated' trains them apart)"
        )
    return tuple(notes)
