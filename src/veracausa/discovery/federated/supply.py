"""One epoch's triples of a party, put together over its peers, and handed out once each."""

from __future__ import annotations

import numpy as np

from veracausa.crypto.ring import Ring
from veracausa.crypto.triples import Once
from veracausa.discovery.federated.workshop import Made


class Supply:
    """For a party that shares each block with one other party."""

    def __init__(self, made: Made, peers: tuple[str, ...]) -> None:
        target, source = [made.target[peer] for peer in peers], [made.source[peer] for peer in peers]
        needs = made.needs
        forward = [
            (
                np.concatenate([half.weight_masks[at] for half in target]),
                np.stack([half.features[at] for half in target]),
                np.concatenate([half.features[at] for half in source], axis=1),
            )
            for at in range(len(needs.forward))
        ]
        backward = [
            (
                np.stack([half.gradient_masks[at] for half in target]),
                np.concatenate([half.increments[at] for half in target]),
                np.concatenate([half.increments[at] for half in source], axis=1),
            )
            for at in range(len(needs.backward))
        ]
        self._forward = Once("forward", needs.forward, forward)
        self._backward = Once("backward", needs.backward, backward)
        squares = list(zip(made.square_masks, made.squares, strict=True))
        self._squares = Once("norm", [0] * len(squares), squares)

    def forward(self, batch: int) -> tuple[Ring, Ring, Ring]:
        """Masks (foreign, own·h), the target's share (peers, n, own·h) and the source's (n, foreign·h) of products."""
        return self._forward.take(batch)

    def backward(self, batch: int) -> tuple[Ring, Ring, Ring]:
        """Masks (peers, n, own·h), the target's share (foreign, own·h) and the source's (own, foreign·h)."""
        return self._backward.take(batch)

    def square(self) -> tuple[Ring, Ring]:
        """Masks (blocks, h) and a share (blocks,) of the squared norms of all holders' masks together."""
        return self._squares.take(0)
