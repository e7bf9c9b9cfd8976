"""Environments of other packages: by entry point or --import, with different spaces, with turns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from empo_core.components import build
from empo_core.config import EnvironmentRef
from empo_core.errors import ConfigError
from empo_core.plugins import imports
from empo_core.protocols import Environment
from empo_core.protocols.environments import ActionSpec, EnvironmentContext, TimeStep, VectorLayout
from empo_environments.pettingzoo_env import PettingZooEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.trial import random_action
from empo_testing.environment import snapshot

FARM = """
import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

class Farm(ParallelEnv):
    metadata = {"name": "farm"}
    possible_agents = ["dog", "sheep"]
    seen = {"dog": 4, "sheep": 2}
    options = {"dog": spaces.MultiDiscrete([2, 3]), "sheep": spaces.Discrete(4)}
    def __init__(self, fences=1):
        self.fences, self.acted = fences, []
    def observation_space(self, agent): return spaces.Box(-9, 9, (self.seen[agent],), np.float32)
    def action_space(self, agent): return self.options[agent]
    def see(self): return {a: np.full(n, n, np.float32) for a, n in self.seen.items()}
    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        return self.see(), {a: {} for a in self.agents}
    def step(self, actions):
        assert all(self.options[a].contains(x) for a, x in actions.items()), actions
        self.acted.append(actions)
        self.time += 1
        over = self.time == 5
        flags = {a: over for a in self.agents}
        rewards = {a: float(self.fences) for a in self.agents}
        self.agents = [] if over else self.agents
        return self.see(), rewards, flags, {a: False for a in flags}, {a: {} for a in flags}

def parallel_env(**kwargs): return Farm(**kwargs)
def dangerous(**kwargs): raise SystemExit("called")
"""


def environment(name: Any) -> Environment:
    made: Environment = build(EnvironmentRef.model_validate(name), EnvironmentContext())
    return made


def steps(vector: Any, number: int, seed: int = 0) -> list[TimeStep]:
    """Time steps of some random actions."""
    generator = np.random.default_rng(seed)
    vector.start(3)
    arrivals = [snapshot(vector.recv())]
    for _ in range(number):
        vector.send(0, random_action(vector.spec, arrivals[-1], generator))
        arrivals.append(snapshot(vector.recv()))
    vector.close()
    return arrivals


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, of which `empo_farm` is imported as by --import."""
    (tmp_path / "empo_farm").mkdir()
    (tmp_path / "empo_farm" / "__init__.py").write_text(FARM)
    (tmp_path / "empo_farm" / "yard_v2.py").write_text("from empo_farm import parallel_env\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "_imported", [])
    imports.import_extra(["empo_farm"])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("empo_farm")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["Farm", "yard_v2"])
def test_a_package_that_the_command_line_names_is_played(package: Path, name: str) -> None:
    ref = {"name": f"pettingzoo/empo_farm/{name}", "params": {"kwargs": {"fences": 3}}}
    arrivals = steps(environment(ref).vector(2, VectorLayout()), 5)
    assert arrivals[-1].reward.tolist() == [3.0] * 4
    assert arrivals[-1].terminated.all()


def test_packages_that_nobody_names_are_not_imported(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"'empo_other'.*--import: empo_farm"):
        environment("pettingzoo/empo_other/Farm").spec()
    monkeypatch.setattr(imports, "_imported", [])
    with pytest.raises(ConfigError, match=r"'empo_farm'.*--import: none"):
        environment("pettingzoo/empo_farm/Farm").spec()


@pytest.mark.parametrize("name", ["dangerous", "np", "missing_v0"])
def test_only_environments_of_a_package_are_called(package: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"id: .*{name}"):
        environment(f"pettingzoo/empo_farm/{name}").spec()


def test_a_distribution_offers_environments_by_entry_points(package: Path) -> None:
    info = package / "empo_farm-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-farm\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[empo.pettingzoo]\nacre/meadow_v0 = empo_farm:Farm\n")
    assert environment("pettingzoo/acre/meadow_v0").spec().agents == ("dog", "sheep")
    with pytest.raises(ConfigError, match="distributions: acre/meadow_v0"):
        environment("pettingzoo/acre/other_v0").spec()


def test_rows_of_different_spaces_are_padded(package: Path) -> None:
    vector = environment("pettingzoo/empo_farm/Farm").vector(1, VectorLayout())
    spec = vector.spec
    assert (spec.observations.words, spec.actions.choices, spec.masks) == (4, (4, 3), True)
    first, *_ = steps(vector, 12)  # The farm checks the actions that it gets.
    assert first.observation.tolist() == [[4, 4, 4, 4], [2, 2, 0, 0]]
    assert first.mask is not None
    # The dog chooses among 2 of 4 and all 3 options; the sheep has no second choice.
    assert first.mask.astype(int).tolist() == [[1, 1, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("name", "agents", "words", "actions"),
    [
        ("simple_tag_v3", 4, 16, ActionSpec(choices=(5,))),
        ("simple_speaker_listener_v4", 2, 11, ActionSpec(choices=(5,))),
    ],
)
def test_particle_worlds_whose_agents_differ_are_played(
    name: str, agents: int, words: int, actions: ActionSpec
) -> None:
    pytest.importorskip("mpe2")
    found = environment(f"pettingzoo/mpe/{name}")
    spec = found.spec()
    assert (len(spec.agents), spec.observations.words, spec.actions) == (agents, words, actions)
    arrivals = steps(found.vector(2, VectorLayout()), 30)
    assert any(arrival.truncated.any() for arrival in arrivals)


def test_numbers_of_different_bounds_have_the_widest() -> None:
    pytest.importorskip("mpe2")
    ref = {
        "name": "pettingzoo/mpe/simple_speaker_listener_v4",
        "params": {"kwargs": {"continuous_actions": True}},
    }
    spec = environment(ref).spec()
    assert (len(spec.actions.low), spec.masks) == (5, False)
    steps(environment(ref).vector(1, VectorLayout()), 3)


class Odd:
    """Two agents whose spaces cannot be padded."""

    possible_agents = ("left", "right")
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, observed: list[gymnasium.Space], acted: list[gymnasium.Space]) -> None:
        self.agents = list(self.possible_agents)
        self._observed, self._acted = observed, acted

    def observation_space(self, agent: str) -> gymnasium.Space:
        return self._observed[self.agents.index(agent)]

    def action_space(self, agent: str) -> gymnasium.Space:
        return self._acted[self.agents.index(agent)]

    def reset(self, **_: Any) -> Any: ...
    def step(self, actions: Any) -> Any: ...


def test_what_cannot_be_padded_is_told_with_both_agents() -> None:
    small, large = (spaces.Box(0, 255, (side, side, 3), np.uint8) for side in (8, 9))
    option, number = spaces.Discrete(2), spaces.Box(-1, 1, (2,))
    with pytest.raises(ConfigError, match=r"'left' observes.*'right' observes"):
        PettingZooEnv(Odd([small, large], [option, option]))
    with pytest.raises(ConfigError, match=r"'left' acts by options.*'right' by numbers"):
        PettingZooEnv(Odd([small, small], [option, number]))


def test_agents_take_turns() -> None:
    pytest.importorskip("pettingzoo.classic.connect_four_v3")
    vector = environment("pettingzoo/classic/connect_four_v3").vector(1, VectorLayout())
    assert vector.spec.agents == ("player_0", "player_1")
    arrivals = steps(vector, 60, seed=1)
    turns = [arrival.mask[:, 1:].any(1).tolist() for arrival in arrivals]  # type: ignore[index]
    # Whoever waits has the first option alone.
    assert turns[:4] == [[True, False], [False, True]] * 2
    ends = [arrival for arrival in arrivals if arrival.terminated.any()]
    assert ends
    # Both players learn how a game ends, whose turn it ever was.
    assert all(arrival.terminated.all() for arrival in ends)
    assert sorted(ends[0].reward.tolist()) == [-1.0, 1.0]


@pytest.mark.filterwarnings("ignore::UserWarning")  # The game's own, of a missing render_mode.
def test_pictures_of_butterflies_are_resized() -> None:
    pytest.importorskip("pygame")
    name = "pettingzoo/butterfly/cooperative_pong_v6"
    spec = environment({"name": name, "params": {"picture_size": 16}}).spec()
    assert spec.observations.grid is not None
    assert spec.observations.grid[1:] == (16, 16)
    numbers = {"name": "pettingzoo/mpe/simple_spread_v3", "params": {"picture_size": 16}}
    with pytest.raises(ConfigError, match="picture_size: belongs"):
        environment(numbers).spec()


def test_equal_spaces_need_no_mask() -> None:
    pytest.importorskip("mpe2")
    vector: SerialVectorEnv = environment("pettingzoo/mpe/simple_spread_v3").vector(  # type: ignore[assignment]
        1, VectorLayout()
    )
    assert vector.spec.masks is False
    assert steps(vector, 1)[0].mask is None
