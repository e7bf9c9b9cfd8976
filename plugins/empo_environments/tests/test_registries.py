"""Ids are looked up in Gymnasium's registry, the packages of a table, and PettingZoo's packages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from empo_core.components import build
from empo_core.config import EnvironmentRef
from empo_core.errors import ConfigError
from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    VectorEnv,
    VectorLayout,
)
from empo_environments import registries
from empo_environments.params import GymnasiumParams

REGISTERS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register({name!r}, entry_point=CartPoleEnv, max_episode_steps=5)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that installs a package of one module, and forgets it after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    registries.packages.cache_clear()
    known = set(gymnasium.registry)
    names: set[str] = set()

    def install(name: str, text: str, **prefixes: str) -> None:
        assert name not in sys.modules, "the real package is installed"
        names.add(name)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(text)
        if prefixes:
            info = tmp_path / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            lines = [f"{prefix}- = {package}" for prefix, package in prefixes.items()]
            group = f"[{registries.GROUP}]\n"
            (info / "entry_points.txt").write_text(group + "\n".join(lines) + "\n")

    yield install
    registries.packages.cache_clear()
    for module in [each for each in sys.modules if each.split(".")[0] in names]:
        del sys.modules[module]
    for name in set(gymnasium.registry) - known:
        del gymnasium.registry[name]


def environment(text: str) -> Environment:
    built: Environment = build(EnvironmentRef.model_validate(text), EnvironmentContext())
    return built


def play(vector: VectorEnv, steps: int = 6) -> list[np.ndarray]:
    """Observations of some steps; each agent takes its first action."""
    vector.start(0)
    seen = []
    for _ in range(steps):
        arrival = vector.recv()
        seen.append(arrival.observation.copy())
        vector.send(arrival.block, np.zeros((len(arrival.observation), 1), np.int64))
    vector.close()
    return seen


def test_a_known_package_is_imported_where_its_environment_is_used(
    package: Callable[..., None],
) -> None:
    name = "gym_pusht/PushT-v0"
    package("gym_pusht", REGISTERS.format(name=name))
    assert name not in gymnasium.registry
    assert environment(f"gymnasium/{name}").spec().max_episode_steps == 5


def test_a_distribution_adds_a_package_by_an_entry_point(package: Callable[..., None]) -> None:
    package("orchard", REGISTERS.format(name="Orchard-v3"), Orchard="orchard")
    assert registries.packages()["Orchard-"] == "orchard"
    assert environment("gymnasium/Orchard-v3").spec().max_episode_steps == 5


IMPORTS = """
import importlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Importing(CartPoleEnv):
    def __init__(self, vehicle_class, render_mode=None):
        super().__init__()
        module, _, name = vehicle_class.rpartition(".")
        if module:
            getattr(importlib.import_module(module), name)

gymnasium.register("Orchard-v3", entry_point=Importing, max_episode_steps=5)
"""


@pytest.mark.parametrize("name", ["canary.call", "empo_core.run", "os.system"])
def test_an_environment_that_imports_its_arguments_is_given_no_names_of_code(
    package: Callable[..., None], name: str
) -> None:
    package("orchard", IMPORTS, Orchard="orchard")
    package("canary", "call = 1")

    def given(vehicle: str) -> Environment:
        params = {"id": "Orchard-v3", "kwargs": {"vehicle_class": vehicle}}
        return build(
            EnvironmentRef.model_validate({"name": "gymnasium", "params": params}),
            EnvironmentContext(),
        )

    assert given("plum").spec().max_episode_steps == 5
    with pytest.raises(ValueError, match=f"vehicle_class: '{name}' names code"):
        given(name)
    assert "canary" not in sys.modules


@pytest.mark.parametrize(
    "text", ["plum", "3.14", "ant.xml", "platform.xml", "os.path", "assets/ant.xml", "..", ""]
)
def test_other_texts_are_arguments(text: str) -> None:
    kwargs = {"xml_file": text, "config": [{"a": text, "vehicle_type": text.partition(".")[0]}, 1]}
    assert GymnasiumParams(id="CartPole-v1", kwargs=kwargs).kwargs == kwargs


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="package 'panda_gym'"):
        environment("gymnasium/PandaReach-v3").spec()


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (
            ModuleNotFoundError("No module named 'imageio'", name="imageio"),
            'pip install "empo-environments[mujoco]"',
        ),
        (
            gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[mujoco]"`'),
            'pip install "gymnasium[mujoco]"',
        ),
    ],
)
def test_what_a_task_of_mujoco_lacks_is_told_with_the_command_that_installs_it(
    missing: Exception, command: str
) -> None:
    def make(name: str) -> None:
        raise missing

    with pytest.raises(ConfigError, match=re.escape(command)) as caught:
        registries.make_gymnasium(make, "HalfCheetah-v5", {})
    assert "--import" not in str(caught.value)


def test_a_family_that_moved_is_found_in_its_new_package() -> None:
    pytest.importorskip("mpe2")
    found = environment("pettingzoo/mpe/simple_spread_v3")
    assert found.spec().agents == ("agent_0", "agent_1", "agent_2")
    first, *_, last = play(found.vector(2, VectorLayout()))
    assert first.shape == last.shape == (6, 18)
    assert np.isfinite(last).all()


def test_a_family_of_pettingzoo_itself_is_played() -> None:
    pytest.importorskip("pygame", reason="PettingZoo's butterflies draw with it")
    found = environment("pettingzoo/butterfly/knights_archers_zombies_v11")
    assert len(found.spec().agents) == 4
    first, *_, last = play(found.vector(1, VectorLayout()))
    assert first.shape == last.shape
    assert np.isfinite(last).all()


def test_a_version_that_is_missing_is_answered_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="there is: knights_archers_zombies_v11"):
        environment("pettingzoo/butterfly/knights_archers_zombies_v1").spec()
