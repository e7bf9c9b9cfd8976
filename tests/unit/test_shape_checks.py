"""Shapes of tensors are checked in every module while tests run; see ``conftest.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from empo_core.equations import robot_policy

ROOT = Path(__file__).parents[2]
SHAPES = re.compile(r"\b(Float|Int|Bool|UInt8|Shaped|Num|Integer|Inexact|Real)\[")
LOADER = "_JaxtypingLoader"
"""The loader that wraps functions in checks."""


def says_shapes(path: Path) -> bool:
    """True if a signature or a field in a file is annotated with the shape of a tensor."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    annotations = [
        each
        for node in ast.walk(tree)
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if each is not None
    ]
    return any(SHAPES.search(ast.unparse(annotation)) for annotation in annotations)


def sources() -> Iterator[tuple[Path, Path]]:
    """All source files of this repository, each after the folder that it is imported from."""
    for source in (ROOT, *sorted(ROOT.glob("plugins/*/src"))):
        pattern = "empo_core/**/*.py" if source == ROOT else "**/*.py"
        for path in sorted(source.glob(pattern)):
            yield source, path


def modules() -> list[str]:
    """Names of the installed modules of this repository that say shapes of tensors."""
    found = []
    for source, path in sources():
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        if says_shapes(path) and find_spec(name.split(".")[0]):
            found.append(name.removesuffix(".__init__"))
    return found


def test_the_robot_policy_refuses_masks_of_another_shape() -> None:
    q_r = -torch.ones(2, 3)
    robot_policy(q_r, 1, torch.ones(2, 3, dtype=torch.bool))  # Whole numbers are floats.
    with pytest.raises(TypeCheckError):
        robot_policy(q_r, 1.0, torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(TypeCheckError):
        robot_policy(q_r, 1.0, torch.ones(2, 3))
    robot_policy(q_r, 1.0, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(TypeCheckError):  # What a check allowed before says nothing of others.
        robot_policy(q_r, 1.0, torch.ones(2, 4, dtype=torch.bool))


def test_every_module_that_says_shapes_is_checked() -> None:
    names = modules()
    assert "empo_core.equations" in names
    specs = {name: find_spec(name) for name in names}
    unchecked = [
        name for name, spec in specs.items() if type(spec and spec.loader).__name__ != LOADER
    ]
    assert unchecked == []


def test_every_shape_is_text() -> None:
    """jaxtyping leaves a parameter unchecked, without a word, where the annotation is wrong."""
    wrong = [
        f"{path}:{node.lineno}"
        for _, path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Subscript)
        and SHAPES.fullmatch(f"{ast.unparse(node.value)}[")
        and not isinstance(ast.literal_eval(node.slice.elts[1]), str)
    ]
    assert wrong == []
