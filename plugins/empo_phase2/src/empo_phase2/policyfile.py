"""Learned robot policies as single files: one safetensors file with JSON in its header.

The header's metadata has one entry, ``empo-phase2``, whose JSON holds the format's version,
a sha256 of everything else, and what it takes to build the networks again. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from jaxtyping import Float, Int
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.experiment import build
from empo_core.protocols import ValueNetwork, Weights, WorldModel
from empo_core.storage.atomic import StrictModel, open_regular, parse_json, write_file
from empo_core.types import AgentSpec, Goal, Role, WorldSpec
from empo_core.worlds.sampling import fingerprint
from empo_learning.finite import check_finite
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.ensemble import EnsembleWorld, ensemble_of, prior_of
from empo_phase2.params import Phase2Params
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec

KEY = "empo-phase2"
VERSION = 1
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
    params: dict[str, Any]
    learned: _Learned
    world: str | None


class _Sealed(StrictModel):
    version: int
    sha256: str
    body: _Body


class LearnedPolicy:
    """The robots' power-law policy of learned values; an ``empo_core.protocols.RobotPolicy``."""

    def __init__(self, params: Phase2Params, spec: WorldSpec, encoder: StateEncoder) -> None:
        """Prepare the policy; it acts evenly until weights are loaded.

        Args:
            params: How values are represented, and the theory.
            spec: What the learner's rows look like.
            encoder: Looks at states of the world; ahead where Q_r is not learned.
        """
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

    def probabilities(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; unavailable ones have 0."""
        parts = [torch.zeros(0, self._num_actions, dtype=torch.float64)]
        for first in range(0, len(states), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            found = self._behaviour.policy(
                *self._encoder(states[part], steps_left[part]), self._beta_r
            )
            parts.append(found.double())
        chances = torch.cat(parts)
        return chances / chances.sum(1, keepdim=True)


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
        NonFiniteError: A weight is not finite.
        StorageError: The file cannot be written.
    """
    path = Path(path)
    quantity = "v_r" if params.values.q_r is None else "q_r"
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in weights.items()
        if name.startswith(f"{quantity}.")
    }
    check_finite(tensors, "a weight to be saved")
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
        world=fingerprint(world) if store == "rows" else None,
    ).model_dump(mode="json")
    header, data = _split(path, safetensors.torch.save(tensors))
    sealed = {"version": VERSION, "sha256": _seal(header, data, body), "body": body}
    content = safetensors.torch.save(tensors, {KEY: json.dumps(sealed, allow_nan=False)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


def load_policy(path: str | Path, world: WorldModel) -> LearnedPolicy:
    """The policy in a file that ``save_policy`` wrote.

    Args:
        path: The file.
        world: Where to act: the world of the run, or its ensemble. With
            ``replay.store: compact`` it may be any world with the same agents, horizon and size.

    Raises:
        StorageError: The file is missing, damaged, foreign, or written by a later version; a
            plugin that it needs is not installed; or the world is another.
    """
    path = Path(path)
    body, tensors = _read(path)
    params = _params(path, body.params)
    played = world
    if params.ensemble.worlds and not isinstance(world, EnsembleWorld):
        played = ensemble_of([world, *map(build, params.ensemble.worlds)])
    here = learner_spec(played, params.replay.store)
    _check_fit(path, body, here, None if body.world is None else fingerprint(played))
    prior = prior_of(params.human_prior, played) if params.values.q_r is None else None
    encoder = StateEncoder(played, params.replay.store, prior)
    policy = LearnedPolicy(params, _spec_of(body.learned, here), encoder)
    try:
        policy.load(tensors)
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise StorageError(
            f"{path}: its weights do not fit the networks that it names ({error}); it was written "
            "with another version of their plugin, or is damaged"
        ) from error
    return policy


def _read(path: Path) -> tuple[_Body, dict[str, Tensor]]:
    raw: bytes = open_regular(path, lambda file: file.read())
    header, data = _split(path, raw)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KEY), str):
        raise StorageError(
            f"{path}: is a safetensors file, but not a policy that algorithm 'phase2' saved"
        )
    outer = parse_json(path, metadata[KEY].encode())
    version = outer.get("version") if isinstance(outer, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise StorageError(
            f"{path}: has format version {version}; this empo-phase2 reads {VERSION}. Upgrade it."
        )
    try:
        sealed = _Sealed.model_validate(outer)
        if _seal(header, data, outer["body"]) != sealed.sha256:
            raise StorageError(f"{path}: is damaged: its sha256 does not match")
        return sealed.body, safetensors.torch.load(raw)
    except ValidationError as error:
        raise StorageError(f"{path}: is damaged or not ours: {_first(error)}") from error
    except SafetensorError as error:
        raise StorageError(f"{path}: is damaged: {error}") from error


def _split(path: Path, raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the data behind it."""
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise StorageError(f"{path}: is not a safetensors file, or was cut off")
    header = parse_json(path, raw[8 : 8 + length])
    if not isinstance(header, dict):
        raise StorageError(f"{path}: is not a safetensors file: its header is no JSON object")
    return header, raw[8 + length :]


def _seal(header: Mapping[str, Any], data: bytes, body: Any) -> str:
    digest = hashlib.sha256(data)
    for part in (header, body):
        digest.update(json.dumps(part, sort_keys=True, allow_nan=False).encode())
    return digest.hexdigest()


def _params(path: Path, data: dict[str, Any]) -> Phase2Params:
    try:
        return Phase2Params.model_validate(data)
    except ValidationError as error:
        raise StorageError(
            f"{path}: cannot be used with what is installed here: {_first(error)}"
        ) from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


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
        StorageError: It is one of these; the message names the first difference.
    """
    known, found = body.learned.model_dump(), _described(here).model_dump()
    # Compact rows describe their world, so goals and names may differ.
    fixed = ["agents", "horizon", "features", "state_words", "state_dtype"]
    if body.world is not None:
        fixed.append("goals")
    else:
        for side in (known, found):
            side["agents"] = [{**agent, "name": ""} for agent in side["agents"]]
    for key in fixed:
        if known[key] != found[key]:
            raise StorageError(
                f"{path}: was learned in {known['name']!r}, which differs from this "
                f"{here.name!r}: its {key} {_difference(known[key], found[key])}"
            )
    if world != body.world:
        raise StorageError(
            f"{path}: was learned in {known['name']!r}, which differs from this {here.name!r}: it "
            "starts in another state, or its first step leads elsewhere"
        )


def _difference(known: Any, found: Any) -> str:
    """First difference of two values, in words."""
    if isinstance(known, list) and isinstance(found, list):
        if len(known) != len(found):
            return f"were {len(known)} in number, not {len(found)}"
        at = next(
            i for i, (one, other) in enumerate(zip(known, found, strict=True)) if one != other
        )
        return f"had {known[at]} in place {at}, not {found[at]}"
    return f"was {known}, not {found}"
