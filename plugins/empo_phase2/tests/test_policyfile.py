"""Policy files: they come back as they were, and nothing else gets in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from doors import DoorWorld, EagerHumans
from torch import Tensor

from empo_core.errors import NonFiniteError, StorageError
from empo_core.features import Featurizer, RowFeatures
from empo_core.protocols import RobotPolicy, WorldModel
from empo_learning.saved_model import KEY
from empo_phase2.behaviour import RobotBehaviour, build_networks
from empo_phase2.params import Phase2Params
from empo_phase2.policyfile import LearnedPolicy, load_policy, save_policy
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec
from empo_worlds.ensemble import EnsembleWorld

pytestmark = pytest.mark.usefixtures("components")

Edit = Callable[..., None]
STATES = torch.tensor([[0, 0], [1, 0], [0, 0]], dtype=torch.int16)
STEPS = torch.tensor([4, 2, 1])


class CompactDoor(DoorWorld):
    """A ``DoorWorld`` with compact rows, which say how hard the door is."""

    def __init__(self, hardness: int = 7, horizon: int = 4) -> None:
        super().__init__(horizon)
        self._hardness = hardness

    @property
    def compact_features(self) -> Featurizer:
        return RowFeatures(3)

    def compact(self, states: Tensor) -> Tensor:
        hard = torch.full((len(states), 1), self._hardness, dtype=torch.int32)
        return torch.cat([states.int(), hard], 1)


def params_of(**changes: Any) -> Phase2Params:
    """Q_r and V_h^e are learned, unless something else is asked for."""
    data: dict[str, Any] = {
        "human_prior": "test-eager",
        "values": {
            "q_r": {"name": "test-flat", "params": {"hidden": 5}},
            "v_h_e": "test-flat",
        },
        "theory": {"beta_r": 3.0, "gamma_r": 0.9},
        "aggregator": "test-adding",
    }
    return Phase2Params.model_validate(data | changes)


AHEAD = {"q_r": None, "v_h_e": "test-flat", "v_r": "test-flat"}


def published(params: Phase2Params, world: WorldModel) -> dict[str, Tensor]:
    """Random weights, as a learner publishes them."""
    torch.manual_seed(3)
    quantity = "v_r" if params.values.q_r is None else "q_r"
    networks = build_networks(params.values, learner_spec(world, params.replay.store))
    return {f"{quantity}.{k}": v.clone() for k, v in networks[quantity].state_dict().items()}


def saved(path: Path, params: Phase2Params, world: WorldModel) -> Path:
    save_policy(path, params, world, published(params, world))
    return path


@pytest.mark.parametrize("values", [None, AHEAD], ids=["q_r", "looking-ahead"])
def test_a_policy_acts_as_it_did(tmp_path: Path, values: Any) -> None:
    params = params_of() if values is None else params_of(values=values)
    world = DoorWorld()
    weights = published(params, world)
    file = tmp_path / "new" / "p.safetensors"
    save_policy(file, params, world, weights)
    policy = load_policy(file, DoorWorld())
    assert isinstance(policy, RobotPolicy)
    encoder = StateEncoder(world, "rows", None if values is None else EagerHumans(world))
    behaviour = RobotBehaviour(params, world.spec, encoder.goals)
    behaviour.load(weights)
    expected = behaviour.policy(*encoder(STATES, STEPS), 3.0)
    chances = policy.policy(STATES, STEPS)
    torch.testing.assert_close(chances.float(), expected)
    torch.testing.assert_close(chances.sum(1), torch.ones(3))
    assert chances[1].tolist() == [1.0, 0.0]  # An open door cannot be opened.
    assert 0 < chances[0, 0] < 1
    assert not torch.equal(chances[0], chances[2])
    assert policy.policy(STATES[:0], STEPS[:0]).shape == (0, 2)


def test_a_policy_file_holds_no_pickle_and_is_the_same_each_time(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", params_of(), DoorWorld()).read_bytes()
    two = saved(tmp_path / "two", params_of(), DoorWorld()).read_bytes()
    assert one == two
    with safetensors.safe_open(tmp_path / "one", "pt") as file:
        sealed = json.loads(file.metadata()[KEY])
        assert all(name.startswith("q_r.") for name in file.keys())  # noqa: SIM118
    assert sealed["version"] == 1
    assert sealed["body"]["params"]["values"]["q_r"]["params"] == {"hidden": 5}
    assert "collector" not in sealed["body"]["params"]


def test_saving_again_replaces_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    other = params_of(theory={"beta_r": 0.0})
    save_policy(file, other, DoorWorld(), published(other, DoorWorld()))
    chances = load_policy(file, DoorWorld()).policy(STATES[:1], STEPS[:1])
    assert chances.tolist() == [[0.5, 0.5]]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["p"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, bad: float) -> None:
    weights = published(params_of(), DoorWorld())
    weights["q_r.head.bias"][0] = bad
    with pytest.raises(NonFiniteError, match=r"saved .*q_r\.head\.bias"):
        save_policy(tmp_path / "p", params_of(), DoorWorld(), weights)
    assert not (tmp_path / "p").exists()


# Which worlds fit.


class OtherStart(DoorWorld):
    def initial_state(self) -> Tensor:
        return self._rows[1].clone()


class OtherLaw(DoorWorld):
    def __init__(self) -> None:
        super().__init__()
        self._prob = self._prob.flip(1)


def renamed(world: DoorWorld, **changes: Any) -> DoorWorld:
    world.spec = replace(world.spec, **changes)
    return world


def other_goals() -> DoorWorld:
    world = DoorWorld()
    goals = (replace(world.spec.goals[0], weight=9.0), *world.spec.goals[1:])
    return renamed(world, goals=goals)


def other_actions() -> DoorWorld:
    world = DoorWorld()
    agents = list(world.spec.agents)
    agents[1] = replace(agents[1], actions=("wait", "kick"))
    return renamed(world, agents=tuple(agents))


def one_human() -> DoorWorld:
    spec = DoorWorld().spec
    return renamed(DoorWorld(), agents=spec.agents[:2], goals=spec.goals[1:2])


@pytest.mark.parametrize(
    ("world", "difference"),
    [
        (lambda: DoorWorld(5), "horizon was 4, not 5"),
        (OtherStart, "starts"),
        (OtherLaw, "first step"),
        (other_goals, "goals were .*, not "),
        (other_actions, "agents were .*, not "),
        (one_human, "agents were .*, not "),
    ],
)
def test_another_world_is_refused(tmp_path: Path, world: Any, difference: str) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    with pytest.raises(StorageError, match=rf"(?s)'door', .*{difference}"):
        load_policy(file, world())


def test_compact_rows_fit_other_worlds_of_the_same_size(tmp_path: Path) -> None:
    params = params_of(replay={"store": "compact"})
    file = saved(tmp_path / "p", params, CompactDoor(7))
    same = load_policy(file, CompactDoor(7)).policy(STATES, STEPS)
    other = load_policy(file, CompactDoor(9)).policy(STATES, STEPS)
    assert not torch.equal(same[0], other[0])
    with pytest.raises(StorageError, match=r"horizon.* 4, not 6"):
        load_policy(file, CompactDoor(7, horizon=6))


def test_an_ensemble_of_rows_takes_its_other_worlds_along(tmp_path: Path) -> None:
    params = params_of(ensemble={"worlds": [{"name": "test-door", "params": {"horizon": 4}}]})
    played = EnsembleWorld([DoorWorld(), DoorWorld()])
    file = saved(tmp_path / "p", params, played)
    chances = load_policy(file, DoorWorld()).policy(STATES, STEPS)
    assert torch.equal(chances, load_policy(file, played).policy(STATES, STEPS))
    encoder = StateEncoder(played, "rows", None)
    own = LearnedPolicy(params, learner_spec(played, "rows"), encoder)
    own.load(published(params, played))
    assert torch.equal(chances, own.policy(STATES, STEPS))


# Damage, beyond what test_saved_model.py of empo_learning shows.


def test_a_file_of_a_later_version_is_refused(tmp_path: Path, edit_model: Edit) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    edit_model(file, {})
    load_policy(file, DoorWorld())
    edit_model(file, {"anything": 1}, version=2)
    with pytest.raises(StorageError, match="version 2"):
        load_policy(file, DoorWorld())


def test_a_file_that_needs_a_plugin_that_is_not_there_says_so(
    tmp_path: Path, edit_model: Edit
) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    values = {"q_r": {"name": "test-flap", "params": {"hidden": 5}}, "v_h_e": "test-flat"}
    edit_model(file, {"params": {"values": values}})
    with pytest.raises(
        StorageError,
        match=r"values\.q_r",
    ):
        load_policy(file, DoorWorld())


def test_weights_that_do_not_fit_their_network_are_refused(
    tmp_path: Path, edit_model: Edit
) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    values = {"q_r": {"name": "test-flat", "params": {"hidden": 6}}, "v_h_e": "test-flat"}
    edit_model(file, {"params": {"values": values}})
    with pytest.raises(StorageError, match="parameters"):
        load_policy(file, DoorWorld())


def test_unknown_keys_in_the_header_are_refused(tmp_path: Path, edit_model: Edit) -> None:
    file = saved(tmp_path / "p", params_of(), DoorWorld())
    edit_model(file, {"surplus": 1})
    with pytest.raises(StorageError, match=r"surplus"):
        load_policy(file, DoorWorld())
