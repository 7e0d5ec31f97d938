"""Whether surrogates keep what the task needs: a classifier that learnt from rows looks at their surrogates.

python experiments/causshield/surrogates.py results/causshield/surrogates/DATA.json [DATA [ROWS [KIND,KIND]]]

Learnt kinds (`printed`, `lab`, `intensity`) take minutes on a GPU, and hours on a CPU.

It uses labels, which a passive party does not have: a check of the method, not a part of it. Both parties' strips are
measured, each by a classifier of its own.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from veracausa import seeding
from veracausa.audit.classifier import MOST_ROWS, PictureClassifier
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.data.vertical import PartyData
from veracausa.defenses.causshield.surrogates.collect import collect
from veracausa.errors import InputError
from veracausa.models.runner import choose_device
from veracausa.registry import Options
from veracausa.runs.machine import describe_machine

KINDS = ("printed", "auto", "permuted_ab", "jitter", "fourier", "intensity", "photometric", "none")
SEED = 0


def looked_at(
    data: PartyData, labels: tuple[torch.Tensor, torch.Tensor], classes: int, kinds: Sequence[str]
) -> dict[str, Any]:
    """Of one party: the classifier's accuracy on test rows, and on every kind of surrogate of them."""
    device = choose_device("auto")
    part = data.train
    learnt = torch.arange(min(len(part), MOST_ROWS))
    rng = seeding.generator(SEED, "surrogates", data.name)
    judge = PictureClassifier.fitted(part.take(learnt).to(device), labels[0][learnt].to(device), classes, rng)
    rows, truth = data.test.take(torch.arange(len(data.test))).to(device), labels[1].to(device)

    def accuracy(pictures: torch.Tensor) -> float:
        return float((judge(pictures).argmax(1) == truth).float().mean())

    found: dict[str, Any] = {"rows": accuracy(rows)}
    for kind in kinds:
        try:
            made = collect(part, Options(name=kind))
        except InputError:
            continue  # it does not suit these pictures
        pictures = made.maker.unclipped(rows, seeding.generator(SEED, "test rows")).clamp(0, 1)
        found[kind] = {"accuracy": accuracy(pictures.to(device)), **made.quality, "seconds": made.seconds}
        print(f"{data.name}, {kind}: {100 * found[kind]['accuracy']:.1f} % (rows: {100 * found['rows']:.1f} %)")
    return found


def main(out: Path, name: str = "digits", rows: int | None = None, wanted: Sequence[str] = KINDS) -> None:
    limited = {"name": name} if rows is None else {"name": name, "train": rows}
    job = load_job({"name": "surrogates", "data": limited, "model": {"name": "convnet"}})
    dataset = load(job)
    active = dataset.parties[dataset.active]
    train, test = active.train.labels, active.test.labels
    assert train is not None
    assert test is not None
    parties = {
        party: looked_at(dataset.parties[party], (train, test), len(dataset.classes), wanted)
        for party in job.parties.passive
    }
    kinds = [kind for kind in wanted if all(kind in own for own in parties.values())]
    told = {
        "data": limited,
        "seed": SEED,
        "accuracy_on_rows": fmean(own["rows"] for own in parties.values()),
        "accuracy_on_surrogates": {kind: fmean(own[kind]["accuracy"] for own in parties.values()) for kind in kinds},
        "parties": parties,
        "machine": describe_machine(cuda=torch.cuda.is_available()),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    rows_wanted, kinds_wanted = (int(value) for value in sys.argv[3:4]), (text.split(",") for text in sys.argv[4:5])
    main(Path(sys.argv[1]), *sys.argv[2:3], *rows_wanted, *kinds_wanted)
