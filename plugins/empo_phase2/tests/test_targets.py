"""The batched targets are those of the plain reference, at a cost that hardly depends on sizes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from types import FrameType
from typing import Any

import pytest
import torch
from batches import EVERYTHING, Form, Made, SmallNet, made
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.types import Quantity
from empo_phase2.params import Theory
from empo_phase2.reference import PlainTargets
from empo_phase2.targets import BatchTargets, Setting

THEORY = Theory(zeta=2.0, xi=1.5, eta=1.1)
SETTING = Setting(gamma_h=0.9, gamma_r=0.8, beta_r=3.0)

MIXES: list[tuple[Quantity, ...]] = [
    tuple(q for q in EVERYTHING if q in ("v_h_e", *some))
    for size in range(1, 5)
    for some in itertools.combinations(("x_h", "u_r", "q_r", "v_r"), size)
    if {"q_r", "v_r"} & set(some)
]


def assert_same(found: BatchTargets, plain: PlainTargets) -> None:
    """Equal wherever an error counts."""
    for field in fields(PlainTargets):
        name = field.name
        batched, expected = getattr(found, name), getattr(plain, name)
        if batched is None:
            continue
        if name in ("q_r", "v_h_e"):
            counts = getattr(plain, f"{name}_weight") > 0
            batched, expected = batched[counts], expected[counts]
        torch.testing.assert_close(
            batched.double(), expected, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


def forms() -> st.SearchStrategy[Form]:
    return st.builds(
        Form,
        transitions=st.integers(1, 4),
        humans=st.integers(1, 3),
        robots=st.integers(1, 2),
        layouts=st.integers(1, 3),
        goals=st.integers(1, 3),
        states=st.integers(3, 12),
        most_successors=st.integers(1, 3),
        horizon=st.sampled_from([1, 2, 4, None]),
        expectation=st.sampled_from(["all", "sampled", "free"]),
    )


@pytest.mark.parametrize("learned", MIXES, ids="-".join)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), form=forms(), theory=st.builds(
    Theory,
    zeta=st.sampled_from([1.0, 2.0]),
    xi=st.sampled_from([1.0, 1.5]),
    eta=st.sampled_from([1.0, 1.1]),
    x_agg=st.sampled_from(["weighted", "sum"]),
    u_agg=st.sampled_from(["mean", "sum"]),
    x_h_floor=st.sampled_from([1e-4, 0.6]),
    terminal_value=st.sampled_from([-1e-10, -0.5]),
), beta_r=st.sampled_from([0.0, 3.0, 40.0]))  # fmt: skip
def test_targets_are_those_of_the_reference(
    learned: tuple[Quantity, ...], seed: int, form: Form, theory: Theory, beta_r: float
) -> None:
    if form.expectation == "free" and "q_r" not in learned:
        form = replace(form, expectation="sampled")  # Without a model nobody can look ahead.
    if "q_r" not in learned:
        form = replace(form, fewest_successors=1)  # Else looking ahead finds a Q_r of 0.
    problem = made(seed, form)
    networks, setting = problem.networks(learned), replace(SETTING, beta_r=beta_r)
    found = problem.batched(networks, theory, setting)
    plain = problem.plain(networks, theory, setting).compute(problem.batch, problem.states.at)
    assert_same(found, plain)
