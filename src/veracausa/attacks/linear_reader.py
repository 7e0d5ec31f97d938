"""A linear reader of payloads: with a few hundred pairs it reads more than any network does.

Told what is known of each row beside its payload, it first predicts the row from that alone, and then from both what is
left. A payload that says nothing leaves it at the best guess without one; one that says all is read as if alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.ridge import PENALTIES, Ridge, best_penalty, fit_ridge

_HARDLY = 1e-4
"""The penalty of what is known: it has few numbers, and rows enough to learn them from."""
_HIGHER = (*PENALTIES, 100.0, 1000.0)
"""A reader that has something to fall back on may turn away from the payload altogether."""


@dataclass(frozen=True)
class LinearReader:
    """Rows from payloads, and from what is known beside them; both parts are optional."""

    from_known: Ridge | None
    from_both: Ridge | None

    @classmethod
    def fit(
        cls,
        payloads: Tensor | None,
        known: Tensor | None,
        rows: Tensor,
        held: tuple[Tensor | None, Tensor | None, Tensor],
    ) -> LinearReader:
        """Learn from these rows; `held`, the same three of other rows, chooses the penalty."""
        from_known = None if known is None else fit_ridge(known, rows, _HARDLY)
        if payloads is None:
            return cls(from_known, None)
        held_payloads, held_known, held_rows = held
        assert held_payloads is not None
        if from_known is not None and known is not None and held_known is not None:
            rows, held_rows = rows - from_known(known), held_rows - from_known(held_known)
        penalties = PENALTIES if from_known is None else _HIGHER
        both, held_both = _together(payloads, known), _together(held_payloads, held_known)
        penalty, _ = best_penalty(both, rows, held_both, held_rows, penalties)
        return cls(from_known, fit_ridge(both, rows, penalty))

    def __call__(self, payloads: Tensor, known: Tensor | None) -> Tensor:
        first = self.from_known(known) if self.from_known is not None and known is not None else None
        if self.from_both is None:
            assert first is not None
            return first
        second = self.from_both(_together(payloads, known))
        return second if first is None else first + second


def _together(payloads: Tensor, known: Tensor | None) -> Tensor:
    return payloads if known is None else torch.cat([payloads.flatten(1), known.to(payloads)], 1)
