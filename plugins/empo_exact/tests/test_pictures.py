from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.types import Overlay
from empo_exact import pictures
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory


@dataclass
class Drawn:
    """States and overlays in the order in which they were drawn."""

    states: list[Tensor] = field(default_factory=list)
    overlays: list[Overlay] = field(default_factory=list)


SHAPE = Shape(
    num_states=6,
    roles=("robot", "human", "robot", "human"),
    num_actions=(2, 2, 3, 2),
    horizon=4,
    timed=False,
    masked=False,
)


ALONE = ExactParams(compute=Compute(workers=1))


class DrawnWorld(TableWorld):
    """A random game that remembers what was drawn on it."""

    def __init__(self) -> None:
        super().__init__(random_table(SHAPE, 2))
        self.drawn = Drawn()

    def render(self, state: Tensor, overlay: Overlay | None = None) -> np.ndarray:
        assert overlay is not None
        self.drawn.states.append(state)
        self.drawn.overlays.append(overlay)
        return np.full((8, 8, 3), 20 * len(self.drawn.overlays), np.uint8)

    def render_svg(self, state: Tensor, overlay: Overlay | None = None) -> str:
        assert overlay is not None
        text = f'<text x="0" y="8">{overlay.caption}</text>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="9">{text}</svg>'


@pytest.fixture(scope="module")
def result() -> ExactResult:
    theory = CompleteTheory(beta_r=5.0)
    return solve(DrawnWorld(), ALONE.model_copy(update={"theory": theory}))


def overlays_of(result: ExactResult, directory: Path) -> list[Overlay]:
    world = result.problem.world
    assert isinstance(world, DrawnWorld)
    world.drawn.overlays.clear()
    pictures.draw(result, directory, rollouts=1, seed=0)
    return world.drawn.overlays


def test_the_start_is_drawn_once_with_the_power_of_each_human(
    result: ExactResult, tmp_path: Path
) -> None:
    start = overlays_of(result, tmp_path)[0]
    assert start.human is None
    powers = result.at(0).X_h
    assert start.titles == {human: f"$X_h$ = {powers[human]:.3g}" for human in (1, 3)}
    assert start.caption == f"t = 0: $V_r$ = {result.at(0).V_r:.4g}"
    assert f'aria-label="{start.caption}"' in (tmp_path / "start.svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {
        "start.png", "start.svg", "rollout_0.gif",
    }  # fmt: skip


def test_the_start_that_is_drawn_is_the_one_that_was_given(
    result: ExactResult, tmp_path: Path
) -> None:
    world, row = DrawnWorld(), result.graph.states[result.graph.alive][1]
    pictures.draw(solve(world, ALONE, start=row[None]), tmp_path, rollouts=0, seed=0)
    assert world.drawn.states[0].tolist() == row.tolist()


def test_frames_of_an_episode_show_the_actions_taken_and_no_zeros_at_the_end(
    result: ExactResult, tmp_path: Path
) -> None:
    _, *frames, last = overlays_of(result, tmp_path)
    assert frames
    for frame in frames:
        assert set(frame.actions) == {0, 1, 2, 3}
        assert [len(frame.policies[robot]) for robot in (0, 2)] == [2, 3]
        for robot, probs in frame.policies.items():
            action = frame.actions[robot]
            assert action is not None
            assert probs[action] > 0
    assert last.caption.endswith("the end")
    assert last.actions == dict.fromkeys(range(4))
    assert last.policies == {0: (), 2: ()}
    assert set(last.goal_values or ()) == {None}
    with Image.open(tmp_path / "rollout_0.gif") as animation:
        assert getattr(animation, "n_frames", 1) == len(frames) + 1


def test_a_world_without_pictures_has_its_start_as_text_but_no_rollouts(tmp_path: Path) -> None:
    solved = solve(TableWorld(random_table(SHAPE, 2)), ALONE)
    pictures.draw(solved, tmp_path, rollouts=1, seed=0)
    assert {path.name for path in tmp_path.iterdir()} == {"start.png", "start.svg"}
    world, text = solved.problem.world, (tmp_path / "start.svg").read_text()
    start = world.describe(torch.from_numpy(solved.graph.states[0].copy()))
    goals = [goal.name for goal in solved.spec.goals]
    for label in (start, *(agent.name for agent in solved.spec.agents), *goals):
        assert label in text
    frame = pictures.start_frame(solved)
    assert frame is not None
    assert np.array_equal(frame, np.asarray(Image.open(tmp_path / "start.png")))


def test_a_world_without_pictures_that_has_too_many_names_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = solve(TableWorld(random_table(SHAPE, 2)), ALONE)
    monkeypatch.setattr(pictures, "MOST_NAMES", len(solved.spec.goals))
    pictures.draw(solved, tmp_path, rollouts=1, seed=0)
    assert not [*tmp_path.iterdir()]
    assert pictures.start_frame(solved) is None
