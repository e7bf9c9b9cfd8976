"""A learner needs no world: it trains in a process that could not even import one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import cloudpickle
import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_phase2.actor import Phase2ActorFactory
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Params
from empo_phase2.state_recorder import learner_spec

WORLD = WorldModelRef.model_validate("multigrid/trivial")
STEPS = 12
LEARN = """
import json
import sys

import torch

from empo_core.components import build
from empo_learning.timers import Timers
from empo_phase2.behaviour import build_networks
from empo_phase2.experience import Block
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.goal_index import GoalIndex
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.quantities import Quantities
from empo_phase2.replay import Replay, ReplayShape


def learn(text, spec, slots, blocks, steps):
    params = Phase2Params.model_validate_json(text)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    humans = [spec.num_actions[human] for human in spec.humans]
    shape = ReplayShape(
        words=spec.state_words, dtype=spec.state_dtype,
        slots=len(slots["human"]), robot_actions=spec.num_robot_actions,
        human_slots=len(slots["human"]), human_actions=max(humans),
        profiles=spec.num_human_actions,
    )
    replay = Replay(params.replay.capacity, shape)
    for arrays in blocks:
        replay.add(Block.from_arrays(arrays), training_step=0)
    slots = GoalIndex(**{name: torch.from_numpy(array) for name, array in slots.items()})
    timers = Timers("cpu", enabled=False)
    networks = build_networks(params.values, spec)
    values = Quantities(networks, spec, slots, params.theory, build(params.aggregator))
    explorers = ExplorerSet(params.exploration, spec)
    learner = Learner(params, values, replay, build(params.collector), explorers, timers, 7)
    losses = []
    for _ in range(steps):
        learner.train(learner.schedule.at(learner.steps))
        losses.append({quantity: float(fit.loss) for quantity, fit in learner.fits.items()})
    states = {quantity: net.state_dict() for quantity, net in learner.networks.items()}
    weights = {
        f"{quantity}.{name}": tensor.tolist()
        for quantity, state in states.items()
        for name, tensor in state.items()
    }
    return losses, weights
"""
FORBIDDEN = {
    f"empo_multigrid.{name}"
    for name in ("world", "compiler", "kernel", "worldfile", "reference", "render", "environments")
}
SOLVERS = ("empo_exact.", "empo_tabular.", "empo_bushworld.")
ALONE = (
    f"FORBIDDEN, SOLVERS = {FORBIDDEN}, {SOLVERS}"
    + """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        # Plugins may say what they offer, but do none of it.
        inside = name.startswith(SOLVERS)
        if name in FORBIDDEN or (inside and not name.endswith(".plugin")):
            raise ImportError(f"{name} is a part of a world, which a learner does without")


sys.meta_path.insert(0, Refuse())
"""
)
MAIN = """
import cloudpickle

found = {}
for name, given in cloudpickle.load(sys.stdin.buffer).items():
    assert type(given["spec"].features).__module__ == "empo_multigrid.learn.compact"
    found[name] = learn(**given)
print(json.dumps([found, sorted(name for name in sys.modules if name.startswith("empo_"))]))
"""


def params(values: dict[str, Any]) -> Phase2Params:
    given: dict[str, Any] = {
        "human_prior": "exact",
        "values": values,
        "total_steps": STEPS,
        "warm_up": dict.fromkeys(("v_h_e", "x_h", "u_r", "q_r", "v_r"), 2) | {"ramp": 4},
        "optimiser": {"target_interval": 5},
        "num_envs": 32,
        "replay": {"store": "compact", "capacity": 100, "batch_size": 16},
    }
    return Phase2Params.model_validate(given)


def network(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "params": settings}


VALUES: dict[str, dict[str, Any]] = {
    "mlp": dict.fromkeys(("q_r", "v_h_e", "x_h", "u_r"), network("mlp", hidden=16)),
    "grid-conv": dict.fromkeys(("q_r", "v_h_e"), network("grid-conv", hidden=8)),
    "lookup": dict.fromkeys(("q_r", "v_h_e", "v_r"), "lookup"),
}


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Messages to a learner without the world: plain data, and a spec that reads state rows."""
    setting = params(values)
    world = build(WORLD)
    actor = Phase2ActorFactory(worlds=(WORLD,), params=setting, seed=1)(0)
    slots = GoalIndex.of(world.spec)
    return {
        "text": setting.model_dump_json(),
        "spec": learner_spec(world, "compact"),
        "slots": {name: getattr(slots, name).numpy() for name in ("human", "goal", "weight")},
        "blocks": [actor.act(0).arrays for _ in range(8)],
        "steps": STEPS,
    }


@pytest.fixture(scope="module", name="messages")
def _messages() -> dict[str, dict[str, Any]]:
    return {name: given(values) for name, values in VALUES.items()}


@pytest.fixture(scope="module", name="alone")
def _alone(messages: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Results of training in a separate process, and the EMPO modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE + LEARN + MAIN],
        input=cloudpickle.dumps(messages), capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    found, modules = json.loads(done.stdout)
    return found, modules


@pytest.mark.parametrize("name", VALUES)
def test_a_learner_trains_alike_where_no_world_can_be_imported(
    name: str, messages: dict[str, dict[str, Any]], alone: tuple[dict[str, Any], list[str]]
) -> None:
    here: dict[str, Any] = {}
    exec(LEARN, here)
    losses, weights = alone[0][name]
    assert [losses, weights] == list(here["learn"](**messages[name]))
    assert set(losses[-1]) == set(VALUES[name])
    assert len({str(loss) for loss in losses}) > STEPS // 2


def test_only_what_reads_rows_is_imported_of_a_worlds_plugin(
    alone: tuple[dict[str, Any], list[str]],
) -> None:
    modules = alone[1]
    assert "empo_multigrid.learn.compact" in modules
    assert not FORBIDDEN & set(modules)
    assert not [m for m in modules if m.startswith(SOLVERS) and not m.endswith(".plugin")]
