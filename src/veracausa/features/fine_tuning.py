"""Fine-tuning with labels that the active party gives out: the encoder and a linear classifier on top of it.

The labels may be randomised. The loss is corrected by the known noise, so its minimum is at the true classes.

A network that has seen a row's label answers that row better than it answers a new one, and the head, which is
computed on the same rows, would trust it too much. Class scores of training rows are therefore cross-fitted: each row
is scored by a network that has not seen its label. An embedding cannot be cross-fitted, because two networks have two
embeddings.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from veracausa import seeding
from veracausa.errors import InputError
from veracausa.features.base import FitContext, FitLabels
from veracausa.features.encoder import ROWS, laid_out, load_weights, outputs, precision_of
from veracausa.features.label_noise import forward_corrected_loss
from veracausa.features.network_training import FitProgress, as_pixels, train
from veracausa.features.views import ViewOptions, generator_on, view


class FineTuningOptions(BaseModel):
    """What is done with labels. Without labels it is without effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(30, ge=0)
    """0: labels are not used."""
    batch_size: int = Field(256, ge=4)
    lr: float = Field(5e-4, gt=0)
    weight_decay: float = Field(5e-4, ge=0)
    warmup: float = Field(0.05, ge=0, lt=1)
    views: ViewOptions = ViewOptions(crop=0.5, jitter=0.5, greyscale=0.0)
    """The network sees other views of a row at every turn, which keeps it from learning labels by heart."""
    features: Literal["embedding", "scores"] = "embedding"
    """The fine-tuned network's vector, or a score a class."""
    folds: int = Field(3, ge=2, le=20)
    """With `scores`: each row is scored by a network that was fine-tuned without it and so many parts of the rows."""

    def phases(self) -> tuple[str, ...]:
        """The names of the trainings: one a fold where scores are cross-fitted, and the one that is kept."""
        if not self.epochs:
            return ()
        folds = tuple(f"fold {fold + 1}" for fold in range(self.folds)) if self.features == "scores" else ()
        return (*folds, "labels")


def class_scores(width: int, classes: int) -> nn.Sequential:
    """The layers from a vector to the probabilities of the classes."""
    return nn.Sequential(nn.Linear(width, classes), nn.Softmax(1))


def fine_tuned(
    encoder: nn.Module,
    width: int,
    pixels: Tensor,
    labels: FitLabels,
    options: FineTuningOptions,
    fit: FitProgress,
    context: FitContext,
) -> tuple[Tensor | None, nn.Sequential | None]:
    """Fine-tune the encoder in place. The features of these rows, and the layers behind the encoder that give them.

    Both are None where there is nothing between the encoder's vector and the features.
    """
    _check(labels, len(pixels), options)
    if not options.epochs:
        return None, None
    found = torch.zeros(len(pixels), labels.classes)
    part = torch.randperm(len(pixels), generator=seeding.generator(fit.seed, "folds")) % options.folds
    for phase in options.phases()[:-1]:
        fold = part == int(phase.split()[1]) - 1
        if phase not in fit.done:
            trained = _trained(copy.deepcopy(encoder), width, pixels, labels, ~fold, options, fit, phase, context)
            blocks = (as_pixels(block) for block in torch.split(pixels[fold.to(pixels.device)], ROWS))
            fit.finish(phase, torch.cat(list(outputs(trained, blocks, context.device, partial(fit.tell, phase, 1.0)))))
        found[fold] = fit.done[phase]
    if "labels" not in fit.done:
        everything = torch.ones(len(pixels), dtype=torch.bool)
        trained = _trained(copy.deepcopy(encoder), width, pixels, labels, everything, options, fit, "labels", context)
        fit.finish("labels", trained.state_dict())
    whole = nn.Sequential(encoder, class_scores(width, labels.classes).to(context.device))
    load_weights(whole, fit.done["labels"], "features")
    whole.eval()
    if options.features == "embedding":
        return None, None
    scores = whole[1]
    assert isinstance(scores, nn.Sequential)
    return found, scores


def _trained(
    encoder: nn.Module,
    width: int,
    pixels: Tensor,
    labels: FitLabels,
    used: Tensor,
    options: FineTuningOptions,
    fit: FitProgress,
    phase: str,
    context: FitContext,
) -> nn.Sequential:
    """The encoder and a classifier behind it, trained on the rows that are `used`."""
    with seeding.drawing_from(seeding.generator(fit.seed, phase, "classifier")):
        scores = class_scores(width, labels.classes)
    network = nn.Sequential(encoder, scores.to(context.device))
    at = used.nonzero().flatten().to(pixels.device)
    told = labels.values.to(pixels.device)
    transition = None if labels.transition is None else torch.as_tensor(labels.transition).to(pixels.device)
    precision = precision_of(context.runtime, context.device)

    def loss(positions: Tensor, step: int) -> Tensor:
        rows = at[positions.to(at.device)]
        rng = generator_on(pixels.device, fit.seed, phase, "views", step)
        x = view(as_pixels(pixels[rows]), options.views, rng)
        with precision():
            logits = scores[0](encoder(laid_out(x, context.runtime)))
        noise = transition[rows] if transition is not None and transition.ndim == 3 else transition
        return forward_corrected_loss(logits.float(), told[rows], noise)

    # As many steps on a part of the rows as on all of them: a network that learnt for longer is surer of itself, and
    # the head would find the scores of new rows wider than those that it was computed from.
    epochs = round(options.epochs * len(pixels) / len(at))
    train(network, len(at), options, loss, fit, phase, epochs)
    return network


def _check(labels: FitLabels, rows: int, options: FineTuningOptions) -> None:
    values = labels.values
    if values.shape != (rows,):
        raise InputError(f"features: {len(values)} labels for {rows} rows")
    if labels.classes < 2 or int(values.min()) < 0 or int(values.max()) >= labels.classes:
        raise InputError(f"features: a label is outside the {labels.classes} classes")
    if options.features == "scores" and rows < 4 * options.folds:
        raise InputError(f"features.fine_tuning.folds: {options.folds} parts of {rows} rows are too small")
