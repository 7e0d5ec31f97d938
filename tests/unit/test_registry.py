"""Things by name: found in the package and in plug-ins, each name once."""

from __future__ import annotations

import sys
import threading
import time
import types
from importlib.metadata import EntryPoint

import pytest

from veracausa import registry as registry_module
from veracausa.errors import InputError
from veracausa.registry import Options, Registry, did_you_mean


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty package of modules, and what its modules register with."""
    folder = tmp_path / "lampyris"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from veracausa.registry import Registry\nthings = Registry('thing', 'lampyris')\n"
    )
    (folder / "first.py").write_text(
        "from lampyris import things\n\n@things.register('first')\ndef first():\n    return 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "lampyris"]:
        del sys.modules[name]


def plug_in(monkeypatch, module_name: str, **functions) -> None:
    """Install a plug-in of the group `lampyris`."""
    module = types.ModuleType(module_name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module_name, module)
    entry = EntryPoint("firefly", f"{module_name}:load_me", "lampyris")
    monkeypatch.setattr(
        registry_module, "entry_points", lambda group: [entry] if group == "lampyris" else [], raising=True
    )


def test_the_modules_of_the_package_are_found_at_the_first_question(package):
    from lampyris import things

    assert "lampyris.first" not in sys.modules
    assert things.names() == ["first"]
    assert things.get("first")() == 1
    assert things.options("first") is Options


def test_two_things_of_one_name_are_refused():
    things = Registry("thing", "nowhere")

    @things.register("a")
    def first():
        pass

    things.register("a")(first)  # a module imported twice registers the same thing again
    with pytest.raises(ValueError, match="two things are named 'a'"):
        things.register("a")(lambda: None)


def test_an_unknown_name_gets_a_suggestion(package):
    from lampyris import things

    with pytest.raises(InputError, match=r"no thing is named 'frist'; did you mean 'first'\?"):
        things.get("frist")
    with pytest.raises(InputError, match=r"no thing is named 'xyz' \(there are: first\)"):
        things.options("xyz")


def test_a_plug_in_registers_by_being_loaded(package, monkeypatch):
    from lampyris import things

    class Glow(Options):
        lumen: int = 3

    # Registered when the entry point is resolved, as a module of a plug-in would at its import.
    class Module(types.ModuleType):
        def __getattr__(self, name):
            if name != "load_me":
                raise AttributeError(name)
            return things.register("firefly", Glow)(lambda: "glow")

    monkeypatch.setitem(sys.modules, "plugged", Module("plugged"))
    entry = EntryPoint("firefly", "plugged:load_me", "lampyris")
    monkeypatch.setattr(registry_module, "entry_points", lambda group: [entry] if group == "lampyris" else [])
    assert things.names() == ["firefly", "first"]
    assert things.get("firefly")() == "glow"
    assert things.options("firefly")(name="firefly").lumen == 3


def test_a_broken_plug_in_is_named(package, monkeypatch):
    from lampyris import things

    plug_in(monkeypatch, "plugged")  # has no load_me
    with pytest.raises(InputError, match=r"plug-in 'firefly' \(plugged:load_me\) cannot be loaded"):
        things.names()


def test_a_plug_in_cannot_take_a_name_that_is_there(package, monkeypatch):
    from lampyris import things

    class Module(types.ModuleType):
        @property
        def load_me(self):
            return things.register("first")(lambda: "glow")

    monkeypatch.setitem(sys.modules, "plugged", Module("plugged"))
    entry = EntryPoint("firefly", "plugged:load_me", "lampyris")
    monkeypatch.setattr(registry_module, "entry_points", lambda group: [entry])
    with pytest.raises(InputError, match="two things are named 'first'"):
        things.names()


def test_threads_that_all_ask_first_see_everything(package):
    """The module is slow to import: who asks meanwhile must wait for it, not see half a registry."""
    slow = "import time\nfrom lampyris import things\ntime.sleep(0.1)\nthings.register('second')(print)\n"
    (package / "second.py").write_text(slow)
    from lampyris import things

    seen, failures = [], []
    barrier = threading.Barrier(8)

    def ask(number: int) -> None:
        barrier.wait()
        time.sleep(number * 0.01)
        try:
            seen.append(things.names() if number % 2 else [things.get("first").__name__, things.get("second").__name__])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen.count(["first", "second"]) == 4
    assert seen.count(["first", "print"]) == 4


def test_did_you_mean_lists_what_there_is_when_nothing_is_near():
    assert did_you_mean("alpah", ["beta", "alpha"]) == "; did you mean 'alpha'?"
    assert did_you_mean("ID", ["id", "income"]) == "; did you mean 'id'?", "the case alone is another"
    assert did_you_mean("x", ["beta", "alpha"]) == " (there are: alpha, beta)"
