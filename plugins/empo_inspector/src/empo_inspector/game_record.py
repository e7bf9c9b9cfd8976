"""Records of games as JSON, which name no code, and games played again from them."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from pydantic import Field, ValidationError

from empo_core.errors import ConfigError, StorageError
from empo_core.protocols import WorldModel
from empo_core.runs.atomic import StrictModel, read_json
from empo_core.types import WorldSpec
from empo_inspector.game import Game, Policies
from empo_inspector.pcg32 import MOST_SEED

MOST_BYTES = 2**22


class RecordedStep(StrictModel):
    """A state, and the joint action in it by ``WorldSpec.strides``; the last state has none."""

    row: list[int]
    joint: int | None = Field(ge=0)


class Record(StrictModel):
    """A game as data.

    Attributes:
        world: Title of the world.
        theory: Digest of the run's parameters of the theory; None without a run.
        seed: Of the random numbers.
        goals: The goal of each human, as a position in ``spec.goals``; None where it has none.
        played: The agents that people acted for.
        time: Steps of the episode that lie before the first state.
        steps: Every state.
    """

    world: str
    theory: str | None
    seed: int = Field(ge=0, le=MOST_SEED)
    goals: list[int | None]
    played: list[int]
    time: int = Field(ge=0)
    steps: list[RecordedStep] = Field(min_length=1)


def record_of(game: Game, theory: str | None) -> Record:
    """A game as data; ``theory`` is a digest of the run's parameters."""
    spec = game.world.spec
    joints = [sum(map(int.__mul__, joint, spec.strides)) for joint in game.actions]
    return Record(
        world=spec.name,
        theory=theory,
        seed=game.seed,
        goals=list(game.goals),
        played=list(game.played),
        time=game.turns[0].time,
        steps=[
            RecordedStep(row=list(turn.row), joint=joint)
            for turn, joint in itertools.zip_longest(game.turns, joints)
        ],
    )


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        StorageError: if the record cannot be read, is too large, or is none.
    """
    try:
        return Record.model_validate(read_json(path, max_bytes=MOST_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StorageError(f"{path}: is no record of a game: {where}: {first['msg']}") from error


def replay(path: Path, world: WorldModel, policies: Policies | None, theory: str | None) -> Game:
    """The game of a record, played again and compared state by state.

    Raises:
        ConfigError: if the record is of another world or run, or does not follow from its seed and
            actions.
        StorageError: if the record cannot be read.
        SolveError: if the policies do not know one of its states.
    """
    record, spec = read_record(path), world.spec
    try:
        if record.world != spec.name:
            raise ConfigError(f"this is a record of {record.world!r}, and not of {spec.name!r}")
        if record.theory != theory:
            raise ConfigError("it was recorded without this run, or with another theory than its")
        _check_fit(record, spec)
        pairs = zip(spec.humans, record.goals, strict=False)
        goals = {human: goal for human, goal in pairs if goal is not None}
        begin = record.time, record.steps[0].row
        game = Game(world, policies, record.played, seed=record.seed, goals=goals, begin=begin)
        if list(game.goals) != record.goals:
            raise ConfigError(f"goals: {record.goals} should be {list(game.goals)}")
        for step, after in itertools.pairwise(record.steps):
            _step(game, step.joint or 0, after.row)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return game


def _step(game: Game, joint: int, row: list[int]) -> None:
    """Play one step, which has to go as recorded."""
    spec, where = game.world.spec, f"step {game.now.time}"
    pairs = zip(spec.strides, spec.num_actions, strict=True)
    agent_actions = [joint // stride % count for stride, count in pairs]
    try:
        game.step({agent: agent_actions[agent] for agent in game.played})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    for agent, does, recorded in zip(spec.agents, game.actions[-1], agent_actions, strict=True):
        if does != recorded:
            raise ConfigError(
                f"{where}: by its policy and seed {game.seed}, {agent.name} does "
                f"{agent.actions[does]!r}, and not {agent.actions[recorded]!r}"
            )
    if list(game.now.row) != row:
        raise ConfigError(f"{where}: {row} does not follow, but {list(game.now.row)}")


def _check_fit(record: Record, spec: WorldSpec) -> None:
    """Refuse numbers that mean nothing in a world."""
    bounds, row = torch.iinfo(spec.state_dtype), record.steps[0].row
    for number, step in enumerate(record.steps, 1):
        if (step.joint is None) != (number == len(record.steps)):
            raise ConfigError("all states but the last have a joint action")
        if step.joint is not None and step.joint >= spec.num_joint_actions:
            raise ConfigError(f"steps.{number - 1}.joint: there is no joint action {step.joint}")
    if len(row) != spec.state_words or min(row) < bounds.min or max(row) > bounds.max:
        raise ConfigError(f"steps.0.row: is no state of {spec.name!r}")
    if spec.horizon is not None and record.time > spec.horizon:
        raise ConfigError(f"time: is after the end, {spec.horizon}")
    if not set(record.played) <= set(range(len(spec.agents))):
        raise ConfigError(f"played: agents are numbered from 0 to {len(spec.agents) - 1}")
