"""Shapes of tensors are checked in every module while tests run; see ``conftest.py``."""

from __future__ import annotations

import ast
import re
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from empo_testing import shape_checks
from empo_theory import equations

ROOT = Path(__file__).parents[3]
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
    # Checked anew, since other tests may have called it so often that few calls are looked at.
    robot_policy = shape_checks.check_new_shapes(
        equations.robot_policy.__wrapped__,  # type: ignore[attr-defined]
        typechecker=shape_checks._check_types,
    )
    q_r = -torch.ones(2, 3)
    robot_policy(q_r, 1, torch.ones(2, 3, dtype=torch.bool))  # Whole numbers are floats.
    with pytest.raises(TypeCheckError):
        robot_policy(q_r, 1.0, torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(TypeCheckError):
        robot_policy(q_r, 1.0, torch.ones(2, 3))
    robot_policy(q_r, 1.0, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(TypeCheckError):  # What a check allowed before says nothing of others.
        robot_policy(q_r, 1.0, torch.ones(2, 4, dtype=torch.bool))


VECTOR = torch.zeros(2)
MATRIX = torch.zeros(2, 2)


def checked(parameter: Any, result: Any, typechecker: Callable[..., Any] = beartype) -> Any:
    """The identity, with annotations that are checked."""

    def identity(value: Any) -> Any:
        return value

    identity.__annotations__ = {"value": parameter, "return": result}
    return shape_checks.check_new_shapes(identity, typechecker=typechecker)


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (Float[np.ndarray, " row"], np.zeros(2), np.zeros((2, 2))),
        (Mapping[str, Float[Tensor, " row"]], UserDict(a=VECTOR), UserDict(a=MATRIX)),
        (dict[str, Float[Tensor, " row"]], {"a": VECTOR}, {"a": MATRIX}),
        (list[Float[Tensor, " row"]], [VECTOR], [MATRIX]),
        (Set[Float[Tensor, " row"]], {VECTOR}, {MATRIX}),
    ],
)
def test_what_passed_once_says_nothing_of_other_shapes(hint: Any, right: Any, wrong: Any) -> None:
    for function in (checked(hint, Any), checked(Any, hint), checked(hint, hint)):
        for _ in range(3):
            assert function(right) is right
            with pytest.raises(TypeCheckError):
                function(wrong)


def test_arrays_in_files_are_told_apart_by_their_shapes(tmp_path: Path) -> None:
    function = checked(Float[np.ndarray, " row"], Any)
    shapes: list[tuple[int, ...]] = [(2,), (2, 2)]
    right, wrong = (np.memmap(tmp_path / "array", float, "w+", shape=shape) for shape in shapes)
    function(right)
    with pytest.raises(TypeCheckError):
        function(wrong)


def test_a_result_of_another_shape_is_noticed_for_arguments_that_passed() -> None:
    results = iter([VECTOR, VECTOR, MATRIX, VECTOR])

    def draw(size: int) -> Any:
        return next(results)

    draw.__annotations__["return"] = Float[Tensor, " row"]
    function = shape_checks.check_new_shapes(draw, typechecker=beartype)
    for _ in range(2):
        assert function(2) is VECTOR
    with pytest.raises(TypeCheckError):
        function(2)
    assert function(2) is VECTOR


def test_a_call_that_passed_is_not_checked_again() -> None:
    looks = []

    def typechecker(function: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any, **kwargs: Any) -> Any:
            looks.append(args)
            return function(*args, **kwargs)

        return look

    function = checked(Float[Tensor, "..."], Any, typechecker)
    function(VECTOR)
    seen = len(looks)
    function(torch.ones(2))
    assert seen
    assert len(looks) == seen
    function(MATRIX)
    assert len(looks) > seen


def test_after_a_hundred_calls_with_nothing_new_some_are_looked_at() -> None:
    function = checked(Float[Tensor, " row"], Any)
    for _ in range(shape_checks.FAMILIAR + 1):
        function(VECTOR)
    looks = 0
    for _ in range(shape_checks.SELDOM):
        try:
            function(MATRIX)
        except TypeCheckError:
            looks += 1
            break
    assert looks == 1


def test_every_module_that_says_shapes_is_checked() -> None:
    names = modules()
    assert "empo_theory.equations" in names
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
