"""What is sent over a link to measure it, and the side that answers."""

from __future__ import annotations

import torch

from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
MORE = Kind("more", meta={"echo": int, "count": int})
DONE = Kind("done")
KINDS = (FLOATS, MORE, DONE)


def answer(link: Link, asker: str) -> None:
    """The other side: echo or acknowledge as often as asked, until asked for nothing."""
    link.declare(*KINDS)
    while count := (asked := link.receive(asker, MORE, 0).meta)["count"]:
        for step in range(int(count)):
            message = link.receive(asker, FLOATS, step)
            if asked["echo"]:
                link.send(asker, FLOATS, step, message.tensors)
            else:
                link.send(asker, DONE, step)
        link.send(asker, DONE, 0)
    link.close()
