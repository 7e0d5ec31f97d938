"""Whether the lock files still fit pyproject.toml: every range is met by its pin, every pin has a hash. No network.

`--split FILE` first makes the two lock files of what uv wrote.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCKS = {
    "requirements.lock": """\
# Every package that veracausa installs with the extras he, federation, scale, estimators, onnx, tensorboard, mlflow,
# docs and dev, but PyTorch, by version and hash.
# `tools/lock` writes it, `make lint` checks it against pyproject.toml. SECURITY.md says how to install from it.
""",
    "requirements-torch.lock": """\
# PyTorch's public build and the libraries that come with it on Linux, by version and hash.
# A build of another sort (such as 2.13.0+cpu) has other hashes: install that one in place of this file.
""",
}
EXTRAS = ("he", "federation", "scale", "estimators", "onnx", "tensorboard", "mlflow", "docs", "dev")
_WITH_TORCH = re.compile(r"(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_PLACE = re.compile(r"://|--index-url|--extra-index-url|--find-links|--trusted-host", re.IGNORECASE)


def read_pins(text: str, file: str) -> tuple[dict[str, list[Requirement]], list[str]]:
    """The pins of a lock file by name, and what is wrong with it."""
    pins: dict[str, list[Requirement]] = {}
    wrong = [
        f"{file}: names a place to get packages from: {line.strip()}"
        for line in text.splitlines()
        if _PLACE.search(line)
    ]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for block in re.split(r"\n(?=\S)", "\n".join(lines)):
        said = re.split(r"\s--hash", block)[0].replace("\\", " ").strip()
        if not said or said.startswith("-"):
            continue
        try:
            pin = Requirement(said)
        except InvalidRequirement:
            wrong.append(f"{file}: {said!r} is not a pin")
            continue
        exact = [one for one in pin.specifier if one.operator == "==" and "*" not in one.version]
        if len(pin.specifier) != 1 or not exact:
            wrong.append(f"{file}: {pin.name} is not pinned to one version")
        if not _HASH.search(block):
            wrong.append(f"{file}: {pin.name} has no hash")
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins, wrong


def asked_for(project: dict[str, object]) -> list[Requirement]:
    """What pyproject.toml asks for, with the extras that are locked."""
    table = project["project"]
    assert isinstance(table, dict)
    texts = [*table["dependencies"], *(text for extra in EXTRAS for text in table["optional-dependencies"][extra])]
    requirements = [Requirement(text) for text in texts]
    return [one for one in requirements if canonicalize_name(one.name) != canonicalize_name(table["name"])]


def problems(folder: Path) -> list[str]:
    """What is wrong with a clone's lock files; none: they fit."""
    wrong: list[str] = []
    pins: dict[str, list[Requirement]] = {}
    for file in LOCKS:
        path = folder / file
        if not path.is_file():
            wrong.append(f"{file}: is missing; run tools/lock")
            continue
        found, complaints = read_pins(path.read_text(encoding="utf-8"), file)
        wrong += complaints
        for name, several in found.items():
            pins.setdefault(name, []).extend(several)
    with (folder / "pyproject.toml").open("rb") as file_:
        wanted = asked_for(tomllib.load(file_))
    for requirement in wanted:
        locked = pins.get(canonicalize_name(requirement.name), [])
        if not locked:
            wrong.append(f"{requirement}: no lock file has it; run tools/lock")
        for pin in locked:
            version = Version(next(iter(pin.specifier)).version)
            if not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement}: the lock has {version}; run tools/lock")
    return wrong


def split(text: str) -> dict[str, str]:
    """The two lock files of one that uv wrote."""
    blocks = re.split(r"\n(?=\S)", text.strip())
    parts: dict[str, list[str]] = {file: [] for file in LOCKS}
    for block in blocks:
        parts["requirements-torch.lock" if _WITH_TORCH.match(block) else "requirements.lock"].append(block)
    return {file: LOCKS[file] + "\n".join(parts[file]) + "\n" for file in LOCKS}


def main(arguments: list[str]) -> int:
    folder = Path(__file__).parents[1]
    if arguments[:1] == ["--split"]:
        for file, text in split(Path(arguments[1]).read_text(encoding="utf-8")).items():
            (folder / file).write_text(text, encoding="utf-8")
        return 0
    wrong = problems(folder)
    for line in wrong:
        print(f"lock: {line}", file=sys.stderr)
    if not wrong:
        print("lock: every dependency is met by a pin, and every pin has a hash")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
