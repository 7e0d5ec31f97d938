"""The map that suits the rows: splines for a table, with trees' scores beside them where labels are known.

For pictures it is SimCLR on a GPU, and patches on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows, RowColumn
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.models import ModelOptions


def suited(pixels: bool, device: str, labels: bool = False) -> str:
    """The name of the map for these rows on such a device; `labels`: there are some to learn from."""
    if not pixels:
        # Trees are kept by skops, an extra.
        return "scores" if labels and find_spec("skops") is not None else "splines"
    return "simclr" if device == "cuda" else "patches"


@feature_maps.register("auto")
class AutoMap(FeatureMap):
    """Picks a map by the rows and the device, with its usual settings, and is that map."""

    pictures: ClassVar[bool] = True
    tables: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._chosen: FeatureMap | None = None
        self.model: ModelOptions | None = None
        """The job's `[model]`, for a map with a network that is loaded."""

    @property
    def chosen(self) -> FeatureMap:
        """The map that was picked; there is none before `fit` or `load_state`."""
        if self._chosen is None:
            raise InputError("features: the map was not fitted yet")
        return self._chosen

    def _choose(self, name: str) -> FeatureMap:
        chosen = feature_maps.get(name)(feature_maps.options(name)(name=name))
        if hasattr(chosen, "model"):
            chosen.model = self.model
        self._chosen = chosen
        return chosen

    def fit(self, rows: OwnRows, context: FitContext) -> Array | None:
        name = suited(rows.pixels, context.device.type, context.labels is not None)
        return self._choose(name).fit(rows, context)

    def fit_blocks(
        self, blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], rows: int, context: FitContext
    ) -> None:
        first = next(blocks(), None)
        pixels = first is not None and first.ndim == 4
        self._choose(suited(pixels, context.device.type)).fit_blocks(blocks, columns, rows, context)

    def map(self, rows: Tensor) -> Array:
        return self.chosen.map(rows)

    @property
    def notes(self) -> list[str]:
        """What the picked map merged or left out."""
        return list(getattr(self.chosen, "notes", ()))

    @property
    def width(self) -> int:
        return self.chosen.width

    def state(self) -> dict[str, Any]:
        return {"chosen": self.chosen.options.name, "state": self.chosen.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        try:
            name, kept = str(state["chosen"]), state["state"]
        except (KeyError, TypeError) as error:
            raise InputError(f"the saved feature map cannot be read ({error}); put an intact copy there") from None
        if name == self.options.name:
            raise InputError("the saved feature map names itself; put an intact copy there")
        self._choose(name).load_state(kept)
