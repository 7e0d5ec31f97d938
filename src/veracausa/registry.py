"""Names for the things a job can choose: data sets, models, defenses. One file a thing, no central `if`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from veracausa.errors import InputError

T = TypeVar("T", bound=Callable[..., Any])


class Options(BaseModel):
    """What a job may say about one registered thing; every field is a setting, anything else is a typo."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    swept: ClassVar[tuple[str, ...]] = ()
    """The settings that trade privacy for use, the main one first: what a sweep moves."""
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """A handful of sensible values of each swept setting, from weak to strong."""

    name: str


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known word, else the list of what there is."""
    known = list(known)
    close = [one for one in known if one.casefold() == word.casefold()]
    close = close or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(sorted(known))})"


class Registry(Generic[T]):
    """Things of one kind by name, found in the modules of some packages and in plug-ins' entry points.

    `group` is the entry-point group of plug-ins, `packages` are searched for modules, and `old_groups` are the groups
    that plug-ins of earlier versions name.
    """

    def __init__(self, kind: str, group: str, *packages: str, old_groups: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.groups = (group, *old_groups)
        self.packages = packages or (group,)
        self._entries: dict[str, tuple[T, type[Options]]] = {}
        self._complete = False
        self._discovery = threading.RLock()

    def register(self, name: str, options: type[Options] = Options) -> Callable[[T], T]:
        def add(thing: T) -> T:
            if name in self._entries and self._entries[name][0] is not thing:
                raise ValueError(f"two {self.kind}s are named {name!r}")
            self._entries[name] = (thing, options)
            return thing

        return add

    def names(self) -> list[str]:
        self._discover()
        return sorted(self._entries)

    def canonical(self, name: str) -> str:
        """The registered spelling of `name`: earlier versions wrote some names with `-`."""
        self._find(name)
        return name if name in self._entries else name.replace("-", "_")

    def get(self, name: str) -> T:
        return self._find(name)[0]

    def options(self, name: str) -> type[Options]:
        """The pydantic model of the settings that `name` takes."""
        return self._find(name)[1]

    def plugins(self) -> list[EntryPoint]:
        """The entry points of plug-ins, found by the registry's group and by the groups of earlier versions."""
        return [plugin for group in self.groups for plugin in entry_points(group=group)]

    def _find(self, name: str) -> tuple[T, type[Options]]:
        name = name if name in self._entries else name.replace("-", "_")
        if name not in self._entries:
            self._discover()
        if name not in self._entries:
            raise InputError(f"no {self.kind} is named {name!r}{did_you_mean(name, self._entries)}")
        return self._entries[name]

    def _discover(self) -> None:
        with self._discovery:  # parties in threads may all ask first
            if self._complete:
                return
            for name in self.packages:
                package = importlib.import_module(name)
                for module in pkgutil.iter_modules(package.__path__, f"{name}."):
                    importlib.import_module(module.name)
            for plugin in self.plugins():
                try:
                    plugin.load()
                except Exception as error:  # a plug-in can fail in any way; the user must know which one it was
                    raise InputError(
                        f"plug-in {plugin.name!r} ({plugin.value}) cannot be loaded: {error}; mend or uninstall it"
                    ) from error
            self._complete = True


def profiles(folder: Path) -> list[str]:
    """The profiles that a folder holds: what a paper states, and what was measured to be worth its price."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def read_profile(folder: Path, name: str) -> dict[str, Any]:
    """The settings of a profile file."""
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))


def over_profile(given: Any, folder: Path, default: str, renamed: Mapping[str, str] | None = None) -> Any:
    """What was given, over the settings of the profile that it names; a validator's argument and answer.

    `renamed` has profiles' names of earlier versions, and what each is called now.
    """
    if not isinstance(given, dict):
        return given
    asked = given.get("profile", default)
    name = (renamed or {}).get(asked, asked) if isinstance(asked, str) else asked
    known = profiles(folder)
    if name not in known:
        raise ValueError(f"profile: no profile is named {asked!r}{did_you_mean(str(asked), known)}")
    return {**read_profile(folder, name), **given, **({"profile": name} if "profile" in given else {})}
