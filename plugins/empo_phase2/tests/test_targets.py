"""The batched targets are those of the plain reference, at a cost that hardly depends on sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from types import FrameType
from typing import Any

import pytest
import torch
from batches import EVERYTHING, MIXES, SETTING, THEORY, WORDS, Form, assert_same, made
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_targets import PlainTargets

from empo_core.types import Quantity
from empo_phase2 import quantities
from empo_phase2.params import Phase2Theory


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
@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), form=forms(), theory=st.builds(
    Phase2Theory,
    zeta=st.sampled_from([1.0, 2.0]),
    xi=st.sampled_from([1.0, 1.5]),
    eta=st.sampled_from([1.0, 1.1]),
    x_agg=st.sampled_from(["weighted", "sum"]),
    u_agg=st.sampled_from(["mean", "sum"]),
    x_h_floor=st.sampled_from([1e-4, 0.6]),
    terminal_value=st.sampled_from([-1e-10, -0.5]),
), beta_r=st.sampled_from([0.0, 3.0, 40.0]))  # fmt: skip
def test_targets_are_those_of_the_reference(
    learned: tuple[Quantity, ...], seed: int, form: Form, theory: Phase2Theory, beta_r: float,
) -> None:  # fmt: skip
    if "q_r" not in learned:
        form = replace(form, expectation="all")  # Without all successors there is no looking ahead.
    if "q_r" not in learned or form.expectation == "all":
        form = replace(form, fewest_successors=1)  # Else looking ahead finds a Q_r of 0.
    problem = made(seed, form)
    networks, setting = problem.networks(learned), replace(SETTING, beta_r=beta_r)
    found = problem.batched(networks, theory, setting)
    plain = problem.plain(networks, theory, setting).compute(
        problem.batch, problem.states.at, problem.uniform.tolist()
    )
    assert_same(found, plain)


@pytest.mark.parametrize("expectation", ["all", "sampled", "free"])
def test_asking_together_is_asking_one_by_one(expectation: str) -> None:
    problem = made(5, Form(expectation=expectation))
    plain = problem.plain(problem.networks(), THEORY, SETTING)
    alone = plain.compute(problem.batch, problem.states.at, problem.uniform.tolist())
    together = plain.compute(
        problem.batch, problem.states.at, problem.uniform.tolist(), together=True
    )
    for field in fields(PlainTargets):
        torch.testing.assert_close(getattr(together, field.name), getattr(alone, field.name))


@pytest.mark.parametrize("learned", MIXES, ids="-".join)
def test_every_network_is_asked_once_for_a_block(learned: tuple[Quantity, ...]) -> None:
    problem = made(1, Form(transitions=6, fewest_successors=1))
    networks = problem.networks(learned)
    problem.batched(networks, THEORY, SETTING)
    assert {quantity: net.calls for quantity, net in networks.items()} == dict.fromkeys(learned, 1)


@pytest.mark.parametrize("learned", [("v_h_e", "q_r"), ("v_h_e", "v_r"), EVERYTHING], ids="-".join)
def test_blocks_change_no_target_and_bound_the_states_that_are_valued_at_a_time(
    learned: tuple[Quantity, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = made(4, Form(transitions=30, states=40, fewest_successors=1))
    networks = problem.networks(learned)
    sizes: list[int] = []
    for network in networks.values():
        network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0].states)))
    whole = problem.batched(networks, THEORY, SETTING)
    assert set(sizes) == {whole.distinct}
    sizes.clear()
    monkeypatch.setattr(quantities, "PART_NUMBERS", 7 * (WORDS + 4 * quantities.QUERY_NUMBERS))
    blocks = problem.batched(networks, THEORY, SETTING)
    assert max(sizes) == 7
    assert sum(sizes) == whole.distinct * len(learned)
    for name in ("q_r", "pi_r", "v_h_e", "x_h", "u_r", "v_r"):
        torch.testing.assert_close(getattr(blocks, name), getattr(whole, name))


def test_every_situation_is_asked_about_once() -> None:
    problem = made(2, Form(transitions=30, states=5))
    found = problem.batched(problem.networks(), THEORY, SETTING)
    batch, pairs = problem.batch, problem.spec.num_joint_actions
    counts = batch.offsets.diff().view(len(batch), pairs).sum(1)
    left = batch.steps_left.repeat_interleave(counts) - 1
    situations = set(zip(batch.successor.tolist(), left.tolist(), strict=True))
    situations |= set(zip(batch.state.tolist(), batch.steps_left.tolist(), strict=True))
    assert found.distinct == len(situations) < found.items == len(batch.successor)


def effort(compute: Callable[[], Any]) -> dict[str, int]:
    """Counts of executed Python lines, Python calls and C calls of a computation."""
    counts = {"line": 0, "call": 0, "c_call": 0}

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        counts["line"] += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> None:
        if event in counts:
            counts[event] += 1

    compute()  # What only happens the first time is not counted.
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        compute()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return counts


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("expectation", ["all", "sampled", "free"])
@pytest.mark.parametrize("learned", [("v_h_e", "q_r"), EVERYTHING], ids="-".join)
def test_python_runs_as_many_lines_for_a_large_batch_as_for_a_small_one(
    learned: tuple[Quantity, ...], expectation: str
) -> None:
    small = Form(transitions=2, humans=2, goals=2, states=6, expectation=expectation)
    large = Form(
        transitions=50, humans=3, robots=2, layouts=3, goals=7, states=90, most_successors=9,
        fewest_successors=4, expectation=expectation,
    )  # fmt: skip
    efforts = []
    for form in (small, large):
        problem = made(0, form)
        networks = problem.networks(learned)
        efforts.append(effort(lambda p=problem, n=networks: p.batched(n, THEORY, SETTING)))
    few, many = efforts
    # Preparing a computation looks at every agent; nothing else may depend on any size.
    agents = 60 * 2
    assert few["line"] > 0
    assert all(many[what] <= few[what] + agents for what in few), (few, many)


def test_the_reference_would_fail_that_test() -> None:
    problem = made(0, Form(transitions=2))
    plain = problem.plain(problem.networks(), THEORY, SETTING)
    larger = made(0, Form(transitions=8))
    plain_larger = larger.plain(larger.networks(), THEORY, SETTING)
    few = effort(
        lambda: plain.compute(
            problem.batch, problem.states.at, problem.uniform.tolist(), together=True
        )
    )
    many = effort(
        lambda: plain_larger.compute(
            larger.batch, larger.states.at, larger.uniform.tolist(), together=True
        )
    )
    assert many["line"] > 2 * few["line"]
