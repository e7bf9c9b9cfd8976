"""Folders that make a Python process report other software than it has."""

from __future__ import annotations

from pathlib import Path

PYTHON = "Python"


def other_software(folder: Path, versions: dict[str, str]) -> str:
    """A folder for PYTHONPATH with these versions of Python or of distributions."""
    for name, version in versions.items():
        if name == PYTHON:
            lines = f"import platform\nplatform.python_version = lambda: {version!r}\n"
            (folder / "sitecustomize.py").write_text(lines)
            continue
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(lines)
        if name.startswith("empo-") and name != "empo-core":
            (info / "entry_points.txt").write_text(f"[empo]\n{name} = some_module\n")
    return str(folder)
