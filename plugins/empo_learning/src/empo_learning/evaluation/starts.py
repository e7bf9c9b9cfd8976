"""The states in which episodes begin: the world's own, or those listed in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from pydantic import Field, ValidationError
from torch import Tensor

from empo_core import Config
from empo_core.errors import ConfigError, EmpoError, WorldError
from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_core.suggestions import nearest
from empo_core.types import WorldSpec
from empo_worlds.contract import successors_of
from empo_worlds.policy_checks import human_policy, robot_policy
from empo_worlds.queries import is_terminal

ANY_GOAL = -1
MOST_BYTES = 2**22


class ListedStart(Config):
    """One line of a file of starts."""

    state: list[int] = Field(min_length=1, description="The state's row.")
    goal: int | str | None = Field(
        None, description="The goal that is pursued from there, by position or name; null: any."
    )
    time: int = Field(0, ge=0, description="Steps of the episode that lie before it.")


@dataclass(frozen=True, slots=True)
class Starts:
    """Where episodes begin; those of a goal take the starts that fit it in turn.

    Attributes:
        states: The states.
        goal: The goal that is pursued from there, as a position in ``spec.goals``; ``ANY_GOAL``.
        time: Steps of the episode that lie before.
        prob: How likely each start is, if starts are drawn and not taken in turn.
    """

    states: Int[Tensor, "start word"]
    goal: Int[Tensor, " start"]
    time: Int[Tensor, " start"]
    prob: Float[Tensor, " start"] | None = None

    @classmethod
    def initial(cls, world: WorldModel) -> Starts:
        """The world's own starts, for all goals."""
        initial = world.initial_states()
        nothing = torch.zeros(len(initial.prob), dtype=torch.int64)
        prob = initial.prob if len(initial.prob) > 1 else None
        return cls(initial.states, nothing + ANY_GOAL, nothing, prob)

    def goals(self, spec: WorldSpec) -> Int[Tensor, " goal"]:
        """Goals that are pursued from some start, as positions in ``spec.goals``."""
        if bool((self.goal == ANY_GOAL).any()):
            return torch.arange(len(spec.goals))
        return torch.tensor(sorted(set(self.goal.tolist())))

    def chosen(
        self,
        goal_index: Int[Tensor, " episode"],
        turn: Int[Tensor, " episode"],
        generator: torch.Generator,
    ) -> Int[Tensor, " episode"]:
        """The start of each episode, given its goal and how many of this goal came before."""
        if self.prob is not None:
            return torch.multinomial(self.prob, len(goal_index), True, generator=generator)
        result = torch.empty_like(goal_index)
        for goal in torch.unique(goal_index).tolist():
            fitting = torch.nonzero((self.goal == goal) | (self.goal == ANY_GOAL))[:, 0]
            result[goal_index == goal] = fitting[turn[goal_index == goal] % len(fitting)]
        return result


def read_starts(path: Path, world: WorldModel, robots: RobotPolicy, humans: HumanPrior) -> Starts:
    """The starts that are listed in a file.

    Args:
        path: JSON lines, each a ``ListedStart``; empty lines do not count.
        world: The world.
        robots: How its robots act; they have to know what to do in each start.
        humans: How its humans act; likewise.

    Raises:
        ConfigError: if the file cannot be read, or a line is no start; ``file:line: reason``.
    """
    listed, places = [], []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            places.append(f"{path}:{number}")
            listed.append(_start(line, world, places[-1]))
    if not listed:
        raise ConfigError(f"{path}: lists no starts; write one a line, e.g. {_example(world)}")
    goals = torch.tensor([goal for _, goal, _ in listed])
    times = torch.tensor([time for _, _, time in listed])
    starts = Starts(
        torch.tensor([state for state, _, _ in listed], dtype=world.spec.state_dtype), goals, times
    )
    for time in sorted(set(times.tolist())):
        left = 1 if world.spec.horizon is None else world.spec.horizon - time

        def ask(number: Int[Tensor, " start"], left: int = left) -> None:
            _check(starts.states[number], left, world, robots, humans)

        refused = _first_refused(torch.nonzero(times == time)[:, 0], ask)
        if refused is not None:
            number, reason = refused
            hint = '; "time" says how many steps lie before' if left > 1 else ""
            raise ConfigError(f"{places[number]}: {reason}{hint}")
    return starts


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path}: cannot be read: {reason}; check the path") from error
    except ValueError as error:  # A NUL byte in the path, or other bytes than UTF-8.
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {MOST_BYTES:,} bytes; split it")
    return text


def _start(line: str, world: WorldModel, place: str) -> tuple[list[int], int, int]:
    """State, goal and time in a line of the file."""
    spec = world.spec
    try:
        entry = ListedStart.model_validate_json(line)
        state = entry.state
        if len(state) != spec.state_words:
            raise ValueError(
                f"state has {len(state)} words; rows of {spec.name!r} have {spec.state_words}"
            )
        limits = torch.iinfo(spec.state_dtype)
        if not limits.min <= min(state) <= max(state) <= limits.max:
            raise ValueError(f"state {state}: words go from {limits.min} to {limits.max}")
        last = 0 if spec.horizon is None else spec.horizon - 1
        if entry.time > last:
            kind = "has no horizon" if spec.horizon is None else "ends after that"
            raise ValueError(f"time is {entry.time}, but {spec.name!r} {kind}; the last is {last}")
        return state, _goal(spec, entry.goal), entry.time
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise ConfigError(f"{place}: {reason}; write e.g. {_example(world)}") from error
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


def _example(world: WorldModel) -> str:
    """A line of a file of starts."""
    return json.dumps({"state": world.initial_states().states[0].tolist()})


def _goal(spec: WorldSpec, goal: int | str | None) -> int:
    """Its position in ``spec.goals``."""
    if goal is None:
        return ANY_GOAL
    if isinstance(goal, int):
        if not 0 <= goal < len(spec.goals):
            raise ValueError(
                f"there is no goal {goal}: {spec.name!r} has {len(spec.goals)}, from 0 on"
            )
        return goal
    names = [goal_spec.name for goal_spec in spec.goals]
    if names.count(goal) == 1:
        return names.index(goal)
    if goal in names:
        matches = [number for number, name in enumerate(names) if name == goal]
        raise ValueError(f"goals {matches} are all called {goal!r}; give one by its number")
    guess = nearest(goal, names)
    raise ValueError(
        f"{spec.name!r} has no goal {goal!r}"
        + (f". Did you mean {guess!r}?" if guess else f"; the first is {names[0]!r}")
    )


def _check(
    states: Int[Tensor, "start word"],
    steps_left: int,
    world: WorldModel,
    robots: RobotPolicy,
    humans: HumanPrior,
) -> None:
    """Raise where an episode cannot begin in one of these states.

    Raises:
        EmpoError: if the world does not know one, or it is terminal, or a policy does not know it.
    """
    successors_of(world, states)
    if bool(is_terminal(world, states).any()):
        raise WorldError("the state is terminal: an episode would be over there")
    robot_policy(world, robots, states, steps_left)
    human_policy(world, humans, states, steps_left)


def _first_refused(
    number: Int[Tensor, " start"], ask: Callable[[Int[Tensor, " start"]], None]
) -> tuple[int, EmpoError] | None:
    """The first start that is refused, and why; found by halves."""
    try:
        ask(number)
    except EmpoError as error:
        if len(number) == 1:
            return int(number[0]), error
        middle = len(number) // 2
        return _first_refused(number[:middle], ask) or _first_refused(number[middle:], ask)
    return None
