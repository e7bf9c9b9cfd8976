"""``empo evaluate`` plays the obstacle gridworld as its simulator does."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
for folder in (ROOT / "examples" / "benchmarks", ROOT / "plugins" / "empo_benchmarks" / "tests"):
    sys.path.insert(0, str(folder))

import esr_robots  # noqa: E402
from simulator import NOISE, Episodes, played  # noqa: E402

from empo_benchmarks.blocks.params import BlocksParams  # noqa: E402
from empo_benchmarks.blocks.world import load_world  # noqa: E402
from empo_core.config import HumanPriorRef, RunConfig  # noqa: E402
from empo_core.experiment import Experiment  # noqa: E402
from empo_exact.result import ExactResult, load  # noqa: E402
from empo_learning.evaluation import Evaluation, evaluate_run  # noqa: E402

SIZE, STEPS, EPISODES = 3, 10, 500
STARTS = [([0, 1, 3], 0), ([1, 2, 3], 2)]


def simulated(result: ExactResult, state: list[int], time: int, goals: np.ndarray) -> np.ndarray:
    """Which episodes from a state succeed, by the rules alone."""
    rng, shape = np.random.default_rng(time), (len(goals), STEPS - time)
    boxes = np.isin(np.arange(SIZE**2), state[1:]).reshape(1, SIZE, SIZE).repeat(len(goals), 0)
    human = np.full(len(goals), state[0])
    noise, actions = rng.random(shape) < NOISE, rng.integers(5, size=shape)
    robot = esr_robots.empo(result.robot_policies, rng.random(shape))
    return played(robot, Episodes(human, boxes, goals, noise, actions)).reward > 0


def test_humans_of_the_benchmark_reach_goals_as_often_as_in_the_simulator(tmp_path: Path) -> None:
    params = {"size": SIZE, "boxes": 2, "max_steps": STEPS}
    config = {
        "world_model": {"name": "blocks", "params": params},
        "algorithm": {"name": "exact", "params": {"rollouts": 0, "keep": "all"}},
        "trackers": [],
        "runs": str(tmp_path),
    }
    run = Experiment.start(RunConfig.model_validate(config)).directory
    result = load(run / "results", load_world(BlocksParams(**params)))
    lines = [json.dumps({"state": state, "time": time}) for state, time in STARTS]
    (tmp_path / "starts.jsonl").write_text("\n".join(lines))
    found = evaluate_run(
        run,
        episodes=2 * EPISODES,
        gifs=0,
        human_prior=HumanPriorRef.model_validate("greedy-distance"),
        starts=tmp_path / "starts.jsonl",
    ).evaluation
    assert isinstance(found, Evaluation)
    each = np.arange(SIZE**2).repeat(EPISODES)
    succeeds = np.stack([simulated(result, state, time, each) for state, time in STARTS])
    shares = succeeds.reshape(2, -1, EPISODES).mean((0, 2))
    assert len(set(np.round(shares, 1))) > 2
    for goal, share in zip(found.goals, shares, strict=True):
        error = math.sqrt(2 * max(share * (1 - share), 1 / EPISODES) / (2 * EPISODES))
        assert abs(goal.reached - share) < 4 * error
    assert abs(np.mean([goal.reached for goal in found.goals]) - shares.mean()) < 0.02
