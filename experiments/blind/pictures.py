"""Blind training of pictures: accuracy of a head from sums, by feature map, labels, noise and data set.

    VERACAUSA_DATA=... python experiments/blind/pictures.py --cells patches --out results/blind/pictures
    VERACAUSA_DATA=... python experiments/blind/pictures.py --cells gpu --seeds 0 1 2 --out results/blind/pictures

A cell is one job with one seed. It is a file `NAME-SEED.json` with its settings, its machine and what was found, and is
not measured again while that file is there. A cell that needs a GPU is marked `not run: no GPU` where there is none.
`features` cells fit each party's map at home and solve the ridge from the plain sums of the training rows: what the
whole protocol gives without encryption, noise and rounding. `job` cells run the product's own training. `joint` trains
both parties' networks and a linear layer on their vectors together, with views as augmentation: undefended split
training with deep bottoms gives the same, and the product's own has no augmentation.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import veracausa
from veracausa import seeding
from veracausa.arrays import Array
from veracausa.config import Job, load_job
from veracausa.data.load import load
from veracausa.features import feature_maps
from veracausa.features.base import FitContext, OwnRows
from veracausa.features.encoder import build_encoder, laid_out, precision_of
from veracausa.features.fine_tuning import FineTuningOptions
from veracausa.features.network_training import FitProgress, as_pixels, train
from veracausa.features.views import generator_on, view
from veracausa.runs.folder import write_json
from veracausa.runs.machine import describe_machine

CIFAR = {"name": "cifar10", "train": 20000, "test": 10000}
RESNET = {"name": "resnet18", "cut": 6}
GPU = {"device": "cuda", "precision": "bf16", "channels_last": True}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
SIMCLR = {"name": "simclr", "epochs": 200, "batch_size": 512}


def blind(features: dict[str, Any], data: dict[str, Any] = CIFAR, **settings: Any) -> dict[str, Any]:
    """A job of blind training. Its sums are plain: the encrypted ones are the same integers, and time is not asked."""
    return {
        "data": data,
        "model": RESNET,
        "features": features,
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none", **settings},
    }


def split(model: dict[str, Any], epochs: int) -> dict[str, Any]:
    """A job of undefended split training, as the product ships it: it has no augmentation."""
    training = {"epochs": epochs, "batch_size": 128, "optimizer": SGD, "schedule": {"name": "cosine"}}
    return {"data": CIFAR, "model": model, "training": training, "risk": {"every": 0}}


PATCHES = {
    "cifar10-patches": blind({"name": "patches"}),
    "cifar10-patches-1600": blind({"name": "patches", "dictionary": 1600}),
    "cifar10-patches-64": blind({"name": "patches", "width": 64}),
    "mnist-patches": blind({"name": "patches"}, {"name": "mnist", "train": 20000, "test": 10000}),
    "emnist-patches": blind(
        {"name": "patches"}, {"name": "emnist", "variant": "letters", "train": 20000, "test": 10000}
    ),
    "cifar100-patches": blind({"name": "patches"}, {"name": "cifar100", "train": 20000, "test": 10000}),
}
"""Label-free, on a CPU."""
OBJECTIVES = {
    f"cifar10-{name}": blind({**SIMCLR, "name": name}) for name in ("simclr", "vicreg", "sigreg", "decomposition")
}
ON_GPU = {
    **OBJECTIVES,
    "cifar10-simclr-private-2": blind(SIMCLR, labels="private", label_epsilon=2.0),
    "cifar10-simclr-private-4": blind(SIMCLR, labels="private", label_epsilon=4.0),
    "cifar10-simclr-private-4-64": blind({**SIMCLR, "width": 64}, labels="private", label_epsilon=4.0),
    "cifar10-simclr-private-4-64-dp-1": blind(
        {**SIMCLR, "width": 64}, labels="private", label_epsilon=4.0, epsilon=1.0, delta=1e-5
    ),
    "cifar10-split-cut-6": split(RESNET, 20),
    "cifar10-joint-deep": {"data": CIFAR, "model": RESNET, "training": {"epochs": 50, "batch_size": 128}},
}
"""The table of CIFAR-10 halves. Each takes minutes on a GPU and days without."""
LABELS = {
    f"digits-private-{epsilon}-{features}": {
        **blind(
            {
                "name": "simclr",
                "epochs": 10,
                "batch_size": 128,
                "width": 30,
                "views": {"flip": 0.0},
                "fine_tuning": {
                    "epochs": 30,
                    "batch_size": 32,
                    "lr": 2e-3,
                    "views": {"flip": 0.0, "crop": 0.7},
                    "features": features,
                },
            },
            {"name": "digits"},
            labels="private",
            label_epsilon=float(epsilon),
        ),
        "model": {"name": "convnet"},
    }
    for epsilon in (2, 4)
    for features in ("embedding", "scores")
}
"""Fine-tuning with randomised labels: the plain embedding beside cross-fitted scores, small enough for a CPU."""
SMOKE = {"train": 400, "test": 200}


def measured_features(job: Job) -> dict[str, Any]:
    """Each party's map fitted at home without labels, and the ridge from the sums of its features."""
    data = load(job)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fitted, unseen, widths, seconds = [], [], {}, {}
    for name, party in data.parties.items():
        if party.train.features is None:
            continue
        started = time.monotonic()
        options = job.features_of(name)
        feature_map = feature_maps.get(options.name)(options)
        context = FitContext(seeding.generator(job.seed, name, "features"), device, job.runtime, job.model)
        own = OwnRows(party.train.features)
        found = feature_map.fit(own, context)
        if found is None:
            found = np.concatenate([feature_map.map(block) for block in own.blocks(1024)])
        seconds[name] = round(time.monotonic() - started, 1)
        assert party.test.features is not None
        mapped = [feature_map.map(block) for block in OwnRows(party.test.features).blocks(1024)]
        fitted.append(found)
        unseen.append(np.concatenate(mapped))
        widths[name] = feature_map.width
    active = data.parties[data.active]
    assert active.train.labels is not None
    assert active.test.labels is not None
    scored = ridge_accuracy(
        np.concatenate(fitted, 1), active.train.labels.numpy(), np.concatenate(unseen, 1), active.test.labels.numpy()
    )
    return {**scored, "widths": widths, "seconds": seconds, "rows": len(fitted[0]), "test_rows": len(unseen[0])}


def ridge_accuracy(train: Array, labels: Array, test: Array, wanted: Array) -> dict[str, float]:
    """Test accuracy of the ridge on standardised columns; its strength by generalised cross-validation on sums."""
    mean, spread = train.mean(0), train.std(0) + 1e-12
    x = (train - mean) / spread
    y = np.eye(int(labels.max()) + 1)[labels.astype(int)]
    shares = y.mean(0)
    y = y - shares
    values, vectors = np.linalg.eigh(x.T @ x)
    values = values.clip(0)
    turned = vectors.T @ (x.T @ y)
    tried = []
    for strength in len(x) * np.logspace(-5, 1, 31):
        weights = turned / (values + strength)[:, None]
        freedom = float((values / (values + strength)).sum())
        squares = (y**2).sum() - 2 * (weights * turned).sum() + (weights**2 * values[:, None]).sum()
        tried.append((float(squares) / (1 - freedom / len(x)) ** 2, float(strength)))
    strength = min(tried)[1]
    head = vectors @ (turned / (values + strength)[:, None])

    def accuracy(rows: Array, told: Array) -> float:
        return float(((rows @ head + shares).argmax(1) == told).mean())

    return {
        "accuracy": accuracy((test - mean) / spread, wanted),
        "train_accuracy": accuracy(x, labels),
        "ridge": strength / len(x),
    }


class BothHalves(nn.Module):
    """Every party's network, and one linear layer on all their vectors."""

    def __init__(self, job: Job, shapes: list[tuple[int, ...]], classes: int) -> None:
        super().__init__()
        rng = seeding.generator(job.seed, "joint")
        built = [build_encoder(job.model, shape, rng) for shape in shapes]
        self.encoders = nn.ModuleList([encoder for encoder, _ in built])
        with seeding.drawing_from(rng):
            self.head = nn.Linear(sum(width for _, width in built), classes)

    def forward(self, halves: list[Tensor]) -> Tensor:
        vectors = [encoder(half) for encoder, half in zip(self.encoders, halves, strict=True)]
        scores: Tensor = self.head(torch.cat(vectors, 1))
        return scores


def measured_joint(job: Job) -> dict[str, Any]:
    """Undefended training of both parties' deep networks, the same views as the label-free maps' fine-tuning."""
    data = load(job)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    active = data.parties[data.active]
    assert active.train.labels is not None
    assert active.test.labels is not None
    holders = [party for party in data.parties.values() if party.train.features is not None]
    network = BothHalves(job, [party.shape for party in holders], len(data.classes)).to(device)
    pixels = [party.train.features.to(device) for party in holders if party.train.features is not None]
    labels = active.train.labels.to(device)
    options = FineTuningOptions(epochs=job.training.epochs, batch_size=job.training.batch_size, lr=1e-3)
    fit = FitProgress(FitContext(seeding.generator(job.seed, "joint", "fit"), device), {"joint": 1.0}, "joint")
    precision = precision_of(job.runtime, device)

    def loss(positions: Tensor, step: int) -> Tensor:
        at, rng = positions.to(device), generator_on(device, fit.seed, "views", step)
        halves = [laid_out(view(as_pixels(own[at]), options.views, rng), job.runtime) for own in pixels]
        with precision():
            scores = network(halves)
        return torch.nn.functional.cross_entropy(scores.float(), labels[at])

    train(network, len(labels), options, loss, fit, "joint", options.epochs)
    right = 0
    with torch.no_grad():
        for at in torch.split(torch.arange(len(active.test.labels)), 512):
            halves = [as_pixels(party.test.features[at]).to(device) for party in holders]  # type: ignore[index]
            right += int((network(halves).argmax(1).cpu() == active.test.labels[at]).sum())
    return {"accuracy": right / len(active.test.labels), "rows": len(labels)}


def measured_job(job: Job, folder: Path) -> dict[str, Any]:
    """The product's own training, and its summary's figures."""
    run = veracausa.train(job, out=folder, resume=(folder / "config.toml").is_file())
    kept = ("test", "validation", "seconds", "blind_training")
    return {name: run.summary[name] for name in kept if name in run.summary}


def measure(name: str, tree: dict[str, Any], seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One cell, from its file where it was measured already."""
    path = asked.out / f"{name}-{seed}.json"
    if path.is_file() and (kept := json.loads(path.read_text(encoding="utf-8"))).get("status") == "done":
        return dict(kept)
    needs_gpu = name in ON_GPU
    if asked.smoke:
        tree = {**tree, "data": {**tree["data"], **SMOKE}}
        small = {"epochs": 1, "batch_size": 64} if needs_gpu else {"dictionary": 64, "patches": 2000}
        if "features" in tree:
            tree["features"] = {**tree["features"], **small}
            tree["model"] = {"name": "convnet"}
            tree["blind"] = {**tree["blind"], "allow_small_n": True}
        else:
            tree["training"] = {**tree["training"], "epochs": 1}
    elif needs_gpu and torch.cuda.is_available():
        tree = {**tree, "runtime": GPU}
    job = load_job({**tree, "seed": seed, "name": f"{name}-{seed}"})
    cell: dict[str, Any] = {"cell": name, "seed": seed, "smoke": asked.smoke, "machine": describe_machine()}
    cell["config"] = job.model_dump(mode="json", exclude_none=True)
    if needs_gpu and not torch.cuda.is_available() and not asked.smoke:
        return {**cell, "status": "not run: no GPU"}
    started = time.monotonic()
    by = "job" if asked.product or "split" in name or "private" in name else "features"
    by = "joint" if "joint" in name else by
    if by == "job":
        found = measured_job(job, asked.work / f"{name}-{seed}")
    else:
        found = measured_joint(job) if by == "joint" else measured_features(job)
    cell |= {"status": "done", "by": by, "found": found}
    cell["wall_seconds"] = round(time.monotonic() - started, 1)
    asked.out.mkdir(parents=True, exist_ok=True)
    write_json(path, cell)
    return cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=["patches"], help="patches, labels, gpu, or names of cells")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/blind-pictures"), help="where runs are kept")
    parser.add_argument("--product", action="store_true", help="run every cell through the product's own training")
    parser.add_argument("--smoke", action="store_true", help="a few rows and one epoch: does it run?")
    asked = parser.parse_args()
    every = {**PATCHES, **LABELS, **ON_GPU}
    groups = {"patches": list(PATCHES), "labels": list(LABELS), "gpu": list(ON_GPU)}
    for name in [cell for word in asked.cells for cell in groups.get(word, [word])]:
        if name not in every:
            parser.error(f"no cell is named {name!r} (there are: {', '.join(every)})")
        for seed in asked.seeds:
            cell = measure(name, every[name], seed, asked)
            print(
                json.dumps({key: cell[key] for key in ("cell", "seed", "status", "found") if key in cell}), flush=True
            )


if __name__ == "__main__":
    main()
