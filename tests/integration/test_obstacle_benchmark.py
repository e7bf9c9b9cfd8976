"""The obstacle gridworld benchmark runs, resumes, and computes its statistics as promised."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "benchmarks"
for folder in (FOLDER, ROOT / "plugins" / "empo_benchmarks" / "tests"):
    sys.path.insert(0, str(folder))

import esr  # noqa: E402
import esr_corners  # noqa: E402
import esr_learners  # noqa: E402
from esr_ave import FLOOR, best_actions, rewards  # noqa: E402
from esr_robots import ranks_of  # noqa: E402
from esr_scores import mean, paired_difference, share  # noqa: E402
from esr_settings import LEARNED, GoalList, LearnedSettings, Settings  # noqa: E402

from empo_benchmarks.blocks.params import BlocksParams  # noqa: E402
from empo_benchmarks.blocks.world import load_world  # noqa: E402
from empo_core.config.files import parse_yaml, read_yaml, validate_document  # noqa: E402
from empo_core.errors import ConfigError  # noqa: E402

SMALL = {
    "size: 5": "size: 3",
    "steps: 50": "steps: 8",
    "[2, 3, 4]": "[2]",
    "[10.0, 30.0, 100.0]": "[30.0]",
    "random-effective, AvE smart, AvE plain": "AvE smart",
    "episodes: 1000": "episodes: 20",
    "bootstrap: 10000": "bootstrap: 200",
    "sweeps: 200": "sweeps: 60",
}
SMALL_LEARNED = {
    "[0, 1, 2]": "[0]",
    "300000": "800",
    "environments: 100": "environments: 50",
    "batch_size: 256": "batch_size: 32",
    "5000}": "4, warm_up: {v_h_e: 1, x_h: 0, u_r: 0, q_r: 1, v_r: 0, ramp: 1}}",
}
NEIGHBOURS = FOLDER / "esr_neighbours.yaml"
RARE = 0.11
"""Share that is less than one in ten, and noise."""


Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path, settings: Path, *options: str) -> str:
        given = ["esr.py", str(out), "--settings", str(settings), *options]
        monkeypatch.setattr(sys, "argv", given)
        esr.main()
        return capsys.readouterr().out

    return run


def smaller(file: Path, changes: dict[str, str], folder: Path) -> Path:
    """A copy of a file of settings with less to do."""
    text = file.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / file.name).write_text(text)
    return folder / file.name


def learning(**changes: float | str) -> esr_learners.Learning:
    """As in the settings, but for some."""
    settings = validate_document(LearnedSettings, read_yaml(LEARNED))
    return settings.learning.model_copy(update=changes)


@pytest.mark.slow
def test_the_benchmark_goes_on_where_it_was_and_repeats_itself(run: Run, tmp_path: Path) -> None:
    settings = smaller(FOLDER / "esr_blocks.yaml", SMALL, tmp_path)
    out = tmp_path / "out"
    assert "read from" not in run(out, settings)
    kept = sorted(out.glob("*.json"))
    assert len(kept) == 6
    before = [path.read_text() for path in kept]
    table = (out / "table.csv").read_text()
    for path in kept[:4]:
        path.unlink()
    assert run(out, settings).count("read from") == 2
    for path, old in zip(kept, before, strict=True):
        # All but the seconds.
        assert path.read_text().partition('"scores"')[2] == old.partition('"scores"')[2]
    assert (out / "table.png").stat().st_size > 10_000
    rows = {row["robot"]: row for row in csv.DictReader(table.splitlines()[:-1])}
    assert len(rows) == 6
    assert table.splitlines()[-1].startswith("# 80 episodes each")
    primary = rows["EMPO matched, beta_r 30"]
    assert float(rows["still"]["success"]) == 0
    assert float(primary["success"]) > float(rows["random125"]["success"]) + 0.2
    assert float(primary["crushed"]) < RARE
    assert float(primary["behind_primary"]) == 0
    settings.write_text(f"{settings.read_text()}# Other settings.\n")
    assert "read from" not in run(out, settings)


@pytest.mark.slow
def test_robots_that_learn_stand_in_the_table_with_their_steps(run: Run, tmp_path: Path) -> None:
    settings = smaller(FOLDER / "esr_blocks.yaml", SMALL, tmp_path)
    learned = smaller(LEARNED, SMALL_LEARNED, tmp_path)
    out, options = tmp_path / "out", ("--learned", "--learned-settings", str(learned))
    assert "read from" not in run(out, settings, *options, "--only", " learned,")
    table = (out / "table.csv").read_text().splitlines()
    rows = {row["robot"]: row for row in csv.DictReader(table[:-1])}
    names = ["AvE", "AvE clipped", "contrastive", "EMPO mlp"]
    assert [*rows][1:] == [f"{name} learned, seed 0" for name in names]
    assert [int(row["env_steps"]) for row in rows.values()][:4] == [0, 800, 800, 800]
    assert all(0 <= float(row["success"]) <= 1 for row in rows.values())
    assert "18.9 and 20.5" in table[-1]  # What others have for contrastive ones.
    (spent,) = out.glob("*/cpu_seconds.json")  # Those of the run, counted once.
    assert float(rows["EMPO mlp learned, seed 0"]["cpu_seconds"]) == json.loads(spent.read_text())
    assert run(out, settings, *options, "--only", " learned,").count("read from") == 5


def test_every_start_has_its_lines_with_robots_that_infer_goals(run: Run, tmp_path: Path) -> None:
    changes = {
        "size: 5": "size: 3",
        "steps: 50": "steps: 8",
        "[2, 3, 4]": "[2]",
        "episodes: 1000": "episodes: 20",
        "bootstrap: 10000": "bootstrap: 200",
        "goals: 25": "goals: 9",
        "goals: 24": "goals: 8",
    }
    settings = smaller(NEIGHBOURS, changes, tmp_path)
    options = ("--only", "infers")
    run(tmp_path / "out", settings, *options)
    text = (tmp_path / "out" / "table.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()[:-1]))
    lists = ["all goals", "8 wrong goals", "5 goals", "5 wrong goals"]
    names = [f"infers {human}, {goals}" for human in ("matched", "softmax") for goals in lists]
    assert [(row["start"], row["robot"]) for row in rows] == [
        (start, name)
        for start in ("corner", "corner_hard", "center")
        for name in ("EMPO matched, beta_r 30", *names)
    ]
    assert [float(row["behind_primary"]) for row in rows[::9]] == [0, 0, 0]
    reward = {(row["start"], row["robot"]): float(row["reward"]) for row in rows}
    for start in ("corner", "corner_hard", "center"):
        knows, lacks = reward[start, names[0]], reward[start, names[1]]
        assert knows > lacks  # The true goal is in the list, or is not.
    assert reward["center", names[0]] > reward["corner", names[0]]  # There nobody is locked in.


def test_lists_of_goals_have_the_true_one_or_not() -> None:
    goal, chance = np.arange(9).repeat(50), np.random.default_rng(0).random((450, 9))
    for has_true in (True, False):
        listed = esr.esr_robots.goal_lists(GoalList(goals=3, has_true=has_true), goal, chance)
        assert (listed.sum(1) == 3).all()
        assert (listed[np.arange(450), goal] == has_true).all()
        # The others are drawn evenly: 2 or 3 of 8, in 400 episodes each.
        others = listed.sum(0) - 50 * has_true
        assert np.abs(others / 400 - (3 - has_true) / 8).max() < 0.1


def test_longer_lists_than_there_are_goals_are_refused() -> None:
    document = NEIGHBOURS.read_text().replace("goals: 24, has", "goals: 25, has")
    with pytest.raises(ConfigError, match=r"inferring\.lists\[1\]: 25 goals"):
        validate_document(Settings, parse_yaml(document, name="lists.yaml"))


def test_a_robot_that_infers_begins_each_time_anew() -> None:
    settings = validate_document(Settings, read_yaml(NEIGHBOURS)).model_copy(
        update={"size": 3, "steps": 8}
    )
    contest = esr.Contest.of(settings, 2, 10, Path())
    robot = contest.robot("infers softmax, 5 goals", Path())
    first, again = (esr.played(robot, contest.episodes) for _ in range(2))
    assert np.array_equal(first.arrival, again.arrival)


def test_more_boxes_than_the_board_has_room_for_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"boxes \[2, 24\].*1 to 23 boxes"):
        run(tmp_path / "out", FOLDER / "esr_blocks.yaml", "--boxes", "2", "24")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("is_clipped", "share_of_moves"), [(False, 0.8), (True, 4 / 45)])
def test_rollouts_estimate_the_room_to_move(is_clipped: bool, share_of_moves: float) -> None:
    boxes = np.zeros((2, 3, 3), bool)
    boxes[:, 1, [0, 2]] = True
    boxes[1, [0, 2], 1] = True  # Locked in.
    once = learning(rollouts=40_000, rollout_steps=1)
    found = esr_learners.variance(
        np.array([4, 4]), boxes, once, np.random.default_rng(0), is_clipped=is_clipped
    )
    # Half of the moves, up and down, are free in the first.
    known = [np.log(share_of_moves / 2 / 2 + once.variance_floor), np.log(once.variance_floor)]
    assert found == pytest.approx(known, abs=0.03)


@pytest.mark.slow
def test_a_robot_that_learns_room_to_move_frees_the_human() -> None:
    settings = validate_document(Settings, read_yaml(esr.SETTINGS)).model_copy(
        update={"size": 3, "steps": 8}
    )
    few = learning(environments=50, batch_size=64, target_rate=0.05)
    robot = esr_learners.Course("AvE", settings, 2, few).robot(16_000, seed=0)
    contest = esr.Contest.of(settings, 2, 50, Path())
    found = esr.played(esr_learners.robot_of(robot, 3, contest.chance), contest.episodes)
    random = esr.played(esr.esr_robots.random_effective(contest.chance), contest.episodes)
    assert share(found.reward > 0).low > share(random.reward > 0).high


def test_a_robot_learns_from_every_start() -> None:
    settings = validate_document(Settings, read_yaml(NEIGHBOURS)).model_copy(
        update={"size": 5, "steps": 1}
    )
    few, rng = learning(environments=9), np.random.default_rng(0)
    course = esr_learners.Course("AvE", settings, 2, few)
    batch = course.collected(esr_learners.SoftQ(5, few), rng)
    corners = {0, 4, 20, 24}
    assert [cell in corners for cell in batch.human[0].tolist()] == [True] * 6 + [False] * 3
    assert batch.human[0, 6:].tolist() == [12] * 3
    beside = batch.boxes[0][np.arange(9), 1:4, 1:4].any((1, 2))
    assert beside[6:].all()


def test_rewards_have_the_unit_of_the_loss_or_of_the_inner_product() -> None:
    board = esr_learners.boards(np.arange(8), np.zeros((8, 3, 3), bool))
    still, stay = torch.full((8,), 36), torch.full((8,), 4)
    found = []
    for unit in ("product", "logit"):
        torch.manual_seed(0)
        contrast = esr_learners.Contrast(3, learning(reward_unit=unit), features=20)
        found.append(contrast.rewards(board, still, stay, board.flip(0)))
    assert found[0].abs().min() > 0
    torch.testing.assert_close(found[0], 20 * found[1])


@pytest.mark.slow
def test_features_learn_how_much_an_action_tells_of_the_future() -> None:
    """Where futures follow the human's action alone, the reward is the logarithm of how many."""
    torch.manual_seed(0)
    contrast = esr_learners.Contrast(3, learning(feature_lr=0.003))
    rng = np.random.default_rng(0)
    nothing, still = np.zeros((128, 3, 3), bool), torch.full((128,), 36)
    for _ in range(150):
        action = rng.integers(4, size=128)
        here = esr_learners.boards(np.full(128, 4), nothing)
        future = esr_learners.boards(action, nothing)  # The cell is the action's number.
        reward = contrast.rewards(here, still, torch.from_numpy(action), future)
    # In units of logits, up to a constant: futures of other actions tell against them.
    other = contrast.rewards(here, still, torch.from_numpy((action + 1) % 4), future)
    assert float((reward - other).min()) / 32 > 2


def test_policies_keep_the_entropy_that_was_asked_for() -> None:
    torch.manual_seed(0)
    robot = esr_learners.SoftQ(3, learning(entropy=0.6, q_lr=0.01))
    boxes = np.zeros((64, 3, 3), bool)
    boxes[:, 0, 1] = True
    board = esr_learners.boards(np.full(64, 4), boxes)
    policy = robot.policy(board)
    assert policy[:, 4:8].sum(1) + policy[:, 36] == pytest.approx(1)  # The box, or nothing.
    action = torch.multinomial(policy, 1)[:, 0]
    for _ in range(200):
        robot.update(board, action, (action == 36).float(), board)
    policy = robot.policy(board)
    entropy = -(policy * policy.clamp(min=1e-12).log()).sum(1).mean()
    assert float(entropy) == pytest.approx(0.6, abs=0.1)


def test_intervals_are_the_known_ones() -> None:
    found = share(np.arange(4000) < 3968)
    assert (found.value, round(found.low, 3), round(found.high, 3)) == (0.992, 0.989, 0.994)
    assert share(np.zeros(400)).low == 0
    assert share(np.ones(400)).high == 1
    # With 99 degrees of freedom the quantile is 1.9842.
    values = np.arange(100.0)
    half = mean(values).high - values.mean()
    assert half == pytest.approx(1.9842 * values.std(ddof=1) / 10, rel=1e-3)


def test_paired_differences_leave_out_what_episodes_have_in_common() -> None:
    rng = np.random.default_rng(0)
    common = 100 * rng.random(500)
    ours = common + 1 + 0.1 * rng.random(500)
    found = paired_difference(ours, common, 1000, 0)
    assert 1.0 < found.low < found.value < found.high < 1.1
    assert found.high - found.low < 0.01
    assert paired_difference(common, common, 100, 0).high == 0


def test_room_to_move_is_the_variance_of_places() -> None:
    world = load_world(BlocksParams(size=3, boxes=2))
    ranks = ranks_of(world)
    rows = ranks.unrank(np.arange(ranks.count))
    reward = dict(zip(map(tuple, rows.tolist()), rewards(world, rows, "smart", 5), strict=True))
    locked, crushed = (0, 1, 3), (4, 4, 8)
    assert reward[locked] == reward[crushed] == pytest.approx(np.log(FLOOR))
    assert reward[0, 2, 3] > reward[locked]
    # One random step from the middle with boxes left and right: up and down with 1/5 each.
    once = rewards(world, rows, "smart", 1)[ranks.rank(np.array([[4, 3, 5]]))[0]]
    assert once == pytest.approx(np.log((0.4 + 0) / 2 + FLOOR))
    # In one heap, that the middle's row equals its column does not count as room to move.
    heap = rewards(world, rows, "plain", 1)
    assert heap[ranks.rank(np.array([[2, 1, 5]]))[0]] == pytest.approx(np.log(1 + FLOOR))


def test_room_to_move_frees_the_human_and_does_not_crush_it() -> None:
    world = load_world(BlocksParams(size=3, boxes=2))
    best = best_actions(world, "smart", steps=5, discount=0.9, sweeps=60)
    start = ranks_of(world).rank(world.initial_state()[None].numpy())
    names = world.spec.agents[1].actions
    assert names[int(best[start][0])] in {"box 1 right", "box 1 down", "box 2 down", "box 2 right"}


def test_boxes_in_corners_are_counted_beside_both_presets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    early, late = np.zeros((2, 3, 3), bool), np.zeros((2, 3, 3), bool)
    early[:, 1, 1] = late[0, 0, 2] = late[0, 1, 1] = late[1, 0, 1] = True
    seen = [early] * esr_corners.LATE.start + [late] * len(esr_corners.LATE)
    assert esr_corners.in_corners(seen).tolist() == [0.5, 0.0]
    monkeypatch.setattr(sys, "argv", ["esr_corners.py", "--boxes", "1", "--episodes", "10"])
    esr_corners.main()
    lines = capsys.readouterr().out.splitlines()
    assert [word for line in lines for word in ("paper", "fair") if word in line] == [
        "paper",
        "fair",
    ]
    assert sum("0 (0)" in line for line in lines) == 2
