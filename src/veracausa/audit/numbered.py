"""Numbers the attacks of an audit as they begin, so that whoever watches knows how many are left."""

from __future__ import annotations

from veracausa.events import Event, Observer

_WHICH = ("baseline", "attack", "party", "moment", "step")


class Numbered:
    """An observer in front of another: of each attack that begins it says that it is `number` of `of`.

    Events of one attack may come again and again; one on the trained model may leave its `moment` out.
    """

    def __init__(self, observer: Observer, of: int) -> None:
        self._observer, self._of = observer, of
        self._number = 0
        self._last: tuple[object, ...] = ()

    def __call__(self, event: Event) -> None:
        if event["event"] == "attack":
            which = tuple({"moment": 1.0, **event}.get(key) for key in _WHICH)
            if which != self._last:
                self._number, self._last = min(self._of, self._number + 1), which
            event = {**event, "number": self._number, "of": self._of}
        self._observer(event)


def tell_share(observer: Observer, event: Event, share: float) -> None:
    """The event again, with how much is done."""
    observer({**event, "share": share})
