"""Models of probabilistic model checkers in their explicit format (.tra, .lab, .rew) as games.

The format of Storm, which ``exact`` exports, and transitions and labels of PRISM; see
``docs/how-to/large_tables.md``.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from empo_core.errors import ConfigError
from empo_tabular.arrays import MAX_PAIRS, TableArrays

MAX_BYTES = 2**31
"""Bytes of a file."""
MAX_STATES = 10_000_000
ENDS = ("final", "deadlock")
"""Labels of states that have a transition to themselves because the format wants one."""

Table = Float[np.ndarray, "line column"]

log = logging.getLogger(__name__)


def read_explicit(file: Path, labels: Path | None, durations: Path | None) -> TableArrays:
    """A Markov decision process, or chain, as a game of one human who makes all choices.

    Args:
        file: Transitions, a line each: state, choice (not in chains), target, probability.
        labels: Labels of states: ``init`` is the start, episodes end in ``final`` and ``deadlock``,
            and any other label is a goal.
        durations: Rewards of states, or of transitions, which become durations of transitions.

    Raises:
        ConfigError: if a file cannot be read, or contradicts another; the line is named.
    """
    if labels is None:
        raise ConfigError(
            f"{file}: needs labels that say where episodes start and what the goals are; put them "
            f"into {file.with_suffix('.lab').name} beside it, or name a file as 'labels'"
        )
    try:
        return _read(file, labels, durations)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read with what belongs to it: {error}") from error


def _read(file: Path, labels: Path, durations: Path | None) -> TableArrays:
    table = _transitions(file)
    num_states, width = int(table[:, [0, 2]].max()) + 1, int(table[:, 1].max()) + 1
    if num_states * width > MAX_PAIRS:
        raise ConfigError(
            f"{file}: {num_states:,} states with up to {width:,} choices are more than "
            f"{MAX_PAIRS:,} pairs"
        )
    has = _labels(labels, num_states)
    ends = np.zeros(num_states, bool)
    for label in ENDS:
        ends |= has.pop(label, False)
    starts = np.flatnonzero(has.pop("init", np.zeros(num_states, bool)))
    if len(starts) != 1:
        raise ConfigError(
            f"{labels}: {len(starts)} states have the label init, and one must have it: the format "
            "does not say how likely each of several is"
        )
    is_end = ends[table[:, 0].astype(np.int64)]
    leaves = is_end & (table[:, 2] != table[:, 0])
    _refuse(file, leaves, f"the state is labelled as one of {', '.join(ENDS)} and goes on", 1)
    table = table[~is_end]
    state, choice, target = table[:, :3].astype(np.int64).T
    counts = np.bincount(state * width + choice, minlength=num_states * width)
    log.warning(
        "%s: tells no agents apart; one human makes all choices, and labels are its goals: %s",
        file, ", ".join([*has][:8]) or "none",
    )  # fmt: skip
    return TableArrays(
        name=np.array(file.stem),
        agents=np.array(["human"]),
        roles=np.array(["human"]),
        actions=np.array([[f"choice {i}" for i in range(width)]]),
        offsets=np.concatenate([[0], counts.cumsum()]),
        successors=target,
        prob=table[:, 3],
        duration=None if durations is None else _durations(durations, table, width, num_states),
        goals=np.array(list(has), dtype=str),
        goal_agents=np.zeros(len(has), np.int64),
        achieved=np.array([*has.values()], bool).reshape(len(has), num_states).T,
        initial=starts,
    )


def _transitions(file: Path) -> Table:
    """Lines of state, choice, target and probability; chains get the choice 0."""
    _, text = next(_lines(file), (1, ""))
    head = text.split()
    columns = {"mdp": 4, "dtmc": 3}.get(text.lower())
    if columns is None and all(map(str.isdecimal, head)):
        columns = {3: 4, 2: 3}.get(len(head))  # PRISM.
    if columns is None:
        raise ConfigError(
            f"{file}:1:1: should begin with 'mdp' or 'dtmc' (Storm), or with numbers of states, "
            "choices (of decision processes) and transitions (PRISM)"
        )
    table = _numbers(file, columns, skip=1)
    if columns == 3:
        table = np.insert(table, 1, 0, axis=1)
    _refuse(file, ~((table[:, 3] > 0) & (table[:, 3] <= 1)), "the probability is not in (0, 1]", 1)
    wrong = ~((table[:, :3] >= 0) & (table[:, :3] < MAX_STATES) & (table[:, :3] % 1 == 0)).all(1)
    limit = f"states and choices are whole numbers from 0 on, below {MAX_STATES:,}"
    _refuse(file, wrong, limit, 1)
    before, after = table[:-1], table[1:]
    same = after[:, 0] == before[:, 0]
    wrong = np.ones(len(table), bool)
    wrong[:1] = table[:1, 1] != 0
    wrong[1:] = np.where(
        same,
        (after[:, 1] < before[:, 1]) | (after[:, 1] > before[:, 1] + 1),
        (after[:, 0] < before[:, 0]) | (after[:, 1] != 0),
    )
    _refuse(file, wrong, "states ascend, and choices of a state from 0 on, without gaps", 1)
    return table


def _durations(
    file: Path, table: Table, width: int, num_states: int
) -> Float[np.ndarray, " transition"]:
    """The reward of each transition: its own, or that of its state."""
    _, text = next(_lines(file), (1, ""))
    columns = len(text.split())
    if columns not in (2, 3, 4):
        raise ConfigError(f"{file}:1:1: should list states, or transitions, and their rewards")
    rewards = _numbers(file, columns, skip=0)
    _refuse(file, ~(rewards[:, -1] > 0), "the reward is a duration and must be positive", 0)
    if columns == 3:
        rewards = np.insert(rewards, 1, 0, axis=1)
    if columns == 2:
        keys, rewarded = table[:, 0], rewards[:, 0]
    else:
        keys, rewarded = (
            (rows[:, 0] * width + rows[:, 1]) * num_states + rows[:, 2] for rows in (table, rewards)
        )
    _refuse(file, np.isin(rewarded, keys, invert=True), "nothing has such a transition", 0)
    missing = np.isin(keys, rewarded, invert=True)
    if missing.any():
        state, _, target = table[int(missing.argmax()), :3].astype(np.int64).tolist()
        raise ConfigError(
            f"{file}: the transition of state {state} to {target} has no reward, which means 0; "
            "rewards are durations here, which must be positive"
        )
    distinct, first = np.unique(rewarded, return_index=True)
    duration: Float[np.ndarray, " transition"] = rewards[first[np.searchsorted(distinct, keys)], -1]
    return duration


def _labels(file: Path, num_states: int) -> dict[str, Bool[np.ndarray, " state"]]:
    """Which states have each label, in the order in which labels are declared."""
    lines = _lines(file)
    _, text = next(lines, (1, ""))
    if text == "#DECLARATION":  # Storm.
        names: dict[str, str] = {}
        for _, text in lines:
            if text == "#END":
                break
            names |= {name: name for name in text.split()}
    else:
        names = dict(re.findall(r'(\d+)="([^"]*)"', text))
        if not names:
            raise ConfigError(
                f"{file}:1:1: should begin with '#DECLARATION' (Storm), or with numbers and labels "
                "(PRISM)"
            )
    has = {name: np.zeros(num_states, bool) for name in names.values()}
    for number, text in lines:
        first, *words = text.split()
        state = first.removesuffix(":")
        if not state.isdecimal() or int(state) >= num_states:
            raise ConfigError(
                f"{file}:{number}:1: begins with no state; they go to {num_states - 1}"
            )
        for word in words:
            if word not in names:
                column = text.index(word) + 1
                raise ConfigError(f"{file}:{number}:{column}: has a label that is not declared")
            has[names[word]][int(state)] = True
    return has


def _numbers(file: Path, columns: int, skip: int) -> Table:
    """The first columns of a file's lines, without the first lines."""
    if (size := file.stat().st_size) > MAX_BYTES:
        raise ConfigError(f"{file}: has {size:,} bytes, more than {MAX_BYTES:,}")
    try:
        with warnings.catch_warnings(), file.open(encoding="utf-8") as lines:
            warnings.simplefilter("ignore")  # Of files without numbers.
            for _ in range(skip):
                next(lines)
            table = np.loadtxt(
                lines, ndmin=2, comments=None, usecols=range(columns), encoding="utf-8"
            )
    except ValueError as error:
        for number, text in list(_lines(file))[skip:]:
            words = text.split()
            for position, word in enumerate([*words, *[""] * columns][:columns]):
                if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word):
                    raise ConfigError(
                        f"{file}:{number}:1: should begin with {columns} numbers; number "
                        f"{position + 1} is none"
                    ) from error
        raise
    if not table.size:
        raise ConfigError(f"{file}: has no lines of {columns} numbers")
    return table


def _refuse(file: Path, wrong: Bool[np.ndarray, " line"], reason: str, skip: int) -> None:
    """Refuse a file of which some lines are wrong; the first ``skip`` are no part of the table."""
    if wrong.any():
        number, _ = list(_lines(file))[int(wrong.argmax()) + skip]
        raise ConfigError(f"{file}:{number}:1: {reason}")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, and their numbers."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if text := line.strip():
                yield number, text
