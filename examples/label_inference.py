"""What a passive party learns of the labels from the gradients it gets back."""

from veracausa.audit.labels import infer_labels
from veracausa.training.recorders import GradientsReturned
from veracausa.training.train import train

job = {
    "data": {"name": "digits", "train": 600},
    "model": {"name": "convnet", "cut": 6},
    "training": {"epochs": 3, "batch_size": 64, "optimizer": {"name": "adam", "lr": 3e-3}},
    "risk": {"every": 0},
}
run = train(job, "runs/recorded", watchers=[GradientsReturned()])
for attack, found in infer_labels(run, "passive_1", known=5).items():
    if "accuracy" in found:
        print(f"{attack}: {found['accuracy']:.0%} of the labels; guessing the commonest gives {found['prior']:.0%}")
