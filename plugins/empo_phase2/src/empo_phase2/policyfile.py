"""Learned robot policies as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from jaxtyping import Float, Int
from pydantic import JsonValue
from torch import Tensor

from empo_core.components import build
from empo_core.errors import StorageError
from empo_core.protocols import ValueNetwork, Weights, WorldModel
from empo_core.runs.inputs import in_this_run
from empo_core.types import WorldSpec
from empo_core.world_content import difference, identity
from empo_learning.saved_model import read_model, rebuilding, write_model
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.params import Phase2Params
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec
from empo_worlds.ensemble import EnsembleWorld, prior_of

AT_ONCE = 4096
"""States whose policies are worked out at the same time."""


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

    def export_onnx(self, path: str | Path) -> None:
        """Write the network of the policy, that of Q_r or V_r, as an ONNX file.

        Args:
            path: The file.

        Raises:
            ConfigError: if the network has no ONNX form.
            StorageError: if the file cannot be written.
        """
        self.network.export_onnx(path)

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
        weights: Those of all networks, named ``<quantity>.<parameter>``: robots act with those of
            Q_r or V_r, and other runs begin with all of them.

    Raises:
        NonFiniteError: if a weight is not finite.
        StorageError: if the file cannot be written.
    """
    store = params.replay.store
    included: dict[str, Any] = {
        "human_prior": True, "values": True, "theory": True, "aggregator": True,
        "replay": {"store"},
    }  # fmt: skip
    if isinstance(world, EnsembleWorld) and store == "rows":
        included["ensemble"] = True  # Its rows mean nothing without the other worlds.
    described = params.model_dump(mode="json", include=included)
    where = {"name": world.spec.name, **identity_for(world, store)}
    write_model(Path(path), "phase2", described, None, weights, world=where)


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
    saved = read_model(path, "phase2", NoneType)
    with rebuilding(path, "empo-phase2"):
        params = Phase2Params.model_validate(in_this_run(saved.params, path.resolve().parents[1]))
        played = world
        if params.ensemble.worlds and not isinstance(world, EnsembleWorld):
            played = EnsembleWorld([world, *map(build, params.ensemble.worlds)])
    store, recorded = params.replay.store, saved.world or {}
    if (differs := difference(recorded, identity_for(played, store))) is not None:
        raise StorageError(
            f"{path}: was learned in {recorded.get('name')!r}, which differs from this "
            f"{played.spec.name!r}: {differs}"
        )
    prior = prior_of(params.human_prior, played) if params.values.q_r is None else None
    encoder = StateEncoder(played, store, prior)
    with rebuilding(path, "empo-phase2"):
        policy = LearnedPolicy(params, learner_spec(played, store), encoder)
        policy.load(saved.state)
    return policy


def identity_for(world: WorldModel, store: str) -> dict[str, JsonValue]:
    """What a world must have in common with the one that was learned in.

    Compact rows describe their world, so its goals and names may differ.
    """
    if store == "rows":
        return identity(world)
    spec = learner_spec(world, store)
    return {
        "horizon": spec.horizon,
        "agents": [[agent.role, list(agent.actions)] for agent in spec.agents],
        "features": asdict(spec.featurizer.shape),
        "rows": [spec.state_words, str(spec.state_dtype)],
    }
