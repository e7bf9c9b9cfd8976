"""Learned robot policies as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, JsonValue
from torch import Tensor

from empo_core.components import build
from empo_core.errors import StorageError
from empo_core.protocols import ValueNetwork, Weights, WorldModel
from empo_core.runs.atomic import StrictModel
from empo_core.runs.inputs import in_this_run
from empo_core.types import AgentSpec, Goal, Role, WorldSpec
from empo_core.world_content import world_digest
from empo_learning.saved_model import Format, read_model, rebuilding, write_model
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.params import Phase2Params
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec
from empo_worlds.ensemble import EnsembleWorld, prior_of

FORMAT = Format("empo-phase2-policy", 1)
AT_ONCE = 4096
"""States whose policies are worked out at the same time."""


class _Agent(StrictModel):
    name: str
    role: Role
    actions: list[str]


class _Goal(StrictModel):
    human: int = Field(ge=0)
    name: str
    weight: float
    features: list[float]


class _Learned(StrictModel):
    """Spec that the networks were built for: a world's, with the learner's rows."""

    name: str
    agents: list[_Agent]
    goals: list[_Goal]
    state_words: int = Field(ge=0)
    state_dtype: Literal["uint8", "int8", "int16", "int32", "int64"]
    horizon: int | None
    features: dict[str, int]


class _Body(StrictModel):
    params: dict[str, JsonValue]
    learned: _Learned
    world: str | None


class LearnedPolicy:
    """The robots' power-law policy of learned values; an ``empo_core.protocols.RobotPolicy``."""

    def __init__(self, params: Phase2Params, spec: WorldSpec, encoder: StateEncoder) -> None:
        """Prepare the policy for rows of ``spec``; it acts evenly until weights are loaded."""
        if params.values.q_r is None and not encoder.has_successors:
            raise ValueError("where Q_r is not learned, the encoder needs a human prior")
        self._behaviour = RobotBehaviour(params, spec, encoder.goals)
        self._encoder, self._beta_r = encoder, params.theory.beta_r
        self._num_actions = spec.num_robot_actions

    @property
    def network(self) -> ValueNetwork:
        """Network of the policy: that of Q_r, or of V_r where Q_r is not learned."""
        return self._behaviour.network

    def load(self, weights: Weights) -> None:
        """Act with these weights from now on, named as a learner publishes them."""
        self._behaviour.load(weights)

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; unavailable ones have 0."""
        parts = [torch.zeros(0, self._num_actions, dtype=torch.float64)]
        for first in range(0, len(states), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            policy = self._behaviour.policy(
                *self._encoder(states[part], steps_left[part]), self._beta_r
            )
            parts.append(policy.double())
        chances = torch.cat(parts)
        # Networks say slightly different things in batches of different sizes; single precision
        # does not promise more than that.
        return (chances / chances.sum(1, keepdim=True)).float()


def save_policy(
    path: str | Path, params: Phase2Params, world: WorldModel, weights: Weights
) -> None:
    """Write a learned policy into a file.

    Args:
        path: The file, replaced at once or not at all; its folder is made if missing.
        params: The parameters of the run.
        world: What was learned in: the world, or an ensemble.
        weights: What the learner published last.

    Raises:
        NonFiniteError: if a weight is not finite.
        StorageError: if the file cannot be written.
    """
    quantity = "v_r" if params.values.q_r is None else "q_r"
    store = params.replay.store
    included: dict[str, Any] = {
        "human_prior": True, "values": True, "theory": True, "aggregator": True,
        "replay": {"store"},
    }  # fmt: skip
    if isinstance(world, EnsembleWorld) and store == "rows":
        included["ensemble"] = True  # Its rows mean nothing without the other worlds.
    body = _Body(
        params=params.model_dump(mode="json", include=included),
        learned=_described(learner_spec(world, store)),
        world=world_digest(world) if store == "rows" else None,
    )
    of_quantity = {
        name: tensor for name, tensor in weights.items() if name.startswith(f"{quantity}.")
    }
    write_model(Path(path), FORMAT, body, of_quantity)


def load_policy(path: str | Path, world: WorldModel) -> LearnedPolicy:
    """The policy in a file that ``save_policy`` wrote.

    Args:
        path: The file.
        world: Where to act: the world of the run, or its ensemble. With
            ``replay.store: compact`` it may be any world with the same agents, horizon and size.

    Raises:
        StorageError: if the file is missing, damaged, foreign, or written by another version; a
            plugin that it needs is not installed; or the world is another.
    """
    path = Path(path)
    saved = read_model(path, FORMAT, _Body)
    body = saved.body
    with rebuilding(path, "empo-phase2"):
        params = Phase2Params.model_validate(in_this_run(body.params, path.resolve().parents[1]))
        played = world
        if params.ensemble.worlds and not isinstance(world, EnsembleWorld):
            played = EnsembleWorld([world, *map(build, params.ensemble.worlds)])
    here = learner_spec(played, params.replay.store)
    _check_fit(path, body, here, None if body.world is None else world_digest(played))
    prior = prior_of(params.human_prior, played) if params.values.q_r is None else None
    encoder = StateEncoder(played, params.replay.store, prior)
    with rebuilding(path, "empo-phase2"):
        policy = LearnedPolicy(params, _spec_of(body.learned, here), encoder)
        policy.load(saved.weights)
    return policy


def _described(spec: WorldSpec) -> _Learned:
    return _Learned(
        name=spec.name,
        agents=[_Agent(name=a.name, role=a.role, actions=list(a.actions)) for a in spec.agents],
        goals=[
            _Goal(human=g.human, name=g.name, weight=float(g.weight), features=list(g.features))
            for g in spec.goals
        ],
        state_words=spec.state_words,
        state_dtype=str(spec.state_dtype).removeprefix("torch."),  # type: ignore[arg-type]
        horizon=spec.horizon,
        features=asdict(spec.featurizer.shape),
    )


def _spec_of(learned: _Learned, here: WorldSpec) -> WorldSpec:
    """The spec that the networks were built for, with what reads rows of the world at hand."""
    return replace(
        here,
        name=learned.name,
        agents=tuple(
            AgentSpec(name=a.name, role=a.role, actions=tuple(a.actions)) for a in learned.agents
        ),
        goals=tuple(
            Goal(human=g.human, name=g.name, weight=g.weight, features=tuple(g.features))
            for g in learned.goals
        ),
    )


def _check_fit(path: Path, body: _Body, here: WorldSpec, world: str | None) -> None:
    """Refuse a world that the policy was not learned for.

    Raises:
        StorageError: if the policy was not learned for the world; the message names the first
            difference.
    """
    recorded, actual = body.learned.model_dump(), _described(here).model_dump()
    # Compact rows describe their world, so goals and names may differ.
    fixed = ["agents", "horizon", "features", "state_words", "state_dtype"]
    if body.world is not None:
        fixed.append("goals")
    else:
        for side in (recorded, actual):
            side["agents"] = [{**agent, "name": ""} for agent in side["agents"]]
    for key in fixed:
        if recorded[key] != actual[key]:
            raise StorageError(
                f"{path}: was learned in {recorded['name']!r}, which differs from this "
                f"{here.name!r}: its {key} {_difference(recorded[key], actual[key])}"
            )
    if world != body.world:
        raise StorageError(
            f"{path}: was learned in {recorded['name']!r}, which differs from this {here.name!r}: "
            "it starts in another state, or its first step leads elsewhere, or a later one does"
        )


def _difference(recorded: object, actual: object) -> str:
    """First difference of two values, in words."""
    if isinstance(recorded, list) and isinstance(actual, list):
        if len(recorded) != len(actual):
            return f"were {len(recorded)} in number, not {len(actual)}"
        at = next(
            i for i, (left, right) in enumerate(zip(recorded, actual, strict=True)) if left != right
        )
        return f"had {recorded[at]} in place {at}, not {actual[at]}"
    return f"was {recorded}, not {actual}"
