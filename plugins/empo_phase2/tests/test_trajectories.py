"""Targets along observed paths are what a loop along each path finds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from batches import MIXES, SETTING, THEORY, Form, Made, assert_same, made
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.types import Quantity
from empo_phase2.trajectories import Trajectories, trajectories_from


def wandering(problem: Made, most: int, of: dict[str, bool]) -> Trajectories:
    """Random paths that stay in their world, end at terminal states and never run out of time."""
    states, batch = problem.states, problem.batch
    down = problem.spec.horizon is not None
    found, left, length = [], [], []
    for state, steps in zip(batch.state.tolist(), batch.steps_left.tolist(), strict=True):
        same = torch.nonzero(states.layout == states.layout[state])[:, 0]
        path: list[int] = []
        for _ in range(min(most, steps) if down else most):
            path.append(int(same[torch.randint(len(same), ())]))
            if states.terminal[path[-1]] or torch.rand(()) < 0.2:
                break
        times = [steps - (i + 1) * down for i in range(len(path))]
        length.append(len(path))
        found.append(path + path[-1:] * (most - len(path)))
        left.append(times + times[-1:] * (most - len(path)))
    return Trajectories(torch.tensor(found), torch.tensor(left), torch.tensor(length), **of)


@pytest.mark.parametrize(
    "of",
    [
        {"of_q_r": True, "of_v_h_e": False},
        {"of_q_r": False, "of_v_h_e": True},
        {"of_q_r": True, "of_v_h_e": True},
    ],
    ids=["q_r", "v_h_e", "both"],
)
@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    learned=st.sampled_from([mix for mix in MIXES if "q_r" in mix]),
    most=st.integers(1, 5),
    form=st.builds(
        Form,
        transitions=st.integers(1, 4),
        humans=st.integers(1, 2),
        layouts=st.integers(1, 2),
        fewest_successors=st.just(1),
        horizon=st.sampled_from([1, 4, None]),
        expectation=st.sampled_from(["all", "sampled", "free"]),
    ),
)
def test_targets_along_paths_are_those_of_the_reference(
    of: dict[str, bool], seed: int, learned: tuple[Quantity, ...], most: int, form: Form
) -> None:
    problem = made(seed, form)
    networks, paths = problem.networks(learned), wandering(problem, most, of)
    found = problem.batched(networks, THEORY, SETTING, paths)
    plain = problem.plain(networks, THEORY, SETTING)
    assert_same(found, plain.compute(problem.batch, problem.states.at, paths))


@settings(max_examples=50)
@given(
    links=st.lists(st.booleans(), min_size=1, max_size=12),
    starts=st.lists(st.integers(0, 11), min_size=1, max_size=5),
    steps=st.integers(1, 6),
    counts_down=st.booleans(),
)
def test_paths_follow_episodes_until_they_end(
    links: list[bool], starts: list[int], steps: int, counts_down: bool
) -> None:
    """Transition ``i`` leads to state ``100 + i``, and goes on with ``i + 1`` where linked."""
    number = len(links)
    after = [i + 1 if goes_on and i + 1 < number else -1 for i, goes_on in enumerate(links)]
    index = torch.tensor([start % number for start in starts])
    first_left = torch.arange(20, 20 + len(index))

    def follow(positions: torch.Tensor) -> torch.Tensor:
        return torch.tensor([after[i] if i >= 0 else -1 for i in positions.tolist()])

    paths = trajectories_from(
        index, follow, lambda positions: positions + 100, first_left,
        steps=steps, counts_down=counts_down, of_q_r=True, of_v_h_e=True,
    )  # fmt: skip
    for row, start in enumerate(index.tolist()):
        expected: list[Any] = []
        at, left = start, int(first_left[row])
        while at >= 0 and len(expected) < steps:
            left -= counts_down
            expected.append((100 + at, left))
            at = after[at]
        length = int(paths.length[row])
        found = zip(paths.state[row].tolist(), paths.steps_left[row].tolist(), strict=True)
        assert length == len(expected)
        assert list(found)[:length] == expected


def test_a_payoff_on_the_way_makes_what_comes_later_irrelevant() -> None:
    problem = made(3, Form(transitions=1, humans=1, goals=1, horizon=None))
    achieved = torch.zeros_like(problem.states.achieved)
    achieved[1] = True
    states = problem.states
    problem.states.achieved.copy_(achieved)
    states.terminal.zero_()
    of = {"of_q_r": False, "of_v_h_e": True}
    ways = ([0, 1, 2], [0, 1, 1], [0, 1, 3])
    found = [
        problem.batched(
            problem.networks(("v_h_e", "q_r")), THEORY, SETTING,
            Trajectories(torch.tensor([way]), torch.ones(1, 3).long(), torch.tensor([3]), **of),
        ).v_h_e[0, 0]
        for way in ways
    ]  # fmt: skip
    # Arriving after two steps pays 1, discounted by the one step before.
    assert all(float(value) == pytest.approx(SETTING.gamma_h) for value in found)
