"""LPIPS against the published values, and weight files that are not what they should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from veracausa.data.files import data_folder
from veracausa.errors import InputError
from veracausa.metrics import lpips as lpips_weights
from veracausa.metrics.lpips import LpipsNetwork, Unavailable, embedding, load_lpips, lpips

FOLDER = data_folder() / "lpips"
with_weights = pytest.mark.skipif(
    not all((FOLDER / name).is_file() for name in lpips_weights.SHA256),
    reason="no LPIPS weights in $VERACAUSA_DATA/lpips",
)


@pytest.fixture(scope="module", params=["alex", "squeeze"])
def network(request: pytest.FixtureRequest) -> LpipsNetwork:
    return load_lpips(request.param)


def picture(name: str) -> Tensor:
    from PIL import Image

    path = FOLDER / f"{name}.png"
    if not path.is_file():
        pytest.skip(f"no {path.name} in $VERACAUSA_DATA/lpips")
    return torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).copy()).permute(2, 0, 1)[None] / 255


@with_weights
@pytest.mark.parametrize(("backbone", "expected"), [("alex", (0.7219, 0.1376)), ("squeeze", (0.7112, 0.1479))])
def test_the_authors_example_pictures(backbone: str, expected: tuple[float, float]) -> None:
    own = load_lpips(backbone)
    reference = picture("ex_ref")
    found = [lpips(picture(name), reference, own).item() for name in ("ex_p0", "ex_p1")]
    assert found == pytest.approx(expected, abs=5e-5)  # published to four decimals


@with_weights
def test_the_values_in_torchmetrics_documentation() -> None:
    rng = torch.Generator().manual_seed(42)
    first, second = (torch.rand(2, 3, 100, 100, generator=rng) for _ in range(2))
    found = lpips(first, second, load_lpips("squeeze"))
    assert found.tolist() == pytest.approx([0.1024, 0.0938], abs=1e-4)  # the backbone is kept in half precision


@with_weights
def test_torchmetrics_ships_the_same_channel_weights(network: LpipsNetwork) -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    path = Path(torchmetrics.__file__).parent / f"functional/image/lpips_models/{network.backbone}.pth"
    if not path.is_file():
        pytest.skip("this torchmetrics ships no LPIPS weights")
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    for number, own in enumerate(network.linear):
        assert torch.equal(theirs[f"lin{number}.model.1.weight"].flatten(), own)


@with_weights
def test_it_is_a_distance_and_the_embedding_has_it(network: LpipsNetwork) -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.rand(3, 3, 32, 16, generator=rng) for _ in range(2))
    assert lpips(a, a, network).tolist() == [0, 0, 0]
    assert torch.allclose(lpips(a, b, network), lpips(b, a, network))
    assert (lpips(a, b, network) > lpips(a, a.lerp(b, 0.05), network)).all()
    squared = (embedding(a, network) - embedding(b, network)).square().sum(1)
    assert torch.allclose(squared, lpips(a, b, network), rtol=1e-5)
    alone = torch.cat([lpips(x[None], y[None], network) for x, y in zip(a, b, strict=True)])
    assert torch.allclose(alone, lpips(a, b, network), rtol=1e-4)  # a sample's value is its own
    assert lpips(a[:0], b[:0], network).shape == (0,)
    black = torch.zeros(1, 3, 64, 64, requires_grad=True)
    lpips(black, torch.ones(1, 3, 64, 64), network).sum().backward()
    assert black.grad is not None
    assert black.grad.isfinite().all()


@with_weights
def test_grey_is_three_equal_channels_and_small_is_stretched(network: LpipsNetwork) -> None:
    rng = torch.Generator().manual_seed(1)
    a, b = (torch.rand(2, 1, 8, 4, generator=rng) for _ in range(2))
    coloured = lpips(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1), network)
    assert torch.equal(lpips(a, b, network), coloured)
    stretched = [torch.nn.functional.interpolate(x, (64, 64), mode="bilinear") for x in (a, b)]
    assert torch.allclose(lpips(*stretched, network), coloured, rtol=1e-4)


@with_weights
def test_what_cannot_be_compared_is_refused() -> None:
    own = load_lpips("squeeze")
    with pytest.raises(ValueError, match="not the same shape"):
        lpips(torch.zeros(1, 3, 64, 64), torch.zeros(1, 1, 64, 64), own)
    with pytest.raises(ValueError, match="1 or 3"):
        lpips(torch.zeros(1, 2, 64, 64), torch.zeros(1, 2, 64, 64), own)


def test_without_files_it_is_unavailable_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="alexnet_features_fp32") as caught:
        load_lpips("alex", folder=tmp_path)
    assert str(tmp_path) in caught.value.reason
    with pytest.raises(InputError, match="alex, squeeze"):
        load_lpips("vgg", folder=tmp_path)  # type: ignore[arg-type]


@with_weights
def test_changed_weights_are_refused_with_both_sums(tmp_path: Path) -> None:
    for name in ("squeezenet1_1_fp16.safetensors", lpips_weights.LINEAR):
        shutil.copy(FOLDER / name, tmp_path)
    path = tmp_path / lpips_weights.LINEAR
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=lpips_weights.SHA256[path.name]) as caught:
        load_lpips("squeeze", folder=tmp_path)
    assert str(path) in str(caught.value)


@with_weights
def test_weights_of_other_shapes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    from safetensors.torch import save

    shutil.copy(FOLDER / lpips_weights.LINEAR, tmp_path)
    for content, problem in (
        (save({"features.0.weight": torch.zeros(64, 1, 11, 11)}), r"features.0.weight is \(64, 1, 11, 11\)"),
        (b"no weights", "not a safetensors file"),
    ):
        name = "alexnet_features_fp32.safetensors"
        (tmp_path / name).write_bytes(content)
        monkeypatch.setitem(lpips_weights.SHA256, name, hashlib.sha256(content).hexdigest())
        with pytest.raises(InputError, match=problem):
            load_lpips("alex", folder=tmp_path)
