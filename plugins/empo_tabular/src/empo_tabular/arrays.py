"""Large games as arrays, in one ``.npz`` file: see ``docs/how-to/large_tables.md``."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor

from empo_core.errors import ConfigError, WorldError
from empo_core.runs.atomic import write_file
from empo_core.suggestions import nearest
from empo_core.types import AgentSpec, Goal, Role, Successors, WorldSpec
from empo_tabular.features import OneHotFeatures
from empo_worlds.contract import SUM_TOLERANCE, possible_pairs
from empo_worlds.enumeration import EnumeratedWorld

MAX_BYTES = 2**31
"""Bytes of all arrays together, as they are kept: 8 for each number."""
MAX_PAIRS = 100_000_000
"""Pairs of a state and a joint action."""
MAX_AGENTS = 32
MAX_ACTIONS = 100_000
MAX_HORIZON = 2**31 - 1
MOST_ONE_HOT = 10_000
"""States up to which networks see a state as one number for each."""
MOST_GOAL_FEATURES = 10_000_000
"""Numbers that describe all goals together; where they were more, each goal is its number."""


@dataclass(frozen=True, kw_only=True)
class TableArrays:
    """A game as arrays, not checked yet; arrays that are None are left out.

    Pair ``state * joint + j`` is a state under the joint action ``j``, in which agent 0 counts
    fastest. A pair without successors is not available; a state without any is terminal.

    Attributes:
        agents: Names.
        roles: The role of each agent: ``human``, ``robot`` or ``other``.
        actions: Names of the actions of each agent; empty names fill up shorter rows.
        offsets: Start of the successors of each pair, and their number.
        successors: The state that follows.
        prob: Its probability.
        duration: Duration of the transition; None: 1.
        goals: Names.
        goal_agents: The human whose goal each is, by position.
        goal_weights: Factors in the humans' power; None: 1 / number of goals of the human.
        achieved: Whether each goal is achieved in each state.
        initial: The states that episodes start from.
        initial_prob: The probability of each; None where there is one.
        horizon: Steps after which an episode ends; None: the game ends by itself.
        name: Title of the game.
        states: Names; None: states are called by their numbers.
    """

    agents: Shaped[np.ndarray, " _agent"]
    roles: Shaped[np.ndarray, " _agent"]
    actions: Shaped[np.ndarray, "_agent _action"]
    offsets: Integer[np.ndarray, " _pair_plus_1"]
    successors: Integer[np.ndarray, " _item"]
    prob: Float[np.ndarray, " _item"]
    goals: Shaped[np.ndarray, " _goal"]
    goal_agents: Integer[np.ndarray, " _goal"]
    achieved: Bool[np.ndarray, "_state _goal"]
    initial: Integer[np.ndarray, " _start"]
    initial_prob: Float[np.ndarray, " _start"] | None = None
    duration: Float[np.ndarray, " _item"] | None = None
    goal_weights: Float[np.ndarray, " _goal"] | None = None
    horizon: Integer[np.ndarray, ""] | None = None
    name: Shaped[np.ndarray, ""] | None = None
    states: Shaped[np.ndarray, " _state"] | None = None


_FORMS = {
    "agents": ("U", 1), "roles": ("U", 1), "actions": ("U", 2), "offsets": ("iu", 1),
    "successors": ("iu", 1), "prob": ("f", 1), "duration": ("f", 1), "goals": ("U", 1),
    "goal_agents": ("iu", 1), "goal_weights": ("f", 1), "achieved": ("b", 2), "initial": ("iu", 1),
    "initial_prob": ("f", 1), "horizon": ("iu", 0), "name": ("U", 0), "states": ("U", 1),
}  # fmt: skip
"""Kinds of dtypes, and number of axes."""
_OPTIONAL = {field.name for field in fields(TableArrays) if field.default is None}
_WORDS = {"U": "texts", "iu": "integers", "f": "numbers of float64", "b": "booleans"}


def read_npz(path: Path) -> TableArrays:
    """The arrays in a file, with the right kinds and numbers of axes; nothing is unpickled.

    Raises:
        ConfigError: if the file is no ``.npz`` file of a game, or larger than it may be.
    """
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            _refuse_names(path, list(members))
            total = sum(info.file_size for info in members.values())
            if total > MAX_BYTES:
                raise ConfigError(
                    f"{path}: the arrays take {total:,} bytes, more than {MAX_BYTES:,}"
                )
            for name, info in members.items():
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ConfigError(f"{path}: {name}: is not compressed as numpy does it")
                arrays[name] = _read_array(path, name, archive, info)
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: cannot be read as an .npz file: {error}") from error
    in_memory = sum(a.size * (8 if a.dtype.kind in "iuf" else a.itemsize) for a in arrays.values())
    if in_memory > MAX_BYTES:
        raise ConfigError(
            f"{path}: the arrays take {in_memory:,} bytes with 8 for each number, more than "
            f"{MAX_BYTES:,}"
        )
    return TableArrays(**arrays)


def _refuse_names(path: Path, names: list[str]) -> None:
    for name in names:
        if name not in _FORMS:
            close = nearest(name, _FORMS)
            hint = f"did you mean {close!r}?" if close else f"there may be {', '.join(_FORMS)}"
            raise ConfigError(f"{path}: there is no array {name!r} in a game; {hint}")
    if missing := sorted(_FORMS.keys() - _OPTIONAL - set(names)):
        raise ConfigError(f"{path}: lacks {', '.join(missing)}")


def _read_array(
    path: Path, name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> Shaped[np.ndarray, "*axes"]:
    """One array; its head is compared with the size of its data before room is made for it."""
    kinds, axes = _FORMS[name]
    try:
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            read_head = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, _, dtype = read_head(file)
            size = math.prod(shape) * dtype.itemsize
            # Items of no bytes would make any shape fit; no number here has more than 8.
            is_odd = not dtype.itemsize or (dtype.kind == "f" and dtype.itemsize > 8)
            if is_odd or dtype.kind not in kinds or len(shape) != axes:
                raise ConfigError(
                    f"{path}: {name}: has {dtype} of shape {list(shape)}; it takes {_WORDS[kinds]} "
                    f"with {axes} axes"
                )
            if file.tell() + size != info.file_size:
                raise ValueError("its head and its data disagree")
        with archive.open(info) as file:
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    except ConfigError:
        raise
    except Exception as error:  # Of zip, zlib, and whatever numpy calls to parse the head.
        raise ConfigError(f"{path}: {name}: is no array that can be read: {error}") from error
    return array


def write_npz(world: EnumeratedWorld, path: Path) -> None:
    """Write a world as a file that the world model ``table`` reads; symmetries are left out.

    Raises:
        WorldError: if the world's states have no names that are texts.
        StorageError: if the file cannot be written; an older one is left as it was.
    """
    spec, arrays = world.spec, world.successors
    width = max(spec.num_actions)
    initial = world.initial_states()
    content: dict[str, Any] = {
        "agents": np.array([agent.name for agent in spec.agents]),
        "roles": np.array([agent.role for agent in spec.agents]),
        "actions": np.array([[*a.actions, *[""] * (width - len(a.actions))] for a in spec.agents]),
        "offsets": arrays.offsets.numpy(),
        "successors": arrays.states[:, 0].numpy(),
        "prob": arrays.prob.double().numpy(),
        "goals": np.array([goal.name for goal in spec.goals], dtype=str),
        "goal_agents": np.array([goal.human for goal in spec.goals], dtype=np.int64),
        "goal_weights": np.array([goal.weight for goal in spec.goals], dtype=np.float64),
        "achieved": world.achieved(torch.arange(world.num_states)[:, None]).numpy(),
        "initial": initial.states[:, 0].numpy(),
        "initial_prob": initial.prob.numpy(),
        "name": np.array(spec.name),
    }
    if arrays.duration is not None:
        content["duration"] = arrays.duration.double().numpy()
    if spec.horizon is not None:
        content["horizon"] = np.array(spec.horizon)
    if not isinstance(world.labels, range):
        if not all(isinstance(label, str) for label in world.labels):
            raise WorldError(f"states of {spec.name!r} have no names that are texts")
        content["states"] = np.array(world.labels)
    file = io.BytesIO()
    np.savez(file, **content)
    write_file(path, file.getvalue())


def world_of_arrays(
    arrays: TableArrays, source: str, max_steps: int | None = None
) -> EnumeratedWorld:
    """The world of a game in arrays, which are checked.

    Args:
        arrays: The game.
        source: What messages call it, e.g. its path.
        max_steps: Steps after which an episode ends; None keeps the game's horizon.

    Raises:
        ConfigError: if the arrays contradict themselves; the array and the index are named.
    """
    check = _Check(arrays, source)
    check.texts()
    agents = check.agents()
    joint = math.prod(len(agent.actions) for agent in agents)
    num_states = check.successors(joint)
    horizon = None if arrays.horizon is None else int(arrays.horizon)
    if horizon is not None and not 1 <= horizon <= MAX_HORIZON:
        check.refuse("horizon", (), f"is {horizon}; an episode has 1 to {MAX_HORIZON:,} steps")
    is_small = num_states <= MOST_ONE_HOT
    spec = WorldSpec(
        name="table" if arrays.name is None else str(arrays.name),
        agents=tuple(agents),
        goals=tuple(check.goals(agents, num_states)),
        state_words=1,
        state_dtype=torch.int32,
        horizon=horizon if max_steps is None else max_steps,
        releases_gil=True,
        features=OneHotFeatures(num_states) if is_small else None,
    )
    available = check.available(spec, num_states)
    duration = arrays.duration
    return EnumeratedWorld(
        spec,
        range(num_states) if arrays.states is None else arrays.states.tolist(),
        Successors(
            torch.from_numpy(arrays.offsets.astype(np.int64)),
            torch.from_numpy(arrays.successors.astype(np.int32))[:, None],
            torch.from_numpy(arrays.prob.astype(np.float64)),
            None if duration is None else torch.from_numpy(duration.astype(np.float64)),
        ),
        available,
        torch.from_numpy(arrays.achieved),
        check.initial(available),
    )


class _Check:
    """Checks of a game's arrays; each raises ConfigError with the array and the index."""

    def __init__(self, arrays: TableArrays, source: str) -> None:
        self._arrays = arrays
        self._source = source

    def refuse(self, name: str, index: tuple[int, ...], reason: str) -> NoReturn:
        """Raise the error about one place."""
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise ConfigError(f"{self._source}: {name}{place}: {reason}")

    def texts(self) -> None:
        """The texts are valid ones, and only names of actions may be empty."""
        for name, (kinds, _) in _FORMS.items():
            array = getattr(self._arrays, name)
            if kinds != "U" or array is None:
                continue
            native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
            codes = (
                native.reshape(-1).view(np.uint32).reshape(array.size, array.dtype.itemsize // 4)
            )
            # Halves of surrogate pairs, and what is beyond Unicode.
            wrong = ((codes > 0xD7FF) & (codes < 0xE000)).any(1) | (codes > 0x10FFFF).any(1)
            if name != "actions":
                wrong |= ~codes.any(1)
            if wrong.any():
                index = np.unravel_index(int(wrong.argmax()), array.shape)
                self.refuse(name, tuple(map(int, index)), "is empty or no valid text")

    def agents(self) -> list[AgentSpec]:
        """The agents, whose names and actions are unique."""
        arrays = self._arrays
        if not 0 < len(arrays.agents) <= MAX_AGENTS:
            self.refuse("agents", (), f"has {len(arrays.agents)}; there are 1 to {MAX_AGENTS}")
        self._length("roles", 0, len(arrays.agents), "one per agent")
        self._length("actions", 0, len(arrays.agents), "one row per agent")
        if arrays.actions.shape[1] > MAX_ACTIONS:
            self.refuse("actions", (), f"has more than {MAX_ACTIONS:,} columns")
        self._unique("agents")
        agents: list[AgentSpec] = []
        for i, (name, role) in enumerate(zip(arrays.agents, arrays.roles, strict=True)):
            if role not in get_args(Role):
                self.refuse("roles", (i,), f"is no role; roles: {', '.join(get_args(Role))}")
            names = [str(action) for action in arrays.actions[i]]
            while names and not names[-1]:
                names.pop()
            before: set[str] = set()
            for k, action in enumerate(names):
                if not action or action in before:
                    self.refuse("actions", (i, k), "is empty or the name of an action before")
                before.add(action)
            if not names:
                self.refuse("actions", (i,), "an agent needs an action")
            agents.append(
                AgentSpec(name=str(name), role=cast(Role, str(role)), actions=tuple(names))
            )
        return agents

    def successors(self, joint: int) -> int:
        """Check offsets, successors, probabilities and durations; the number of states."""
        num_pairs, items = len(self._arrays.offsets) - 1, len(self._arrays.successors)
        if num_pairs < 1 or num_pairs % joint:
            reason = f"has {num_pairs + 1} numbers; it takes states * {joint} joint actions + 1"
            self.refuse("offsets", (), reason)
        if num_pairs > MAX_PAIRS:
            self.refuse("offsets", (), f"has more than {MAX_PAIRS:,} numbers")
        offsets = self._arrays.offsets.astype(np.int64)
        num_states = num_pairs // joint
        if int(offsets[0]) != 0 or int(offsets[-1]) != items:
            index = 0 if int(offsets[0]) != 0 else len(offsets) - 1
            self.refuse("offsets", (index,), f"they go from 0 to the {items} successors")
        self._none("offsets", np.diff(offsets) < 0, "is more than the number after it")
        self._length("prob", 0, items, "one per successor")
        self._length("duration", 0, items, "one per successor")
        self._length("achieved", 0, num_states, "one row per state")
        self._length("states", 0, num_states, "one per state")
        self._unique("states")
        target, prob = self._arrays.successors, self._arrays.prob
        wrong = (target < 0) | (target >= num_states)
        self._none("successors", wrong, f"is no state; there are {num_states}, from 0 on")
        self._none("prob", ~((prob > 0) & (prob <= 1 + SUM_TOLERANCE)), "is not in (0, 1]")
        if (duration := self._arrays.duration) is not None:
            wrong = ~((duration > 0) & (duration < np.inf))
            self._none("duration", wrong, "is not positive and finite")
        pair = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        order = np.lexsort((target, pair))
        twice = np.zeros(items, bool)
        twice[order[1:]] = (np.diff(pair[order]) == 0) & (np.diff(target[order]) == 0)
        self._none("successors", twice, "is listed before for the same state and joint action")
        total = np.bincount(pair, prob, len(offsets) - 1)
        wrong = (np.abs(total - 1) > SUM_TOLERANCE) & (np.diff(offsets) > 0)
        if wrong.any():
            at = int(wrong.argmax())
            reason = (
                f"the probabilities of state {at // joint} under joint action {at % joint} sum to "
                f"{total[at]:.12g}, not to 1{_coarse(prob)}"
            )
            self.refuse("prob", (int(offsets[at]),), reason)
        return num_states

    def goals(self, agents: list[AgentSpec], num_states: int) -> list[Goal]:
        """The goals, each of a human."""
        arrays = self._arrays
        count = len(arrays.goals)
        for name in ("goal_agents", "goal_weights"):
            self._length(name, 0, count, "one per goal")
        self._length("achieved", 1, count, "one column per goal")
        weights = arrays.goal_weights
        if weights is not None:
            self._none("goal_weights", ~((weights >= 0) & (weights < np.inf)), "is no weight")
        numbers = Counter(arrays.goal_agents.tolist())
        goals: list[Goal] = []
        names: set[tuple[int, str]] = set()
        for i, (name, human) in enumerate(zip(arrays.goals, arrays.goal_agents, strict=True)):
            if not 0 <= human < len(agents) or agents[human].role != "human":
                self.refuse("goal_agents", (i,), f"agent {human} is no human")
            if (int(human), str(name)) in names:
                self.refuse("goals", (i,), f"there are two goals {str(name)!r} of one human")
            names.add((int(human), str(name)))
            goals.append(
                Goal(
                    human=int(human),
                    name=str(name),
                    weight=1 / numbers[int(human)] if weights is None else float(weights[i]),
                    features=self._goal_features(i, num_states),
                )
            )
        return goals

    def _goal_features(self, goal: int, num_states: int) -> tuple[float, ...]:
        """The states where a goal is achieved, or else which goal it is: one-hot, or its number."""
        count = len(self._arrays.goals)
        is_small = num_states <= MOST_ONE_HOT
        if (num_states if is_small else count) * count > MOST_GOAL_FEATURES:
            return (float(goal),)
        features = self._arrays.achieved[:, goal] if is_small else np.arange(count) == goal
        return tuple(features.astype(float).tolist())

    def available(self, spec: WorldSpec, num_states: int) -> Bool[Tensor, "state agent action"]:
        """The actions of each agent for which some joint action has successors."""
        possible = np.diff(self._arrays.offsets.astype(np.int64)).reshape(num_states, -1) > 0
        available = np.zeros((num_states, len(spec.agents), max(spec.num_actions)), dtype=bool)
        # Agent 0 counts fastest, so that it is the last axis.
        shaped = possible.reshape(num_states, *spec.num_actions[::-1])
        for agent, count in enumerate(spec.num_actions):
            axis = len(spec.agents) - agent
            others = tuple(i for i in range(1, shaped.ndim) if i != axis)
            available[:, agent, :count] = shaped.any(axis=others)
        wrong = possible_pairs(spec, torch.from_numpy(available)).numpy() != possible
        if wrong.any():
            state, joint = np.argwhere(wrong)[0].tolist()
            reason = (
                f"state {state} has no successors under joint action {joint}, whose actions are "
                "available there; what an agent can do must not depend on what others do"
            )
            self.refuse("offsets", (state * spec.num_joint_actions + joint,), reason)
        return torch.from_numpy(available)

    def initial(self, available: Bool[Tensor, "state agent action"]) -> dict[int, float]:
        """The chance of each initial state."""
        initial, prob = self._arrays.initial, self._arrays.initial_prob
        wrong = (initial < 0) | (initial >= len(available))
        self._none("initial", wrong, f"is no state; there are {len(available)}, from 0 on")
        if not len(initial):
            self.refuse("initial", (), "an episode needs a state to start from")
        terminal = ~available[torch.from_numpy(initial.astype(np.int64))].flatten(1).any(1)
        self._none("initial", terminal.numpy(), "is terminal; episodes would end at once")
        self._unique("initial")
        if prob is None:
            if len(initial) > 1:
                self.refuse("initial_prob", (), "several initial states need probabilities")
            return {int(initial[0]): 1.0}
        self._length("initial_prob", 0, len(initial), "one per initial state")
        self._none("initial_prob", ~((prob > 0) & (prob < np.inf)), "is no chance above 0")
        if abs(float(prob.sum()) - 1) > SUM_TOLERANCE:
            reason = f"sums to {float(prob.sum()):.12g}, not to 1{_coarse(prob)}"
            self.refuse("initial_prob", (), reason)
        return dict(zip(initial.tolist(), prob.tolist(), strict=True))

    def _length(self, name: str, axis: int, length: int, reason: str) -> None:
        array = getattr(self._arrays, name)
        if array is not None and array.shape[axis] != length:
            self.refuse(name, (), f"has the shape {list(array.shape)}; it takes {reason}: {length}")

    def _none(self, name: str, wrong: Bool[np.ndarray, " item"], reason: str) -> None:
        """Refuse an array where any of its items is wrong."""
        if wrong.any():
            index = int(wrong.argmax())
            value = getattr(self._arrays, name)[index].item()
            self.refuse(name, (index,), f"{value} {reason}")

    def _unique(self, name: str) -> None:
        array = getattr(self._arrays, name)
        if array is None:
            return
        _, first = np.unique(array, return_index=True)
        if len(first) < len(array):
            index = int(np.setdiff1d(np.arange(len(array)), first)[0])
            self.refuse(name, (index,), f"{array[index].item()!r} is listed before")


def _coarse(prob: Float[np.ndarray, " item"]) -> str:
    """The end of a message about probabilities, where it may be their dtype's fault."""
    return "" if prob.dtype.itemsize == 8 else f"; save them as float64, not {prob.dtype}"
