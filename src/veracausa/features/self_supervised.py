"""Networks that learn from a party's own pictures by comparing two views of the same rows: all but the loss.

An objective is one file of `methods/` with its `loss`. All of them train in the loop of `network_training`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features.base import FeatureMap, FitContext, OwnRows
from veracausa.features.encoder import (
    ROWS,
    Reduction,
    as_array,
    build_encoder,
    build_projector,
    laid_out,
    load_weights,
    outputs,
    precision_of,
)
from veracausa.features.fine_tuning import FineTuningOptions, class_scores, fine_tuned
from veracausa.features.network_training import FitProgress, as_pixels, train
from veracausa.features.views import ViewOptions, generator_on, view
from veracausa.models import ModelOptions, models
from veracausa.models.runner import to_device
from veracausa.registry import Options


class SelfSupervisedOptions(Options):
    """What every objective takes."""

    epochs: int = Field(100, ge=1)
    batch_size: int = Field(256, ge=4)
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(1e-5, ge=0)
    warmup: float = Field(0.05, ge=0, lt=1)
    """The share of all steps in which the learning rate rises; then it falls as a cosine."""
    projector: tuple[int, ...] = Field((512, 128), min_length=1)
    """Widths of the layers behind the features that the loss is taken of; they are dropped after training."""
    views: ViewOptions = ViewOptions()
    width: int | None = Field(None, ge=1)
    """So many principal components of the network's vector, at most. None: the vector itself."""
    whitening: float = Field(0.5, ge=0, le=1)
    """With `width`: 0 keeps the components' spreads, 1 makes all of them equal."""
    fine_tuning: FineTuningOptions = FineTuningOptions()
    """What is done with labels, where the active party gives any."""


class SelfSupervised(FeatureMap):
    """A network that answers two views of a picture alike; the vector before its projector is the features.

    With labels it is fine-tuned afterwards: see `fine_tuning`.
    """

    pictures: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    options: SelfSupervisedOptions

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.encoder: nn.Module | None = None
        self.classifier: nn.Sequential | None = None
        """Behind a fine-tuned encoder whose features are class scores."""
        self.reduction: Reduction | None = None
        self.device = torch.device("cpu")
        self.shape: tuple[int, ...] = ()
        self.model: ModelOptions | None = None
        self._width = 0

    @abstractmethod
    def loss(self, first: Tensor, second: Tensor, rng: torch.Generator) -> Tensor:
        """The loss of two (n, width) float32 projections of the same rows; `rng` is on their device."""

    def prepare(self, rows: OwnRows, context: FitContext, fit: FitProgress) -> None:
        """What an objective makes of the rows before training starts."""

    def two_views(self, x: Tensor, positions: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Two views of the rows `x`, which stand at `positions` of the party's rows."""
        return view(x, self.options.views, rng), view(x, self.options.views, rng)

    def fit(self, rows: OwnRows, context: FitContext) -> Array | None:
        self.check(rows)
        options, labels = self.options, context.labels
        if len(rows) < 4:
            raise InputError(f"features: {len(rows)} rows are too few to train a network on")
        self.shape, self.device, self.model = tuple(rows.features.shape[1:]), context.device, context.model
        phases = {"pictures": float(options.epochs)}
        if labels is not None:
            phases |= {name: float(options.fine_tuning.epochs) for name in options.fine_tuning.phases()}
        settings = f"{options.model_dump_json()} {len(rows)} {self.shape} {None if labels is None else labels.classes}"
        fit = FitProgress(context, phases, settings)
        self.encoder, self._width = build_encoder(context.model, self.shape, seeding.generator(fit.seed, "encoder"))
        self._place(context)
        pixels = rows.features.to(context.device)
        if "pictures" not in fit.done:
            self._pretrain(rows, pixels, context, fit)
        load_weights(self.encoder, fit.done["pictures"], "features")
        found: Tensor | None = None
        if labels is not None:
            found, self.classifier = fine_tuned(
                self.encoder, self._width, pixels, labels, options.fine_tuning, fit, context
            )
        self.encoder.eval()
        if found is None:
            found = torch.cat(
                list(outputs(self.encoder, rows.blocks(ROWS), self.device, lambda: context.progress(1.0)))
            )
        if options.width is not None and options.width < found.shape[1]:
            rng = seeding.generator(fit.seed, "reduction")
            self.reduction = Reduction.of(found, options.width, options.whitening, rng)
            found = self.reduction(found)
        context.progress(1.0)
        return None if labels is None else as_array(found, f"features {self.options.name!r}")

    def _pretrain(self, rows: OwnRows, pixels: Tensor, context: FitContext, fit: FitProgress) -> None:
        assert self.encoder is not None
        self.prepare(rows, context, fit)
        projector = build_projector(self._width, self.options.projector, seeding.generator(fit.seed, "projector"))
        network = nn.ModuleDict({"encoder": self.encoder, "projector": projector.to(context.device)})
        precision = precision_of(context.runtime, context.device)

        def loss(positions: Tensor, step: int) -> Tensor:
            rng = generator_on(context.device, fit.seed, "views", step)
            x = as_pixels(pixels[positions.to(pixels.device)])
            both = torch.cat(self.two_views(x, positions, rng))
            with precision():
                projected = projector(self.encoder(laid_out(both, context.runtime)))  # type: ignore[misc]
            first, second = projected.float().chunk(2)
            return self.loss(first, second, rng)

        train(network, len(rows), self.options, loss, fit, "pictures", self.options.epochs)
        # A copy: fine-tuning changes the encoder in place.
        fit.finish("pictures", {name: value.clone() for name, value in self.encoder.state_dict().items()})

    def _place(self, context: FitContext) -> None:
        assert self.encoder is not None
        if context.runtime is None:
            self.encoder.to(context.device)
        else:
            to_device(self.encoder, context.runtime, context.device)

    def _network(self) -> nn.Module:
        if self.encoder is None:
            raise InputError(f"features {self.options.name!r}: the map was not fitted yet")
        return self.encoder if self.classifier is None else nn.Sequential(self.encoder, self.classifier)

    def map(self, rows: Tensor) -> Array:
        network = self._network()
        if tuple(rows.shape[1:]) != self.shape:
            raise InputError(f"features {self.options.name!r}: rows of shape {tuple(rows.shape[1:])}, not {self.shape}")
        blocks = torch.split(rows, ROWS)
        found = torch.cat([torch.zeros(0, self._given()), *outputs(network, iter(blocks), self.device)])
        return as_array(found if self.reduction is None else self.reduction(found), f"features {self.options.name!r}")

    def _given(self) -> int:
        """How many numbers the network gives."""
        if self.classifier is None:
            return self._width
        last = self.classifier[0]
        assert isinstance(last, nn.Linear)
        return last.out_features

    @property
    def width(self) -> int:
        return self._given() if self.reduction is None else self.reduction.width

    def state(self) -> dict[str, Any]:
        network = self._network()
        assert self.encoder is not None
        return {
            "shape": list(self.shape),
            "model": None if self.model is None else self.model.model_dump(mode="json"),
            "encoder": dict(self.encoder.state_dict()),
            "classes": 0 if network is self.encoder else self._given(),
            "classifier": {} if self.classifier is None else dict(self.classifier.state_dict()),
            "reduction": None if self.reduction is None else self.reduction.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Become the map of `state`. Set `model` to the job's before, where it is a factory of the user's own."""
        what = f"features {self.options.name!r}"
        try:
            shape, given = tuple(int(size) for size in state["shape"]), dict(state["model"])
            classes, kept = int(state["classes"]), state["reduction"]
            weights, head = state["encoder"], state["classifier"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{what}: the saved map cannot be read ({error}); put an intact copy there") from None
        if self.model is None:
            self.model = _model_of(given, what)
        elif self.model.model_dump(mode="json") != given:
            raise InputError(
                f"{what}: the saved map is of model {given.get('name')!r} with other settings than the job's"
            )
        self.shape = shape
        self.encoder, self._width = build_encoder(self.model, shape, torch.Generator().manual_seed(0))
        load_weights(self.encoder, weights, what)
        self.encoder.eval().to(self.device)
        self.classifier = None
        if classes:
            self.classifier = class_scores(self._width, classes)
            load_weights(self.classifier, head, what)
            self.classifier.eval().to(self.device)
        self.reduction = None if kept is None else Reduction.from_state(kept)
        if self.reduction is not None and len(self.reduction.mean) != self._given():
            raise InputError(
                f"{what}: the saved reduction is of {len(self.reduction.mean)} features, not {self._given()}"
            )


def _model_of(given: Mapping[str, Any], what: str) -> ModelOptions:
    """The settings of the network that a map was saved with. A user's own factory stays refused until it is allowed."""
    try:
        chosen = models.options(str(given["name"])).model_validate(given)
    except (KeyError, ValidationError) as error:
        raise InputError(f"{what}: the saved map names no model ({error}); put an intact copy there") from None
    assert isinstance(chosen, ModelOptions)
    return chosen
