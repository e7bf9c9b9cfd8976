"""Shapes of tensors are checked in every module while tests run; see ``conftest.py``."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Mapping, Set
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from empo_testing import shape_checks
from empo_theory import equations

ROOT = Path(__file__).parents[3]
SHAPES = r"\b(Float|Int|Bool|UInt8|Shaped|Num|Integer|Inexact|Real)\["
WITHOUT_TEXT = re.compile(SHAPES + r"[^\[\],]+,\s*(?!\s|[\"'])")
"""The type of an array without a text, or a raw or formatted one, as its shape."""
LOADER = "_JaxtypingLoader"
"""The loader that wraps functions in checks."""


@cache
def sources() -> dict[str, str]:
    """Texts of all modules of this repository that have a shape, by their names."""
    texts = {}
    for folder in (ROOT, *sorted(ROOT.glob("plugins/*/src"))):
        for path in sorted(folder.glob("empo_core/**/*.py" if folder == ROOT else "**/*.py")):
            text = path.read_text(encoding="utf-8")
            if re.search(SHAPES, text):
                name = ".".join(path.relative_to(folder).with_suffix("").parts)
                texts[name.removesuffix(".__init__")] = text
    return texts


def test_the_robot_policy_refuses_masks_of_another_shape() -> None:
    # Checked anew, since other tests may have called it so often that few calls are looked at.
    robot_policy = shape_checks.check_new_shapes(
        equations.robot_policy.__wrapped__  # type: ignore[attr-defined]
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


def checked(parameter: Any, result: Any) -> Any:
    """The identity, with annotations that are checked."""

    def identity(value: Any) -> Any:
        return value

    identity.__annotations__ = {"value": parameter, "return": result}
    return shape_checks.check_new_shapes(identity)


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
    function = shape_checks.check_new_shapes(draw)
    for _ in range(2):
        assert function(2) is VECTOR
    with pytest.raises(TypeCheckError):
        function(2)
    assert function(2) is VECTOR


def test_an_axis_is_as_long_in_the_result_as_in_the_arguments() -> None:
    def first(value: Any, size: Any) -> Any:
        return value[:size]

    first.__annotations__ = {"value": Float[Tensor, " row"], "return": Float[Tensor, " row"]}
    function = shape_checks.check_new_shapes(first)
    function(VECTOR, 2)
    with pytest.raises(TypeCheckError):
        function(VECTOR, 1)


def test_each_of_any_number_of_arguments_has_the_shape() -> None:
    def first(*parts: Any, **named: Any) -> Any:
        return [*parts, *named.values()][0]

    first.__annotations__ = {"parts": Float[Tensor, " row"], "named": Float[Tensor, " row"]}
    function = shape_checks.check_new_shapes(first)
    assert function(VECTOR, VECTOR, other=VECTOR) is VECTOR
    for call in (lambda: function(VECTOR, MATRIX), lambda: function(other=MATRIX)):
        with pytest.raises(TypeCheckError):
            call()


def test_an_axis_may_be_as_long_as_an_argument_says() -> None:
    def zeros(size: int) -> Any:
        return torch.zeros(abs(size))

    zeros.__annotations__["return"] = Float[Tensor, " {size}"]
    function = shape_checks.check_new_shapes(zeros)
    function(2)
    with pytest.raises(TypeCheckError):
        function(-2)


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
    names = [name for name in sources() if find_spec(name.split(".")[0])]
    assert "empo_theory.equations" in names
    specs = {name: find_spec(name) for name in names}
    unchecked = [
        name for name, spec in specs.items() if type(spec and spec.loader).__name__ != LOADER
    ]
    assert unchecked == []


def test_every_shape_is_text() -> None:
    """jaxtyping leaves a parameter unchecked, without a word, where the annotation is wrong."""
    assert WITHOUT_TEXT.search("x: Float[Tensor, row]")
    assert WITHOUT_TEXT.search("x: Int[np.ndarray | None, 3]")
    assert not WITHOUT_TEXT.search('x: Int[Tensor | None,\n    " row"]')
    wrong = {
        name: match.group() for name, text in sources().items()
        if (match := WITHOUT_TEXT.search(text))
    }  # fmt: skip
    assert wrong == {}
