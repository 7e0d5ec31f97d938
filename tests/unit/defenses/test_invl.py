"""InvL's noise: its covariance on maps whose Jacobian is known, and what it does to whoever inverts them."""

from __future__ import annotations

import pytest
import torch

from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.metrics.risk import risk_of
from veracausa.testing.synthetic import bound, linear, small_conv, uniform_rows

DRAWS = 8_000
N = 0.3


def covariance(defense, x: torch.Tensor, draws: int) -> torch.Tensor:
    """The sample covariance of what training exchanges add to one row `x` (1, …), over so many draws."""
    many = x.expand(draws, *x.shape[1:]).contiguous()
    with torch.no_grad():
        payload, _ = defense.forward(many, torch.arange(draws), 0)
        clean = defense.deterministic_payload(many[:1], torch.arange(1))
    noise = (payload - clean).flatten(1).double()
    return noise.T @ noise / draws


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Entries of a sample covariance have a deviation of at most √(2/draws) times the variances: five of them."""
    variance = expected.diagonal().sqrt()
    tolerance = 5 * (2 / DRAWS) ** 0.5 * variance.outer(variance) + 1e-7
    assert ((found - expected).abs() <= tolerance).all()


def gram(bottom) -> torch.Tensor:
    """J Jᵀ of a linear map."""
    weight = bottom.weight.detach().double()
    return weight @ weight.T


@pytest.mark.parametrize("sizes", [(9, 4), (4, 9)])
@pytest.mark.parametrize("form", ["product", "svd"])
def test_enp_has_covariance_n2_j_jt_in_both_forms(sizes, form):
    bottom = linear(*sizes)
    found = covariance(bound("invl_enp", bottom, n=N, form=form), uniform_rows(1, sizes[1]), DRAWS)
    near(found, N**2 * gram(bottom))


def test_dnp_is_its_diagonal():
    bottom, x = linear(9, 4), uniform_rows(1, 4)
    for norms in ("product", "exact"):
        found = covariance(bound("invl_dnp", bottom, n=N, norms=norms), x, DRAWS)
        near(found, N**2 * gram(bottom).diagonal().diag())
    estimated = bound("invl_dnp", bottom, n=N, norms="hutchinson", probes=2000)
    power = estimated.noise_power(bottom(x).detach(), x)(torch.eye(9, dtype=torch.float64).unsqueeze(1))
    assert torch.allclose(power[:, 0], N**2 * gram(bottom).diagonal(), rtol=0.15)  # √(2/2000): 3 %


def test_isotropic_noise_has_the_same_power_in_all_values():
    bottom = linear(9, 4)
    found = covariance(bound("invl_dnp", bottom, n=N, shape="isotropic"), uniform_rows(1, 4), DRAWS)
    near(found, N**2 * gram(bottom).trace() / 9 * torch.eye(9, dtype=torch.float64))


def test_few_directions_are_the_strongest():
    turned = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1))).Q
    sigma = 0.5 ** torch.arange(8)
    bottom = linear(8, 8)
    with torch.no_grad():
        bottom.weight.copy_((turned * sigma) @ turned.T)
    strongest = (turned[:, :2] * sigma[:2].square()) @ turned[:, :2].T
    near(
        covariance(bound("invl_enp", bottom, n=N, form="svd", k_max=2), uniform_rows(1, 8), DRAWS),
        N**2 * strongest.double(),
    )


@pytest.mark.parametrize("shape", ["spectral", "diag", "isotropic"])
def test_noise_in_the_rows_goes_through_the_bottom(shape):
    bottom = linear(9, 4)
    everywhere = covariance(bound("invl_enp", bottom, n=N, space="data", shape=shape), uniform_rows(1, 4), DRAWS)
    near(everywhere, N**2 * gram(bottom))
    directions = torch.linalg.svd(bottom.weight.detach().double()).Vh[:2]
    allowed = {
        "spectral": directions.T @ directions,
        "diag": directions.square().sum(0).diag(),
        "isotropic": torch.eye(4, dtype=torch.float64) * 2 / 4,
    }[shape]
    defense = bound("invl_enp", bottom, n=N, space="data", shape=shape, form="svd", k_max=2)
    weight = bottom.weight.detach().double()
    near(covariance(defense, uniform_rows(1, 4), DRAWS), N**2 * weight @ allowed @ weight.T)


@pytest.mark.parametrize("name", ["invl_enp", "invl_dnp"])
def test_the_error_of_a_linear_inverse_grows_with_n_squared(name):
    bottom = linear(12, 4)
    x = uniform_rows(4000, 4)
    inverse = torch.linalg.pinv(bottom.weight.detach())
    errors = []
    for n in (0.08, 0.16):
        payload = bound(name, bottom, n=n).infer(x, torch.arange(4000))
        errors.append(float((payload @ inverse.T - x).square().mean()))
    assert errors[1] / errors[0] == pytest.approx(4, rel=1e-3)  # the same draws, twice as large
    if name == "invl_enp":
        assert errors[0] == pytest.approx(0.08**2, rel=0.05)  # every direction of the row: variance n²


def test_every_row_of_a_network_has_noise_of_its_own_jacobian():
    bottom, x = small_conv(), uniform_rows(2, 1, 8, 4)
    defense = bound("invl_enp", bottom, n=N)
    bottom.eval()
    jacobians = [torch.func.jacrev(lambda row: bottom(row[None])[0].flatten())(one).flatten(1).double() for one in x]
    for row, jacobian in zip(x, jacobians, strict=True):
        near(covariance(defense, row[None], DRAWS), N**2 * (jacobian @ jacobian.T).detach())


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "invl_enp"},
        {"name": "invl_enp", "form": "svd"},
        {"name": "invl_enp", "space": "data"},
        {"name": "invl_enp", "space": "data", "form": "svd"},
        {"name": "invl_dnp"},
        {"name": "laplace"},
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_the_risk_meter_counts_the_noise_that_is_there(settings):
    """E[(uᵀε)²] as the defense says it, against what its exchanges do."""
    name, bottom = settings["name"], linear(9, 4)
    strength = {"epsilon": 3.0} if name == "laplace" else {"n": N}
    defense = bound(**settings, bottom=bottom, **strength)
    x = uniform_rows(1, 4)
    u = torch.randn(5, 1, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    power = defense.noise_power(bottom(x).detach(), x)(u)
    measured = torch.einsum("cm,mo,co->c", u[:, 0], covariance(defense, x, DRAWS), u[:, 0])
    assert torch.allclose(power[:, 0], measured, rtol=0.1)


def test_enp_makes_every_direction_of_the_row_cost_n_squared():
    bottom, x, mean = linear(9, 4), uniform_rows(5, 4), torch.zeros(4)
    defense = bound("invl_enp", bottom, n=0.1)
    answer = defense.risk_map(x, torch.arange(5))
    noise = answer.noise(bottom(x).detach(), x)
    risk = risk_of(lambda rows: answer.transmit(rows, torch.arange(5)), x, mean, noise=noise)
    assert risk["k"] == 4
    assert risk["invre"] == pytest.approx(float((1 - 4 * 0.01 / x.square().sum(1)).mean()), abs=1e-4)


@pytest.mark.parametrize("name", ["invl_enp", "invl_dnp"])
def test_rows_at_more_risk_get_more_noise(name):
    """Of a map that keeps only the first two values of a row, rows that have something there are at risk."""
    bottom = linear(5, 4)
    with torch.no_grad():
        bottom.weight[:, 2:] = 0
    x = torch.cat([uniform_rows(40, 4), uniform_rows(40, 4, seed=1)])
    x[:40, 2:] *= 0.1
    x[40:, :2] *= 0.1
    defense = bound(name, bottom, n=N, adaptive="per_sample_risk")
    defense.prepare(Part(80, x))
    assert torch.allclose(defense.mean, x.mean(0))
    noise = []
    for step in range(200):
        payload, context = defense.forward(x, torch.arange(80), step)
        noise.append(payload - context.payload.detach())
    deviation = torch.stack(noise).std(0).mean(1)
    difference = x - x.mean(0)
    risk = difference[:, :2].square().sum(1) / difference.square().sum(1)
    assert torch.allclose(deviation / deviation.mean(), risk / risk.mean(), atol=0.3)
    assert float(defense.mean_risk) == pytest.approx(float(risk.mean()), rel=1e-3)
    assert torch.allclose(defense.infer(x, torch.arange(80))[3:5], defense.infer(x[3:5], torch.arange(2)), atol=1e-5)


def test_it_says_that_it_is_reconstructed_and_has_the_published_strength():
    for name in ("invl_dnp", "invl_enp"):
        assert defenses.get(name).reconstructed
        assert "reconstructed" in defenses.get(name).__doc__.splitlines()[0]
        assert defenses.options(name)(name=name).n in (0.08, 0.12, 0.15)
    assert not defenses.get("laplace").reconstructed
