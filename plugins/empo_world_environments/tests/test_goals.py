"""Goals are drawn by weight, and draws follow their chances."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import SolveError
from empo_testing.worlds import TinyWorld
from empo_world_environments.goals import Goals, arrived, draw


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0, 7.0, 1e12]), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_what_has_no_chance_is_never_drawn(chances: list[float], seed: int) -> None:
    if sum(chances) == 0:
        return
    drawn = draw(torch.tensor([chances] * 20, dtype=torch.float64), generator(seed))
    assert all(chances[position] > 0 for position in drawn.tolist())


def test_draws_follow_their_chances_and_need_not_sum_to_one() -> None:
    chances = torch.tensor([1.0, 0.0, 5.0, 2.0])
    drawn = draw(chances.expand(2, 20_000, -1), generator())
    assert drawn.shape == (2, 20_000)
    share = torch.bincount(drawn.flatten(), minlength=4) / drawn.numel()
    torch.testing.assert_close(share, chances / 8, atol=0.01, rtol=0)


def test_every_human_gets_a_goal_of_its_own() -> None:
    goals = Goals(TinyWorld().spec).draw(3000, generator())
    assert goals.shape == (3000, 2)
    assert set(goals[:, 0].tolist()) == {0, 1}
    assert set(goals[:, 1].tolist()) == {2}
    assert float((goals[:, 0] == 1).float().mean()) == pytest.approx(2 / 3, abs=0.03)


def test_a_human_without_goals_is_named() -> None:
    world = TinyWorld()
    object.__setattr__(world.spec, "goals", world.spec.goals[:2])
    with pytest.raises(SolveError, match=r"shouter \(agent 2\) of 'door'"):
        Goals(world.spec)


def test_arriving_is_about_ones_own_goal() -> None:
    rows = torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.int16)
    goals = torch.tensor([[0, 2], [0, 2], [1, 2]])
    assert arrived(TinyWorld(), rows, goals).tolist() == [
        [False, False],
        [True, False],
        [True, True],
    ]
