"""Robots are paid the U_r of a finished run, or of an algorithm that runs first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core import Component, Config
from empo_core.config import RunConfig
from empo_core.errors import ConfigError, StorageError
from empo_core.experiment import Experiment
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import Algorithm, RunContext, WorldModel
from empo_core.protocols.environments import EnvironmentContext, VectorLayout
from empo_core.runs.atomic import write_file
from empo_core.runs.directory import RESULTS, RunDirectory
from empo_testing.worlds import TinyWorld
from empo_world_environments.environment import WorldEnvironment
from empo_world_environments.params import PowerReward, WorldParams
from empo_world_environments.reward import power_reward


class DoorParams(Config):
    horizon: int = 3


class NumberParams(Config):
    number: float = 2.0


def door(params: DoorParams) -> TinyWorld:
    return TinyWorld(params.horizon)


class Saved:
    """A number, kept in a file."""

    def __init__(self, number: float) -> None:
        self.number = number

    def summary(self) -> dict[str, Any]:
        return {"number": self.number}

    def report(self) -> str:
        return f"the number is {self.number}"

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        write_file(directory / "number.txt", str(self.number))


class Blind(Algorithm):
    """An algorithm that knows no U_r."""

    def __init__(self, params: NumberParams) -> None:
        self._params = params

    def run(self, context: RunContext) -> Saved:
        if self._params.number < 0:
            raise StorageError("no room for negative numbers")
        with (context.directory / "runs.txt").open("a") as file:
            file.write(f"{context.seed} {context.resume}\n")
        return Saved(self._params.number)

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        return {}


class Seeing(Blind):
    """U_r is the saved number, times what is open, minus the time."""

    has_intrinsic_reward = True

    def intrinsic_reward(self, context: RunContext) -> Any:
        file = context.directory / RESULTS / "number.txt"
        if not file.exists():
            raise StorageError(f"{file}: is missing")
        number = float(file.read_text())
        return lambda states, steps_left: -number * (1.0 + states[:, 0]) - steps_left


@pytest.fixture
def registry() -> Registry:
    provider = Provider("test", "1", "test")
    parts: list[tuple[Any, str, type[Config], str]] = [
        ("world_model", "door", DoorParams, "door"),
        ("algorithm", "blind", NumberParams, "Blind"),
        ("algorithm", "seeing", NumberParams, "Seeing"),
    ]
    return Registry(
        Offer(provider, Component(kind=k, name=n, params=p, target=f"{__name__}:{t}", api=1))
        for k, n, p, t in parts
    )


@pytest.fixture
def run(registry: Registry, tmp_path: Path) -> Path:
    """A finished run on the door."""
    return ran(registry, tmp_path, "seeing")


def ran(registry: Registry, tmp_path: Path, algorithm: str, horizon: int = 3) -> Path:
    data = {
        "world_model": {"name": "door", "params": {"horizon": horizon}},
        "algorithm": {"name": algorithm, "params": {"number": 4.0}},
        "seed": 7,
    }
    config = RunConfig.model_validate(
        {**data, "runs": str(tmp_path / "runs")}, context={"registry": registry}
    )
    return Experiment.start(config, registry=registry).directory


def asked(registry: Registry, **options: Any) -> PowerReward:
    data = {"kind": "power", **options}
    return PowerReward.model_validate(data, context={"registry": registry})


STATES = torch.tensor([[0, 0], [1, 0], [0, 0]], dtype=torch.int16)
LEFT = torch.tensor([2, 1, 2])


def test_a_run_says_what_states_are_worth(registry: Registry, run: Path, tmp_path: Path) -> None:
    reward = power_reward(
        asked(registry, run=str(run), scale=0.5), TinyWorld(), tmp_path / "power", registry=registry
    )
    assert reward(STATES, LEFT).tolist() == [-3.0, -4.5, -3.0]
    assert reward(STATES[1:], LEFT[1:] + 1).tolist() == [-5.0, -3.5]
    assert reward(STATES, LEFT).dtype == torch.float32
    assert not (tmp_path / "power").exists()


def test_an_algorithm_runs_once_and_is_asked_again_later(
    registry: Registry, tmp_path: Path
) -> None:
    params = asked(registry, algorithm={"name": "seeing", "params": {"number": 1.0}})
    for _ in range(2):
        reward = power_reward(params, TinyWorld(), tmp_path / "power", seed=5, registry=registry)
        assert reward(STATES, LEFT).tolist() == [-3.0, -3.0, -3.0]
    assert (tmp_path / "power" / "runs.txt").read_text() == "5 False\n"


def test_an_algorithm_that_was_interrupted_goes_on(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    params = asked(registry, algorithm="seeing")
    power_reward(params, TinyWorld(), tmp_path / "power", registry=registry)
    assert (tmp_path / "power" / "runs.txt").read_text() == "0 True\n"


@pytest.mark.parametrize("kind", ["run", "algorithm"])
def test_an_algorithm_that_knows_no_reward_is_refused(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    given = "blind" if kind == "algorithm" else str(ran(registry, tmp_path, "blind"))
    params = asked(registry, **{kind: given})
    with pytest.raises(ConfigError, match=r"'blind'.* U_r"):
        power_reward(params, TinyWorld(), tmp_path / "power", registry=registry)


def test_a_run_on_another_world_is_refused(registry: Registry, run: Path, tmp_path: Path) -> None:
    params = asked(registry, run=str(run))
    with pytest.raises(ConfigError, match=r"world .*'door'"):
        power_reward(params, TinyWorld(5), tmp_path, registry=registry)


def test_a_world_that_goes_on_otherwise_is_another_world(
    registry: Registry, run: Path, tmp_path: Path
) -> None:
    world = TinyWorld()
    world._prob = world._prob.flip(1)
    with pytest.raises(ConfigError, match="first step"):
        power_reward(asked(registry, run=str(run)), world, tmp_path, registry=registry)


def test_a_run_that_has_not_finished_is_refused(
    registry: Registry, run: Path, tmp_path: Path
) -> None:
    RunDirectory(run).mark("interrupted")
    with pytest.raises(ConfigError, match=r"\(interrupted\)"):
        power_reward(asked(registry, run=str(run)), TinyWorld(), tmp_path, registry=registry)


def test_a_folder_that_is_no_run_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run directory"):
        power_reward(asked(registry, run=str(tmp_path)), TinyWorld(), tmp_path, registry=registry)


def test_the_params_of_a_run_make_its_copies(registry: Registry, run: Path, tmp_path: Path) -> None:
    params = WorldParams.model_validate(
        {"reward": {"kind": "power", "run": str(run)}},
        context={"registry": registry},
    )
    context = EnvironmentContext(world=TinyWorld(), directory=tmp_path / "power")
    environment = WorldEnvironment(params, context, registry=registry)
    assert len(environment.spec().agents) == 1
    vector = environment.vector(4, VectorLayout(blocks=2, desync=True))
    assert (vector.spec.num_envs, vector.spec.num_blocks) == (4, 2)
    humans = WorldParams.model_validate({"learners": "humans", "reward": {"kind": "goal"}})
    environment = WorldEnvironment(humans, EnvironmentContext(world=TinyWorld()))
    assert len(environment.spec().agents) == 2
    assert environment.vector(3, VectorLayout()).spec.num_agents == 6
