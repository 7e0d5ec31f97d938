"""A map's Jacobian, a sample at a time, as something that can be multiplied with: J v, Jᵀ u and Jᵀ J v."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from veracausa.errors import RunError

Map = Callable[[Tensor], Tensor]
# What PyTorch raises for an operation that knows no forward mode or no batching rule; a user's code may add others.
_CANNOT = (RuntimeError, NotImplementedError, ValueError, TypeError)
# PyTorch's forward mode counts its levels for the whole process, and parties may be threads of one.
_forward_mode = threading.RLock()


class RiskUnavailable(RunError):
    """This map from rows to payloads has no Jacobian that can be computed."""


class RowJacobian:
    """The Jacobians J_i of the n rows of `x`, all multiplied at once.

    `transmit` is always called with all of `x`'s rows in their order, so that what belongs to a row (an id, a held
    mask) can be closed over; it must treat rows apart from each other. Vectors are (columns, n, size), columns go
    through the model so many at a time that about `chunk` rows are in it.

    `like` is a payload of these rows, where it is known that the map suits: then it is not run to see whether it does,
    and whoever needs one product pays for one.
    """

    def __init__(self, transmit: Map, x: Tensor, chunk: int, like: Tensor | None = None) -> None:
        self.x, self.transmit = x.detach(), transmit
        self.rows, self.inputs = len(x), x[0].numel()
        self.columns = max(1, chunk // self.rows)
        self._batched, self._forward = True, True
        payload = self._checked() if like is None else like
        self.payload_shape, self.payload_dtype = payload.shape, payload.dtype
        self.outputs = payload[0].numel()
        if like is None:
            self._check_rows_apart()

    def jv(self, v: Tensor) -> Tensor:
        """(c, n, inputs) -> (c, n, outputs): J_i v_i."""
        tangents = v.view(len(v), *self.x.shape)
        return self._columns(self._push, tangents).flatten(2)

    def jtu(self, u: Tensor) -> Tensor:
        """(c, n, outputs) -> (c, n, inputs): J_iᵀ u_i."""
        return self._columns(lambda cotangent: self._pull(cotangent)[0], u.view(len(u), *self.payload_shape)).flatten(2)

    def gram(self, v: Tensor) -> Tensor:
        """(c, n, inputs) -> (c, n, inputs): J_iᵀ J_i v_i, without ever holding J or more than a few columns of it."""
        return torch.cat([self.jtu(self.jv(part)) for part in torch.split(v, self.columns)])

    def cogram(self, u: Tensor) -> Tensor:
        """(c, n, outputs) -> (c, n, outputs): J_i J_iᵀ u_i."""
        return torch.cat([self.jv(self.jtu(part)) for part in torch.split(u, self.columns)])

    @cached_property
    def _pulled(self) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor]]]:
        with torch.enable_grad():
            return vjp(self.transmit, self.x)  # type: ignore[return-value]

    def _pull(self, cotangent: Tensor) -> tuple[Tensor]:
        return self._pulled[1](cotangent)

    def _push(self, tangent: Tensor) -> Tensor:
        if self._forward:
            try:
                # Without a graph of the weights: nobody asks for their gradients, and it would fill the memory.
                with _forward_mode, torch.no_grad():
                    pushed: Tensor = jvp(self.transmit, (self.x,), (tangent,))[1]
                return pushed
            except _CANNOT:
                self._forward = False
        # Jᵀu is linear in u, and its own pull-back is J: the price is a second backward pass.
        zeros = torch.zeros(self.payload_shape, dtype=self.payload_dtype, device=self.x.device)
        pulled: Tensor = vjp(lambda u: vjp(self.transmit, self.x)[1](u)[0], zeros)[1](tangent)[0]
        return pulled

    def _columns(self, one: Map, vectors: Tensor) -> Tensor:
        with torch.enable_grad():
            if self._batched and len(vectors) > 1:
                try:
                    return torch.cat([vmap(one)(part) for part in torch.split(vectors, self.columns)]).detach()
                except _CANNOT:
                    self._batched, self._forward = False, True
            try:
                return torch.stack([one(vector) for vector in vectors]).detach()
            except _CANNOT as error:
                raise RiskUnavailable(
                    f"the map to the payload cannot be differentiated: {type(error).__name__}: {error}"
                ) from error

    def _checked(self) -> Tensor:
        try:
            payload = self._pulled[0]
            with torch.enable_grad():
                probe = self.transmit(self.x.clone().requires_grad_())
        except _CANNOT as error:
            raise RiskUnavailable(
                f"the map to the payload cannot be differentiated: {type(error).__name__}: {error}"
            ) from error
        if not (isinstance(payload, Tensor) and payload.is_floating_point() and len(payload) == self.rows):
            raise RiskUnavailable("the map to the payload does not give one payload of real numbers a row")
        if not probe.requires_grad:
            raise RiskUnavailable(
                "the map to the payload does not pass on gradients: it rounds, detaches or has no_grad"
            )
        return payload

    def _check_rows_apart(self) -> None:
        if self.rows < 2:
            return
        nudge = torch.zeros(1, self.rows, self.inputs, dtype=self.x.dtype, device=self.x.device)
        nudge[0, 0] = 1
        if (self.jv(nudge)[0, 1:] != 0).any():
            raise RiskUnavailable(
                "a row's payload depends on the other rows of its batch (batch statistics?): it has no risk of its own"
            )
