"""Noise calibrated by the bottom's Jacobian (InvL): what its two forms, DNP and ENP, have in common.

Reconstructed: the authors' code was not found, and their paper (USENIX Security '25, arXiv 2512.15460) was not at hand.
What the literature says of it: the noise follows the spectrum of each row's
Jacobian, and its strength n acts like a standard deviation in the units of the rows. That singles out a covariance
n² J Jᵀ: along each direction that could be read back, the row is then read with an error of variance n².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.noise import NoiseDefense, NoiseOptions, NoiseSource
from veracausa.defenses.protocols import Learns, Prepares, no_progress
from veracausa.defenses.sensitivity import SensitivityOptions, directions, jacobian_of, row_norms
from veracausa.events import ProgressCallback
from veracausa.metrics.jacobian import EXTRA, Strongest, truncated_svd
from veracausa.metrics.risk import relative_rank

_NUMBERS = 2**26
"""The most numbers of singular vectors that one piece of a batch may have."""
_REMEMBERED = 100
"""How many batches the mean risk goes back, about."""


class InvLOptions(NoiseOptions, SensitivityOptions):
    swept: ClassVar[tuple[str, ...]] = ("n",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"n": (0.08, 0.15, 0.3, 0.6, 1.2)}

    n: float = Field(0.12, ge=0)
    """The strength, in the units of the rows; published: 0.08, 0.12 and 0.15 for pixels in [0, 1]."""
    space: Literal["embedding", "data"] = "embedding"
    """What gets the noise: the payload, or the row before the bottom sees it."""
    shape: Literal["spectral", "diag", "isotropic"] = "spectral"
    """The noise's covariance: n² J Jᵀ, its diagonal, or a multiple of the identity of the same total."""
    norms: Literal["product", "auto", "exact", "hutchinson"] = "product"  # type: ignore[assignment]
    """Of `diag`. product: no norm is found at all; one Jacobian product with a random vector and a sign for every value
    give noise of these variances, uncorrelated. Else independent noise by norms, for `probes` products or more."""
    form: Literal["product", "svd"] = "product"
    """Spectral noise by one Jacobian product with a random vector, in all directions, or from the strongest singular
    directions alone. In data space: noise in all directions of the row, or in the strongest alone."""
    k_max: int = Field(64, ge=1)
    """The most directions of the form `svd` and of `adaptive`."""
    adaptive: Literal["none", "per_sample_risk"] = "none"
    """Whether n is multiplied by a row's share of what could be read back (InvRE) over the mean of all rows."""


class InvL(NoiseDefense, Prepares, Learns):
    """Adds noise whose shape comes from every row's own Jacobian; the gradient goes straight through."""

    options: InvLOptions
    reconstructed = True

    def __init__(self, options: InvLOptions) -> None:
        super().__init__(options)
        self.mean: Tensor | None = None
        """The mean of the training rows, from which the risk of a row is measured."""
        self.mean_risk, self.batches = torch.zeros(()), 0

    @property
    def learns(self) -> bool:
        return self.options.adaptive != "none"

    # Before the first exchange.

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        if self.options.adaptive == "none":
            return
        held = data.present(torch.arange(len(data))).nonzero().squeeze(1)
        sums = [data.take(ids).sum(0, dtype=torch.float64) for ids in torch.split(held, 4096)]
        self.mean = (torch.stack(sums).sum(0) / len(held)).float()

    def prepared(self) -> dict[str, Any]:
        return {} if self.mean is None else {"mean": self.mean}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        self.mean = kept.get("mean")

    # What is sent.

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        draws = self._training_draws(x)
        if self.options.space == "data":
            return Defense.forward(self, self._noisy_rows(x, draws, learning=True), ids, step)
        payload, context = Defense.forward(self, x, ids, step)
        return payload + self._drawn(payload, x, draws, learning=True).view_as(payload), context

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        if self.options.space == "data":
            return Defense.infer(self, self._noisy_rows(x, self._inference_draws(x)), ids)
        return super().infer(x, ids)

    def noise(self, r: Tensor, x: Tensor, draws: NoiseSource) -> Tensor:
        return self._drawn(r, x, draws).view_as(r)

    def noise_power(self, r: Tensor, x: Tensor) -> Callable[[Tensor], Tensor]:
        """By the map's linear part where the noise is in the rows."""
        strength, spread = self._calibrated(r, x)
        if self.options.space == "embedding":
            return lambda u: strength.square() * spread.power(u)

        def power(u: Tensor) -> Tensor:
            with jacobian_of(self, x, r) as jacobian:
                return strength.square() * spread.power(jacobian.jtu(u.to(r.dtype)).to(u.dtype))

        return power

    def _noisy_rows(self, x: Tensor, draws: NoiseSource, learning: bool = False) -> Tensor:
        r = x  # nobody looks at it where the directions do not matter
        if self.options.form == "svd" or self.options.adaptive != "none":
            with torch.no_grad():
                r = self.deterministic_payload(x, torch.arange(len(x)))
        return x + self._drawn(r, x, draws, learning).view_as(x)

    # How strong, and in which directions.

    @torch.no_grad()
    def _drawn(self, r: Tensor, x: Tensor, draws: NoiseSource, learning: bool = False) -> Tensor:
        """(n, values of what gets the noise)."""
        strength, spread = self._calibrated(r, x, learning)
        noise = strength.unsqueeze(1) * spread.draw(draws)
        return noise.to(r.dtype if self.options.space == "embedding" else x.dtype)

    def _calibrated(self, r: Tensor, x: Tensor, learning: bool = False) -> tuple[Tensor, NoiseCovariance]:
        """The strength for every row, (n,), and the noise of strength 1."""
        options = self.options
        strength = torch.full((len(x),), options.n, device=x.device)
        directed = options.form == "svd" and (options.space == "data" or options.shape == "spectral")
        if options.adaptive == "none" and not directed:
            return strength, self._spread(r, x, None)
        factors, risks = [], []
        for rows, like in self._pieces(x, r):
            strongest = self._strongest(rows, like)
            if options.adaptive != "none":
                risks.append(self._risk(strongest, rows))
            if directed:
                scaled = strongest.left * strongest.sigma.unsqueeze(1)
                factors.append(strongest.right if options.space == "data" else scaled)
        if risks:
            strength = strength * self._relative(torch.cat(risks), learning)
        return strength, self._spread(r, x, torch.cat(factors) if factors else None)

    def _spread(self, r: Tensor, x: Tensor, factors: Tensor | None) -> NoiseCovariance:
        shape = self.options.shape
        if self.options.space == "data" and factors is None:  # all directions of the row: the three shapes are one
            return Diagonal(torch.ones_like(x.flatten(1)))
        if shape == "spectral":
            return ProductCovariance(self, x, r) if factors is None else FactoredCovariance(factors)
        if factors is None:

            def deviations() -> Tensor:
                return row_norms(self, self.options, self.seed, x, r).flatten(1)

            if shape == "diag" and self.options.norms == "product":
                return SignedCovariance(self, x, r, deviations)
            variances = deviations().square()
        else:
            variances = factors.square().sum(2)
        if shape == "isotropic":
            variances = variances.mean(1, keepdim=True).expand_as(variances)
        return Diagonal(variances.sqrt())

    def _pieces(self, x: Tensor, r: Tensor) -> zip[tuple[Tensor, Tensor]]:
        rows = max(1, _NUMBERS // (r[0].numel() * (self.options.k_max + EXTRA)))
        return zip(torch.split(x, rows), torch.split(r, rows), strict=True)

    def _strongest(self, x: Tensor, r: Tensor) -> Strongest:
        with jacobian_of(self, x, r) as jacobian:
            start = directions(self.seed, self.options.k_max + EXTRA, x)
            return truncated_svd(jacobian, self.options.k_max, start.T)

    def _risk(self, strongest: Strongest, x: Tensor) -> Tensor:
        """(n,) InvRE of the bottom without noise, as far as the strongest directions tell."""
        assert self.mean is not None
        difference = (x - self.mean.to(x)).flatten(1)
        read = torch.einsum("nd,ndk->nk", difference, strongest.right).square()
        counted = torch.arange(read.shape[1], device=x.device) < relative_rank(strongest.sigma).unsqueeze(1)
        return (read * counted).sum(1) / difference.square().sum(1).clamp_min(1e-12)

    def _relative(self, risk: Tensor, learning: bool) -> Tensor:
        """A row's risk over the mean of the rows seen in training; before the training, of these rows."""
        if learning:
            self.batches += 1
            before = self.mean_risk.to(risk.device)
            self.mean_risk = before + (risk.mean() - before) / min(self.batches, _REMEMBERED)
        mean = self.mean_risk.to(risk.device) if self.batches else risk.mean()
        return risk / mean.clamp_min(1e-6)

    def state(self) -> dict[str, Any]:
        if self.options.adaptive == "none":
            return super().state()
        return {**super().state(), "mean_risk": self.mean_risk, "batches": self.batches}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.mean_risk, self.batches = state.get("mean_risk", self.mean_risk), state.get("batches", 0)


class InvLDNPOptions(InvLOptions):
    """Settings of InvL-DNP, reconstructed: the authors' code is not public."""

    shape: Literal["spectral", "diag", "isotropic"] = "diag"
    """The noise's covariance: the diagonal of n² J Jᵀ, all of it, or a multiple of the identity of the same total."""


@defenses.register("invl_dnp", InvLDNPOptions)
class InvLDNP(InvL):
    """Adds uncorrelated noise of deviation n ‖∂r_j/∂x‖ (reconstructed: the authors' code is not public).

    The diagonal of ENP's covariance, so of the same total power, and as cheap by one product; independent in every
    value, it needs the norms of the Jacobian's rows.
    """

    options: InvLDNPOptions


class InvLENPOptions(InvLOptions):
    """Settings of InvL-ENP, reconstructed: the authors' code is not public."""


@defenses.register("invl_enp", InvLENPOptions)
class InvLENP(InvL):
    """Adds n J w, noise along the Jacobian's directions (reconstructed: the authors' code is not public).

    Every direction of the row that the payload carries is then read with an error of variance n². One Jacobian product
    draws it; the form `svd` finds the strongest directions first, as the paper is understood to do.
    """

    options: InvLENPOptions


class NoiseCovariance(Protocol):
    """Noise ε with mean 0 for n rows of m values."""

    def draw(self, draws: NoiseSource) -> Tensor:
        """(n, m) ε."""

    def power(self, u: Tensor) -> Tensor:
        """(c, n) E[(uᵀε)²] for c vectors u a row, (c, n, m)."""


class Diagonal:
    """Independent in every value, with these standard deviations (n, m)."""

    def __init__(self, deviations: Tensor) -> None:
        self.deviations = deviations

    def draw(self, draws: NoiseSource) -> Tensor:
        return self.deviations * draws.normal(*self.deviations.shape)

    def power(self, u: Tensor) -> Tensor:
        return (u * self.deviations.to(u.dtype)).square().sum(-1)


class FactoredCovariance:
    """Covariance F Fᵀ, F (n, m, k)."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def draw(self, draws: NoiseSource) -> Tensor:
        w = draws.normal(len(self.factors), self.factors.shape[2])
        return torch.einsum("nmk,nk->nm", self.factors, w)

    def power(self, u: Tensor) -> Tensor:
        return torch.einsum("cnm,nmk->cnk", u, self.factors.to(u.dtype)).square().sum(-1)


class ProductCovariance:
    """Covariance J Jᵀ, of a defense's bottom at the rows `x`, by one product with J or Jᵀ."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor) -> None:
        self.defense, self.x, self.r = defense, x, r

    def draw(self, draws: NoiseSource) -> Tensor:
        w = draws.normal(*self.x.shape).flatten(1).to(self.x.dtype)
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jv(w.unsqueeze(0))[0].float()

    def power(self, u: Tensor) -> Tensor:
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jtu(u.to(self.r.dtype)).to(u.dtype).square().sum(-1)


class SignedCovariance(ProductCovariance):
    """The diagonal of J Jᵀ by one product: each value of J w is normal with its own variance, and a sign of its own
    takes the correlations away. Not independent, since all magnitudes come from one w; `deviations` are for `power`."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor, deviations: Callable[[], Tensor]) -> None:
        super().__init__(defense, x, r)
        self.deviations = deviations

    def draw(self, draws: NoiseSource) -> Tensor:
        along = super().draw(draws)
        return along * draws.normal(*along.shape).sign()

    def power(self, u: Tensor) -> Tensor:
        return Diagonal(self.deviations()).power(u)
