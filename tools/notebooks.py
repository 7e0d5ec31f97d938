"""Runs the notebooks of examples/notebooks as Jupyter does, and writes what they showed into them.

`python tools/notebooks.py [NAME ...]` writes the outputs anew; `make notebooks` does it for all. They are kept because
a notebook is mostly read where nobody runs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
PATIENCE_S = 900
_NUMBER = re.compile(r"[+−-]?\d[\d,.]*( (?:kB|MB|GB|B|ms|s|min|h)\b)?|─+|\s+|<[^>]+>")


def run_notebook(path: Path, folder: Path) -> dict[str, Any]:
    """The notebook as it is after all its cells have run in this folder; the first error of a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["JUPYTER_RUNTIME_DIR"] = os.environ["IPYTHONDIR"] = str(folder / ".jupyter")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # when each cell was run
    made: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return made


def outputs(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell with code shows, in words: numbers, spaces and marks of the layout are left out."""
    return [
        [_NUMBER.sub(" ", text).strip() for shown in cell["outputs"] for text in texts(shown)]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def texts(shown: dict[str, Any]) -> list[str]:
    """The texts of an output: what was printed, or each form in which a value is shown."""
    if "text" in shown:
        return ["".join(shown["text"])]
    return ["".join(form) for _, form in sorted(shown.get("data", {}).items())]


def main(names: list[str]) -> int:
    for path in [FOLDER / name for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            made = run_notebook(path, Path(folder))
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
