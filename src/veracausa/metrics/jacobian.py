"""A map's Jacobian, a sample at a time, as something that can be multiplied with: J v, Jᵀ u and Jᵀ J v."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
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


def exact_row_norms(jacobian: RowJacobian) -> Tensor:
    """(n, m) the norm of every row of the Jacobians, from all of their columns or rows, whichever are fewer."""
    return (_from_columns if jacobian.inputs < jacobian.outputs else _from_rows)(jacobian)


def estimated_row_norms(jacobian: RowJacobian, probes: Tensor) -> Tensor:
    """(n, m) estimates from `probes` (p, d) ~ N(0, I): E (J v)_j² = ‖J_j‖², relative deviation √(2/p) of the square.

    All samples share the probes: each one's estimate is as good as with its own.
    """
    return (_squares(jacobian, probes) / len(probes)).sqrt()


def _from_columns(jacobian: RowJacobian) -> Tensor:
    return _squares(jacobian, torch.eye(jacobian.inputs, dtype=jacobian.x.dtype, device=jacobian.x.device)).sqrt()


def _from_rows(jacobian: RowJacobian) -> Tensor:
    unit = torch.eye(jacobian.outputs, dtype=jacobian.payload_dtype, device=jacobian.x.device)
    parts = torch.split(unit.unsqueeze(1), jacobian.columns)
    norms = [jacobian.jtu(part.expand(-1, jacobian.rows, -1).contiguous()).float().norm(dim=2) for part in parts]
    return torch.cat(norms).T


def _squares(jacobian: RowJacobian, directions: Tensor) -> Tensor:
    """(n, m) Σ_v (J v)_j², a few directions at a time."""
    total = torch.zeros(jacobian.rows, jacobian.outputs, device=jacobian.x.device)
    for part in torch.split(directions.unsqueeze(1), jacobian.columns):
        total += jacobian.jv(part.expand(-1, jacobian.rows, -1).contiguous()).float().square_().sum(0)
    return total


EXTRA = 8
"""Directions beyond those asked for: they take the error of the weakest."""


@dataclass(frozen=True)
class Strongest:
    """J ≈ U Σ Vᵀ of n samples, k directions each, the strongest first."""

    left: Tensor
    """(n, m, k) U."""
    sigma: Tensor
    """(n, k); 0 for directions that J does not have, whose vectors are 0 too."""
    right: Tensor
    """(n, d, k) V."""


def truncated_svd(jacobian: RowJacobian, k: int, start: Tensor, power_iterations: int = 1) -> Strongest:
    """The k strongest directions of each Jacobian by subspace iteration from `start`, (d, k + EXTRA) ~ N(0, I).

    Takes k + EXTRA forward products, and as many backward and forward ones for each power iteration, and once more
    backward. All k are exact where the Jacobian has no more than k + EXTRA directions.
    """
    width = min(k + EXTRA, jacobian.inputs, jacobian.outputs)
    columns = start.T[:width].unsqueeze(1).expand(-1, jacobian.rows, -1)
    image = _pushed(jacobian, columns)
    for _ in range(power_iterations):
        back = _orthonormal(_pulled(jacobian, _orthonormal(image)))
        image = _pushed(jacobian, back)
    basis = _orthonormal(image)
    inner = _pulled(jacobian, basis)  # Bᵀ of B = QᵀJ
    values, turn = torch.linalg.eigh(torch.einsum("cnd,end->nce", inner.double(), inner.double()))
    values, turn = values.flip(1)[:, :k].clamp_min(0), turn.flip(2)[..., :k].to(inner.dtype)
    sigma = values.sqrt()
    there = sigma > 1e-6 * sigma[:, :1].clamp_min(1e-30)
    sigma = torch.where(there, sigma, 0).to(inner.dtype)
    right = torch.einsum("cnd,nck->ndk", inner, turn) / torch.where(there, sigma, torch.inf).unsqueeze(1)
    left = torch.einsum("cnm,nck->nmk", basis, turn * there.unsqueeze(1))
    return Strongest(left, sigma, right)


def _pushed(jacobian: RowJacobian, v: Tensor) -> Tensor:
    return jacobian.jv(v.to(jacobian.x.dtype).contiguous()).float()


def _pulled(jacobian: RowJacobian, u: Tensor) -> Tensor:
    return jacobian.jtu(u.to(jacobian.payload_dtype).contiguous()).float()


def _orthonormal(vectors: Tensor) -> Tensor:
    """(c, n, size) vectors that span, sample by sample, what the given ones do; those it takes none for are zero.

    From the c×c Gram matrix, in float64: a batched QR of long thin matrices runs one matrix after the other on a GPU.
    """
    doubled = vectors.double()
    values, turn = torch.linalg.eigh(torch.einsum("cnm,enm->nce", doubled, doubled))
    there = values > 1e-12 * values[:, -1:].clamp_min(1e-200)
    scaled = turn * torch.where(there, values.clamp_min(1e-200).rsqrt(), 0).unsqueeze(1)
    return torch.einsum("cnm,nce->enm", doubled, scaled).to(vectors.dtype)
