"""Run the notebooks in ``examples/notebooks`` and write their outputs into them.

Run ``python docs/build_notebooks.py``. The tests run them as well, and compare what they print.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples/notebooks").glob("*.ipynb"))
TIMES = re.compile(r"\d+\.\d+ s\b")


def executed(path: Path) -> NotebookNode:
    """A notebook with the outputs of its cells, in which all times are 0.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": path.parent}},
        record_timing=False,
        timeout=120,
    )
    client.execute()
    notebook.metadata = {"language_info": {"name": "python"}}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", output)
            data |= {
                kind: TIMES.sub("0.000 s", text)
                for kind, text in data.items()
                if kind in {"text/plain", "text/html", "text"}
            }
    return notebook


def main() -> None:
    """Write all of them."""
    for path in NOTEBOOKS:
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
