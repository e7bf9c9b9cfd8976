"""``empo check`` refuses what ``empo run`` refuses before its first step, in the same words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config import installed

PLUGIN = '''
from empo_core import Component, Config, hookimpl

class NoParams(Config):
    """None."""

@hookimpl
def empo_components():
    for kind, name in (
        ("schedule", "sch_gone:Gone"), ("schedule", "sch_parts:Words"), ("schedule", "sch_parts:Raises"),
        ("policy_network", "sch_parts:Narrow"), ("policy_network", "sch_parts:Wide"),
        ("policy_network", "sch_parts:Nothing"), ("policy_network", "sch_parts:Bare"),
        ("callback", "sch_parts:Late"),
    ):
        short = name.partition(":")[2].lower()
        yield Component(kind=kind, name=short, params=NoParams, target=name, api=1)
'''  # noqa: E501
PARTS = """
import torch
from empo_core.protocols import Callback, PolicyNetwork

class Words:
    def __init__(self, params): ...
    def __call__(self, progress):
        return "x"

class Raises:
    def __init__(self, params): ...
    def __call__(self, progress):
        return [][3]

class Narrow(PolicyNetwork):
    features = 5
    def __init__(self, params, observations):
        super().__init__()
        self.layer = torch.nn.Linear(observations.words, 4)
    def forward(self, observation):
        return self.layer(observation)

class Wide(Narrow):
    features = 4
    def forward(self, observation):
        return self.layer(observation[:, :1])

class Late(Callback):
    def __init__(self, params): ...
    def after_update(self): ...

class Nothing(Narrow):
    def forward(self, observation):
        self.layer(observation)

class Bare(Narrow):
    def __init__(self, params, observations):
        self.layer = torch.nn.Linear(observations.words, 5)
"""
ROLLOUT = """
algorithm:
  name: rollout
  params:
    total_steps: 64
    environment: gymnasium/CartPole-v1
    num_envs: 2
    vectorisation: {backend: serial}
    reporting: {evaluation_interval: 1, evaluation_episodes: 0}
"""
EXACT = "{world_model: {name: multigrid/trivial, params: {max_steps: 3}}, algorithm: exact}"
COALITIONS = "algorithm.params.diagnostics=[coalitions]"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed plugin whose components are broken, each in its way."""
    site = tmp_path / "site"
    info = site / "empo_sch-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-sch\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[empo]\nempo-sch = sch_plugin\n")
    (site / "sch_plugin.py").write_text(PLUGIN)
    (site / "sch_gone.py").write_text("import a_package_that_is_not_there\n")
    (site / "sch_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(site)
    installed.cache_clear()
    yield site / "sch_parts.py"
    installed.cache_clear()
    for name in ("sch_plugin", "sch_parts"):
        sys.modules.pop(name, None)


def refusals(tmp_path: Path, text: str, overrides: tuple[str, ...]) -> list[str]:
    """The messages of both commands, and that both refuse."""
    path = tmp_path / "run.yaml"
    path.write_text(text)
    messages = []
    for command in ("check", "run"):
        done = CliRunner().invoke(app, [command, str(path), *overrides, f"runs={tmp_path}/runs"])
        assert done.exit_code in (2, 3), (command, done.output)
        messages.append(done.stderr)
    return messages


@pytest.mark.parametrize("callback", ["plateau", "early-stopping", "best-checkpoint"])
def test_callbacks_that_watch_evaluations_need_some(tmp_path: Path, callback: str) -> None:
    checked, ran = refusals(tmp_path, ROLLOUT, (f"callbacks=[{callback}]",))
    assert checked == ran
    assert "algorithm.params.reporting.evaluation_episodes" in checked


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("algorithm.params.optimiser.lr_schedule=gone", "a_package_that_is_not_there"),
        ("algorithm.params.optimiser.lr_schedule=words", "sch_parts.py:7)"),
        ("algorithm.params.optimiser.lr_schedule=raises", "sch_parts.py:13"),
        ("algorithm.params.policy.network=narrow", "features"),
        ("algorithm.params.policy.network=wide", "sch_parts.py:26"),
        ("callbacks=[late]", "sch_parts.py:30)"),
        ("algorithm.params.policy.network=nothing", "sch_parts.py:33)"),
    ],
)
def test_components_that_cannot_do_their_work_are_refused(
    plugin: Path, tmp_path: Path, override: str, word: str
) -> None:
    checked, ran = refusals(tmp_path, ROLLOUT, (override,))
    assert checked == ran
    assert word in checked


def test_a_mistake_in_a_constructor_is_located_in_the_config_and_in_the_code(
    plugin: Path, tmp_path: Path
) -> None:
    for message in refusals(tmp_path, ROLLOUT, ("algorithm.params.policy.network=bare",)):
        assert "command line: algorithm.params.policy.network: " in message
        assert "sch_parts.py:38)" in message


def test_goals_of_coalitions_must_exist(tmp_path: Path) -> None:
    goals = "algorithm.params.coalition_goals={nope: {any_of: [nope]}}"
    checked, ran = refusals(tmp_path, EXACT, (COALITIONS, goals))
    assert checked == ran
    assert "algorithm.params.coalition_goals.nope" in checked
