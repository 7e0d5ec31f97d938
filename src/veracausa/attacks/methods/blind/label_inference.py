"""What a passive party learns of the labels: randomised labels put together with a model of its own columns."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindAttack, BlindReading, BlindView
from veracausa.attacks.labels import LabelGuess
from veracausa.attacks.own_columns import SoftmaxModel, own_model_chances
from veracausa.errors import InputError
from veracausa.registry import Options


class LabelInferenceOptions(Options):
    folds: int = Field(2, ge=2)
    iterations: int = Field(60, ge=1)
    decay: float = Field(1e-3, ge=0)


@blind_attacks.register("label_inference", LabelInferenceOptions)
class LabelInference(BlindAttack):
    """The likeliest class of each row by Bayes' rule: the party's own model says the prior, the told label the rest."""

    surface = "labels"
    uses = Grant.LABELLED_AUXILIARY
    about = "a passive party puts the labels it was told together with a model of its own columns"
    order = 9
    situations = ("labels as told", "no labels", "labels, epsilon = 1", "labels, epsilon = 4", "true labels")
    options: LabelInferenceOptions

    def guess(self, view: BlindView) -> BlindReading:
        if view.classes < 2:
            raise InputError(f"{self.options.name}: needs a task with at least 2 classes")
        chances = self._chances(view)
        if hasattr(view, "known_targets") and hasattr(view, "known_labels"):
            chances[view.known_targets] = F.one_hot(view.known_labels.long(), view.classes).double()
        score = chances[:, 1] if view.classes == 2 else None
        return BlindReading(labels=LabelGuess(chances.argmax(1), score=score))

    def _chances(self, view: BlindView) -> Tensor:
        """(n, classes) what the party believes of each row."""
        if not hasattr(view, "told"):
            if not hasattr(view, "known_targets"):
                raise InputError(f"{self.options.name}: no label was let out, and the party knows none beforehand")
            model = self._fitted(
                view.own[view.known_targets], view.known_labels, torch.eye(view.classes, dtype=torch.float64)
            )
            return model(view.own)
        if not hasattr(view, "transition"):  # these are the true ones
            return F.one_hot(view.told.long(), view.classes).double()
        transition = torch.tensor(view.transition, dtype=torch.float64)
        prior = getattr(view, "own_chances", None)
        if prior is None:
            prior = own_model_chances(
                view.own, view.told, view.classes, view.rng, transition, self.options.folds, self.options.iterations
            )
        # (n, classes): the chance of what was told, by the true class; the chances may be each row's own.
        at = view.told.long()
        heard = transition[:, at].T if transition.ndim == 2 else transition[torch.arange(len(at)), :, at]
        likely = prior * heard
        return likely / likely.sum(1, keepdim=True).clamp_min(1e-300)

    def _fitted(self, features: Tensor, told: Tensor, transition: Tensor) -> SoftmaxModel:
        return SoftmaxModel.fit(features, told, transition, self.options.iterations, self.options.decay)
