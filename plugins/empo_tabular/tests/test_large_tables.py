"""Games as arrays and in the explicit format of model checkers: read back, or refused located."""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.documents import world_in
from empo_core.errors import ConfigError, StorageError
from empo_core.protocols import WorldModel
from empo_core.world_content import world_digest
from empo_tabular.arrays import write_npz
from empo_tabular.explicit import read_explicit
from empo_tabular.plugin import TableParams
from empo_tabular.world import load_world
from empo_testing.world_model import WorldModelTests

Arrays = dict[str, Any]


def game(seed: int = 0, num_states: int = 5) -> Arrays:
    """A random game of a human with three actions, of which the last may lack, and a robot."""
    rng = np.random.default_rng(seed)
    has = np.ones((num_states, 6), dtype=bool)
    has[:, [2, 5]] = rng.random(num_states)[:, None] < 0.5
    has[-1] = False
    counts = np.where(has, rng.integers(1, 4, has.shape), 0).ravel()
    rows = [rng.choice(num_states, count, replace=False) for count in counts]
    weights = [rng.dirichlet(np.ones(count)) for count in counts if count]
    return {
        "agents": np.array(["ann", "bot"]),
        "roles": np.array(["human", "robot"]),
        "actions": np.array([["left", "right", "wait"], ["idle", "open", ""]]),
        "offsets": np.concatenate([[0], counts.cumsum()]),
        "successors": np.concatenate(rows),
        "prob": np.concatenate(weights),
        "duration": rng.uniform(0.5, 2, counts.sum()),
        "goals": np.array(["one", "other"]),
        "goal_agents": np.array([0, 0]),
        "goal_weights": np.array([0.25, 1.0]),
        "achieved": rng.random((num_states, 2)) < 0.5,
        "initial": np.array([0, 2]),
        "initial_prob": np.array([0.25, 0.75]),
        "horizon": np.array(4),
        "name": np.array("random"),
    }


def load(path: Path, arrays: Arrays) -> Any:
    np.savez(path, **arrays)
    return load_world(TableParams(file=path))


class TestArrays(WorldModelTests):
    @pytest.fixture
    def world(self, tmp_path: Path) -> WorldModel:
        world: WorldModel = load(tmp_path / "game.npz", game())
        return world


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), num_states=st.integers(4, 12), named=st.booleans())
def test_a_game_in_arrays_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_states: int, named: bool
) -> None:
    folder, arrays = tmp_path_factory.mktemp("game"), game(seed, num_states)
    if named:
        arrays["states"] = np.array([f"state {i}" for i in range(num_states)])
    world = load(folder / "game.npz", arrays)
    successors = world.transitions(torch.arange(num_states, dtype=torch.int32)[:, None])
    for name, part in (
        ("offsets", successors.offsets),
        ("successors", successors.states[:, 0]),
        ("prob", successors.prob),
        ("duration", successors.duration),
    ):
        assert np.array_equal(part.numpy(), arrays[name]), name
    assert world.describe(torch.tensor([1], dtype=torch.int32)) == ("state 1" if named else "1")
    write_npz(world, folder / "again.npz")
    again = load_world(TableParams(file=folder / "again.npz"))
    assert again.spec == world.spec
    assert world_digest(again) == world_digest(world)


WRONG: list[tuple[str, Callable[[Arrays], object], str]] = [
    ("agents", lambda a: a["agents"][:1], r"roles: has the shape \[2\]; .* one per agent: 1"),
    ("agents", lambda a: np.array(["ann", "ann"]), r"agents\[1\]: 'ann' is listed before"),
    ("roles", lambda a: np.array(["human", "boss"]), r"roles\[1\]: is no role"),
    ("roles", lambda a: np.array([1, 2]), r"roles: has int64 of shape \[2\]; it takes texts"),
    ("roles", lambda a: np.array(["robot", "robot"]), r"goal_agents\[0\]: agent 0 is no human"),
    ("actions", lambda a: np.array([["a", "", "a"], ["b", "c", ""]]), r"actions\[0, 1\]"),
    ("actions", lambda a: np.array([["a", "b", "c"], ["", "", ""]]), r"actions\[1\]: an agent"),
    ("offsets", lambda a: a["offsets"][:-1], r"offsets: has 30 numbers"),
    ("offsets", lambda a: a["offsets"] + 1, r"offsets\[0\]: they go from 0"),
    ("offsets", lambda a: a["offsets"] - (np.arange(31) == 30), r"offsets\[30\]: they go from 0"),
    (
        "offsets",
        lambda a: a["offsets"] + 9 * (np.arange(31) == 1),
        r"offsets\[1\]: .* is more than",
    ),
    ("offsets", lambda a: a["offsets"].astype(float), r"offsets: .* it takes integers"),
    ("successors", lambda a: a["successors"] + 5, r"successors\[0\]: \d+ is no state; there are 5"),
    ("successors", lambda a: a["successors"] - 9, r"successors\[0\]: -\d+ is no state"),
    ("successors", lambda a: a["successors"] * 0, r"successors\[\d+\]: 0 is listed before"),
    (
        "prob",
        lambda a: a["prob"] * 0.9,
        r"prob\[0\]: the probabilities of state 0 under .* 0.9, not",
    ),
    ("prob", lambda a: a["prob"] * -1, r"prob\[0\]: -[0-9.]+ is not in"),
    ("prob", lambda a: a["prob"] * np.nan, r"prob\[0\]: nan is not in"),
    ("prob", lambda a: a["prob"][1:], r"prob: has the shape"),
    ("duration", lambda a: a["duration"] * 0, r"duration\[0\]: 0.0 is not positive"),
    ("goals", lambda a: np.array(["one", "one"]), r"goals\[1\]: there are two goals"),
    ("goal_agents", lambda a: np.array([0, 2]), r"goal_agents\[1\]: agent 2 is no human"),
    ("goal_weights", lambda a: np.array([1, -1.0]), r"goal_weights\[1\]: -1.0 is no weight"),
    ("achieved", lambda a: a["achieved"][:, :1], r"achieved: .* one column per goal: 2"),
    ("achieved", lambda a: a["achieved"][:4], r"achieved: .* one row per state: 5"),
    ("achieved", lambda a: a["achieved"][0], r"achieved: has bool of shape .* with 2 axes"),
    ("initial", lambda a: np.array([0, 5]), r"initial\[1\]: 5 is no state"),
    ("initial", lambda a: np.array([0, 4]), r"initial\[1\]: 4 is terminal"),
    ("initial", lambda a: np.array([0, 0]), r"initial\[1\]: 0 is listed before"),
    ("initial_prob", lambda a: np.array([0.5, 0.25]), r"initial_prob: sums to 0.75"),
    ("initial_prob", lambda a: np.array([1.0, 0.0]), r"initial_prob\[1\]: 0.0 is no chance"),
    ("initial_prob", lambda a: None, r"initial_prob: several initial states"),
    ("horizon", lambda a: np.array(0), r"horizon: is 0"),
    ("states", lambda a: np.array(["a", "b", "c", "b", "d"]), r"states\[3\]: 'b' is listed before"),
    ("prob", lambda a: None, r": lacks prob"),
    ("sucessors", lambda a: a["successors"], r"no array 'sucessors' .*did you mean 'successors'"),
    ("horizon", lambda a: np.array(2**64 - 1, np.uint64), r"horizon: is 18446744073709551615; an"),
    ("agents", lambda a: np.array(["ann", ""]), r"agents\[1\]: is empty or no valid text"),
    ("goals", lambda a: np.array(["", "one"]), r"goals\[0\]: is empty or no valid text"),
    ("name", lambda a: np.array(""), r"name: is empty or no valid text"),
    ("states", lambda a: np.array(["a", "b\ud800", "c", "d", "e"]), r"states\[1\]: is empty or no"),
    ("actions", lambda a: np.array([["a", "b", "c"], ["d", "\udc00", ""]]), r"actions\[1, 1\]: is"),
    ("roles", lambda a: np.array([2**31], "u4").repeat(2).view("U1"), r"roles\[0\]: is empty or"),
    ("actions", lambda a: np.zeros((2, 9), "V0").view("U0"), r"actions: has <U0 of shape \[2, 9\]"),
    (
        "actions",
        lambda a: np.pad(a["actions"], ((0, 0), (0, 10**5))),
        r"actions: has more than 100,000 columns",
    ),
    ("prob", lambda a: a["prob"].astype(np.longdouble), r"prob: has float128 .*of float64"),
    (
        "prob",
        lambda a: (a["prob"] * 0.99).astype(np.float32),
        r"prob\[0\]: .*; save them as float64, not float32",
    ),
    (
        "initial_prob",
        lambda a: np.array([0.1, 0.8], np.float32),
        r"initial_prob: .*; save them as float64, not float32",
    ),
    ("name", lambda a: np.array([{"a": 1}], dtype=object), r"name: has object"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_what_is_wrong_with_an_array_is_located(
    tmp_path: Path, name: str, change: Callable[[Arrays], object], message: str
) -> None:
    arrays = game()
    arrays[name] = change(arrays)
    with pytest.raises(ConfigError, match=rf"game\.npz: .*{message}|game\.npz{message}"):
        load(tmp_path / "game.npz", {k: v for k, v in arrays.items() if v is not None})


def test_a_config_is_blamed_at_the_key_that_names_the_file(tmp_path: Path) -> None:
    path, config = tmp_path / "game.npz", tmp_path / "run.yaml"
    np.savez(path, **game() | {"name": np.array("")})
    config.write_text(f"world_model: {{name: table, params: {{file: {path}}}}}\nalgorithm: exact\n")
    done = CliRunner().invoke(app, ["check", str(config)])
    key = f"{config}:1:37: world_model.params.file: {path}: name: is empty"
    assert key in done.stderr


def test_availability_that_depends_on_others_is_located(tmp_path: Path) -> None:
    arrays = game()
    counts = np.diff(arrays["offsets"])
    first = int(counts[0])  # Nothing follows the first joint action any more.
    arrays["offsets"] = np.concatenate([[0], np.where(np.arange(30) == 0, 0, counts).cumsum()])
    for key in ("successors", "prob", "duration"):
        arrays[key] = arrays[key][first:]
    with pytest.raises(ConfigError, match=r"offsets\[0\]: state 0"):
        load(tmp_path / "game.npz", arrays)


@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_as_something(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Neither a crash nor an allocation that the file's size does not bound."""
    path = tmp_path_factory.mktemp("game") / "game.npz"
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(path, **game())
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(ConfigError):
        load_world(TableParams(file=path))


def with_head(path: Path, head: bytes, data: bytes = b"") -> None:
    """Write a game whose probabilities have another head (of version 1) and other data."""
    np.savez(path, **{k: v for k, v in game().items() if k != "prob"})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        size = len(head).to_bytes(2, "little")
        archive.writestr("prob.npy", b"\x93NUMPY\x01\x00" + size + head + data)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**50},)}}\n", "disagree"),
        (f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {10**30})}}\n", "with 1 axes"),
        (f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30},)}}\n", "disagree"),
        ("{'descr': [], ", "is no array that can be read"),
        ("{[]: 1}\n", "is no array that can be read"),
        ("{1: 2, 'descr': 3}\n", "is no array that can be read"),
    ],
)
def test_an_odd_head_is_refused_once(tmp_path: Path, head: str, message: str) -> None:
    with_head(tmp_path / "game.npz", head.encode())
    with pytest.raises(ConfigError, match=rf"prob: .*{message}") as caught:
        load_world(TableParams(file=tmp_path / "game.npz"))
    assert str(caught.value).count("prob: ") == 1


def test_an_axis_beyond_all_numbers_is_refused(tmp_path: Path) -> None:
    head = f"{{'descr': '|b1', 'fortran_order': False, 'shape': (0, {10**30})}}\n".encode()
    np.savez(tmp_path / "game.npz", **{k: v for k, v in game().items() if k != "achieved"})
    with zipfile.ZipFile(tmp_path / "game.npz", "a") as archive:
        archive.writestr(
            "achieved.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
        )
    with pytest.raises(ConfigError, match=r"achieved:"):
        load_world(TableParams(file=tmp_path / "game.npz"))


def test_numbers_count_as_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empo_tabular.arrays.MAX_BYTES", 8000)
    arrays = game() | {"offsets": np.zeros(1000, np.int8)}
    with pytest.raises(ConfigError, match=r"game\.npz: .* 8 "):
        load(tmp_path / "game.npz", arrays)


def test_goals_beyond_their_room_are_described_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = game()
    del arrays["goal_weights"]
    monkeypatch.setattr("empo_tabular.arrays.MOST_GOAL_FEATURES", 9)
    goals = load(tmp_path / "game.npz", arrays).spec.goals
    assert [(goal.features, goal.weight) for goal in goals] == [((0.0,), 0.5), ((1.0,), 0.5)]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    world = load(tmp_path / "game.npz", game())
    assert {type(agent.role) for agent in world.spec.agents} == {str}
    write_npz(world, tmp_path / "again.npz")
    assert "allow_pickle" not in np.load(tmp_path / "again.npz")
    with pytest.raises(StorageError, match="again"):
        write_npz(world, tmp_path / "nowhere" / "again.npz")


MDP = """mdp
0 0 1 0.25
0 0 2 0.75
0 1 0 1.0
1 0 1 1
2 0 0 1 back
"""
LABELS = "#DECLARATION\ninit final goal far\n#END\n0 init\n1 final goal\n2 goal far\n"


def explicit(folder: Path, tra: str, lab: str = LABELS, rew: str | None = None) -> Any:
    (folder / "model.tra").write_text(tra)
    (folder / "model.lab").write_text(lab)
    if rew is not None:
        (folder / "model.rew").write_text(rew)
    name, world = world_in(folder / "model.tra", None)
    assert name == "table"
    return world


PRISM = (
    MDP.replace("mdp", "3 4 5"),
    '0="init" 1="deadlock" 2="goal" 3="far"\n0: 0\n1: 1 2\n2: 2 3\n',
)


@pytest.mark.parametrize(("tra", "lab"), [(MDP, LABELS), PRISM])
def test_models_of_checkers_are_games_of_one_human(tmp_path: Path, tra: str, lab: str) -> None:
    world = explicit(tmp_path, tra, lab)
    assert [agent.actions for agent in world.spec.agents] == [("choice 0", "choice 1")]
    assert [goal.name for goal in world.spec.goals] == ["goal", "far"]
    rows = torch.arange(3, dtype=torch.int32)[:, None]
    assert world.available(rows)[:, 0].tolist() == [[True, True], [False, False], [True, False]]
    assert world.achieved(rows).tolist() == [[False, False], [True, False], [True, True]]
    successors = world.transitions(rows)
    assert successors.offsets.tolist() == [0, 2, 3, 3, 3, 4, 4]
    assert successors.states[:, 0].tolist() == [1, 2, 0, 0]
    assert successors.prob.tolist() == [0.25, 0.75, 1, 1]
    assert successors.duration is None


def test_rewards_of_transitions_or_states_are_durations(tmp_path: Path) -> None:
    rewards = "0 0 1 3\n0 0 2 4.5\n2 0 0 1\n0 1 0 2\n"
    rows = torch.arange(3, dtype=torch.int32)[:, None]
    world = explicit(tmp_path, MDP, rew=rewards)
    assert world.transitions(rows).duration.tolist() == [3, 4.5, 2, 1]
    world = explicit(tmp_path, MDP, rew="2 0.5\n0 7\n")
    assert world.transitions(rows).duration.tolist() == [7, 7, 7, 0.5]


def test_a_chain_has_one_choice(tmp_path: Path) -> None:
    world = explicit(tmp_path, "dtmc\n0 1 0.25\n0 2 0.75\n1 1 1\n2 0 1\n")
    assert world.spec.num_joint_actions == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("mdp\n", "smg\n"), r"model\.tra:1:1: should begin with 'mdp'"),
        (("0 0 2 0.75", "0 0 2 0.5"), r"prob\[0\]: .* state 0 under joint action 0 sum to 0\.75"),
        (("0 0 2 0.75", "0 0 2 secret"), r"model\.tra:3:1: .* number 4 is none$"),
        (("0 0 2 0.75", "0 0 2"), r"model\.tra:3:1: .* number 4 is none$"),
        (("0 0 2 0.75", "0 0 2 -1"), r"model\.tra:3:1: the probability"),
        (("0 0 2 0.75", "0 0 2.5 0.75"), r"model\.tra:3:1: .*whole numbers"),
        (("0 0 2 0.75", "0 0 99999999 0.75"), r"model\.tra:3:1: .*below 10,000,000"),
        (("0 1 0 1.0", "\n0 2 0 1.0"), r"model\.tra:5:1: .*without gaps"),
        (("2 0 0 1 back", "0 0 0 1"), r"model\.tra:6:1: states ascend"),
        (("1 0 1 1", "1 0 2 1"), r"model\.tra:5:1: .*final, deadlock and goes on"),
        (("0 init", "0 goal"), r"model\.lab: 0 states have the label init"),
        (("2 goal far", "2 goal far init"), r"model\.lab: 2 states have the label init"),
        (("2 goal far", "2 goal near"), r"model\.lab:6:8: has a label that is not declared"),
        (("2 goal far", "3 goal far"), r"model\.lab:6:1: begins with no state; they go to 2"),
        (("#DECLARATION", "labels"), r"model\.lab:1:1: should begin with"),
        (("0 0 2 1.5", ""), r"model\.rew: the transition of state 0 to 2 has no reward"),
        (("0 0 2 1.5", "0 0 2 0"), r"model\.rew:2:1: the reward is a duration"),
        (("0 0 2 1.5", "0 1 2 1"), r"model\.rew:2:1: nothing has such a transition"),
        (("0 0 2 1.5", "0 2 2 1"), r"model\.rew:2:1: there is no such state or choice"),
        (("0 0 2 1.5", "0 4 0 77"), r"model\.rew:2:1: there is no such state or choice"),
        (("0 0 2 1.5", "0 0 2.5 1"), r"model\.rew:2:1: there is no such state or choice"),
        (("0 0 2 1.5", "0 0 1 2"), r"model\.rew:2:1: has a reward before"),
        (("0 0 2 1.5", "0 0 2 inf"), r"model\.rew:2:1: the reward .*finite"),
        (("0 0 2 1.5", "0 0 2 1.5 1"), r"model\.rew:2:1: should have 4 numbers, and has 5"),
        (("0 0 2 0.75", "0 0 2 \u0661"), r"model\.tra:3:1: .* number 4 is none$"),
        (("0 0 2 0.75", "0 0 3 0.75"), r"model\.tra:6:1: state 3 should come before or here"),
        (("2 goal far", "9" * 5000 + " goal"), r"model\.lab:6:1: begins with no state"),
        (("far", "f" * 300), r"model\.lab:2:1: labels have 1 to 255 characters"),
    ],
)
def test_what_is_wrong_with_a_model_is_located(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    rewards = "0 0 1 1\n0 0 2 1.5\n0 1 0 1\n2 0 0 1\n"
    texts = [text.replace(*change, 1) for text in (MDP, LABELS, rewards)]
    assert texts != [MDP, LABELS, rewards]
    with pytest.raises(ConfigError) as caught:
        explicit(tmp_path, *texts)
    assert re.search(message, str(caught.value)), caught.value


def test_a_state_without_transitions_must_be_labelled_as_an_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.tra:5:1: state 1"):
        explicit(tmp_path, MDP.replace("1 0 1 1\n", ""), LABELS.replace("1 final", "1"))
    world = explicit(tmp_path, MDP.replace("1 0 1 1\n", ""))
    assert world.num_states == 3


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("4 4 5", r"model\.tra:6:1: state 3 should come before or here"),
        ("2 4 5", r"model\.tra:1:1: announces 2 states; .* need 3"),
        ("3 5 5", r"model\.tra:1:1: announces 5 choices, and 4 follow"),
        ("3 4 6", r"model\.tra:1:1: announces 6 transitions, and 5 follow"),
        ("99999999 4 5", r"model\.tra:1:1: announces 99,999,999 states"),
        ("9" * 5000 + " 4 5", r"model\.tra:1:1: should begin with"),
    ],
)
def test_the_head_of_a_model_is_compared_with_its_lines(
    tmp_path: Path, head: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        explicit(tmp_path, PRISM[0].replace("3 4 5", head), PRISM[1])


def test_state_rewards_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.rew:3:1: "):
        explicit(tmp_path, MDP, rew="0 1\n2 1\n0 7\n")


def test_empty_lines_count_for_places_only(tmp_path: Path) -> None:
    assert explicit(tmp_path, "\n\n" + MDP).num_states == 3
    with pytest.raises(ConfigError, match=r"model\.tra:4:1: .* number 4 is none$"):
        explicit(tmp_path, "\n\n" + MDP.replace("0.25", "secret"))


def test_few_bytes_do_not_ask_for_much_room(tmp_path: Path) -> None:
    labels = " ".join(f'{i}="label {i}"' for i in range(1500))
    with pytest.raises(ConfigError, match=r"model\.lab:1:1: 1,500 labels of 9,999,999 states"):
        explicit(tmp_path, "9999999 1 1\n0 0 0 1\n", labels)
    with pytest.raises(ConfigError, match=r"model\.lab:2:1: .*1,048,576"):
        explicit(tmp_path, MDP, "#DECLARATION\n" + "a" * (2**20 + 1))
    with pytest.raises(ConfigError, match=r"/dev/null: "):
        read_explicit(tmp_path / "model.tra", Path("/dev/null"), None)


def test_a_model_needs_labels(tmp_path: Path) -> None:
    (tmp_path / "model.tra").write_text(MDP)
    with pytest.raises(ConfigError, match=r"needs labels .* model\.lab beside it"):
        world_in(tmp_path / "model.tra", None)
