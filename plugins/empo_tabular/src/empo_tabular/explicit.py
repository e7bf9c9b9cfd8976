"""Models of probabilistic model checkers in their explicit format (.tra, .lab, .rew) as games.

The format of Storm, which ``exact`` exports, and transitions and labels of PRISM; see
``docs/how-to/large_tables.md``.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from empo_core.errors import ConfigError
from empo_tabular.arrays import MAX_PAIRS, TableArrays

MAX_BYTES = 2**31
"""Bytes of a file."""
MAX_LINE = 2**20
"""Characters of a line."""
MAX_LABELS = 100_000
MAX_NAME = 255
"""Characters of a label."""
MAX_STATES = 10_000_000
ENDS = ("final", "deadlock")
"""Labels of states that have a transition to themselves because the format wants one."""

Table = Float[np.ndarray, "line column"]

_NUMBER = re.compile(r"[-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+")
_COUNT = re.compile(r"[0-9]{1,18}")

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
        for path in (file, labels, durations):
            if path is not None:
                _refuse_large(path)
        return _read(file, labels, durations)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read with what belongs to it: {error}") from error


def _read(file: Path, labels: Path, durations: Path | None) -> TableArrays:
    table, num_states = _transitions(file)
    width = int(table[:, 1].max()) + 1
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
    _refuse_missing(file, table, ends)
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


def _refuse_large(path: Path) -> None:
    """Refuse what is no regular file, or too large, before it is opened."""
    size = path.stat().st_size
    if not path.is_file():
        raise ConfigError(f"{path}: is no regular file")
    if size > MAX_BYTES:
        raise ConfigError(f"{path}: has {size:,} bytes, more than {MAX_BYTES:,}")


def _transitions(file: Path) -> tuple[Table, int]:
    """Lines of state, choice, target and probability (chains get the choice 0); number of states.

    Only PRISM says how many states there are; otherwise they go to the last one that is named.
    """
    _, text = next(_lines(file), (1, ""))
    head = text.split()
    columns = {"mdp": 4, "dtmc": 3}.get(text.lower())
    counts: list[int] = []
    if columns is None and all(map(_COUNT.fullmatch, head)):
        columns = {3: 4, 2: 3}.get(len(head))  # PRISM.
        counts = [*map(int, head)]
    if columns is None:
        raise ConfigError(
            f"{file}:1:1: should begin with 'mdp' or 'dtmc' (Storm), or with numbers of states, "
            "choices (of decision processes) and transitions (PRISM)"
        )
    # Names of actions may follow in decision processes.
    table = _numbers(file, columns, skip=1, exact=columns == 3)
    if columns == 3:
        table = np.insert(table, 1, 0, axis=1)
    _refuse(file, ~((table[:, 3] > 0) & (table[:, 3] <= 1)), "the probability is not in (0, 1]", 1)
    _refuse(
        file,
        ~_are_whole(table[:, :3], MAX_STATES),
        f"states and choices are whole numbers from 0 on, below {MAX_STATES:,}",
        1,
    )
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
    num_states = int(table[:, [0, 2]].max()) + 1
    if not counts:
        return table, num_states
    num_choices = 1 + int((before[:, :2] != after[:, :2]).any(1).sum())
    for name, announced, number in (
        ("transitions", counts[-1], len(table)),
        ("choices", counts[-2] if columns == 4 else num_choices, num_choices),
    ):
        if announced != number:
            raise ConfigError(f"{file}:1:1: announces {announced:,} {name}, and {number:,} follow")
    if not num_states <= counts[0] < MAX_STATES:
        raise ConfigError(
            f"{file}:1:1: announces {counts[0]:,} states; those that follow need {num_states:,}, "
            f"and there may be {MAX_STATES:,}"
        )
    return table, counts[0]


def _refuse_missing(file: Path, table: Table, ends: Bool[np.ndarray, " state"]) -> None:
    """Refuse states that nothing follows although no label says that an episode ends there."""
    has = ends.copy()
    has[table[:, 0].astype(np.int64)] = True
    if not has.all():
        state = int(has.argmin())
        # Where it should be, or the last line.
        place = np.arange(len(table)) == np.searchsorted(table[:-1, 0], state)
        reason = (
            f"state {state} should come before or here: it has no transition, and none of the "
            f"labels {', '.join(ENDS)}"
        )
        _refuse(file, place, reason, 1)


def _durations(
    file: Path, table: Table, width: int, num_states: int
) -> Float[np.ndarray, " transition"]:
    """The reward of each transition: its own, or that of its state."""
    _, text = next(_lines(file), (1, ""))
    columns = len(text.split())
    if columns not in (2, 3, 4):
        raise ConfigError(f"{file}:1:1: should list states, or transitions, and their rewards")
    rewards = _numbers(file, columns, skip=0, exact=True)
    wrong = ~((rewards[:, -1] > 0) & (rewards[:, -1] < np.inf))
    _refuse(file, wrong, "the reward is a duration and must be positive and finite", 0)
    if columns == 3:
        rewards = np.insert(rewards, 1, 0, axis=1)
    bounds = (num_states,) if columns == 2 else (num_states, width, num_states)
    _refuse(
        file,
        ~_are_whole(rewards[:, :-1], bounds),
        f"there is no such state or choice; states go to {num_states - 1}, choices to {width - 1}",
        0,
    )
    # Each row as one number.
    keys, rewarded = (
        np.ravel_multi_index(tuple(rows[:, : len(bounds)].astype(np.int64).T), bounds)
        for rows in (table, rewards)
    )
    _refuse(file, np.isin(rewarded, keys, invert=True), "nothing has such a transition", 0)
    distinct, first = np.unique(rewarded, return_index=True)
    again = np.ones(len(rewarded), bool)
    again[first] = False
    _refuse(file, again, "has a reward before", 0)
    missing = np.isin(keys, rewarded, invert=True)
    if missing.any():
        state, _, target = table[int(missing.argmax()), :3].astype(np.int64).tolist()
        raise ConfigError(
            f"{file}: the transition of state {state} to {target} has no reward, which means 0; "
            "rewards are durations here, which must be positive"
        )
    duration: Float[np.ndarray, " transition"] = rewards[first[np.searchsorted(distinct, keys)], -1]
    return duration


def _labels(file: Path, num_states: int) -> dict[str, Bool[np.ndarray, " state"]]:
    """Which states have each label, in the order in which labels are declared."""
    lines = _lines(file)
    number, text = next(lines, (1, ""))
    names: dict[str, str] = {}
    if text == "#DECLARATION":  # Storm.
        for number, text in lines:
            if text == "#END":
                break
            names |= {name: name for name in text.split()}
            _refuse_labels(file, number, names, num_states)
    else:
        names = dict(re.findall(r'(?<![0-9])([0-9]+)="([^"]*)"', text))
        _refuse_labels(file, number, names, num_states)
        if not names:
            raise ConfigError(
                f"{file}:1:1: should begin with '#DECLARATION' (Storm), or with numbers and labels "
                "(PRISM)"
            )
    has = {name: np.zeros(num_states, bool) for name in names.values()}
    for number, text in lines:
        first, *words = text.split()
        state = first.removesuffix(":")
        if not _COUNT.fullmatch(state) or int(state) >= num_states:
            raise ConfigError(
                f"{file}:{number}:1: begins with no state; they go to {num_states - 1}"
            )
        for word in words:
            if word not in names:
                column = text.index(word) + 1
                raise ConfigError(f"{file}:{number}:{column}: has a label that is not declared")
            has[names[word]][int(state)] = True
    return has


def _refuse_labels(file: Path, number: int, names: dict[str, str], num_states: int) -> None:
    """Refuse labels that would take too much room, before any is made."""
    if len(names) > MAX_LABELS or len(names) * num_states > MAX_PAIRS:
        raise ConfigError(
            f"{file}:{number}:1: {len(names):,} labels of {num_states:,} states are too many: "
            f"there may be {MAX_LABELS:,} labels, and {MAX_PAIRS:,} pairs of a state and a label"
        )
    if any(not 0 < len(name) <= MAX_NAME for name in names.values()):
        raise ConfigError(f"{file}:{number}:1: labels have 1 to {MAX_NAME} characters")


def _numbers(file: Path, columns: int, skip: int, *, exact: bool) -> Table:
    """The first columns of a file's lines, without the first lines; all columns if ``exact``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of files without numbers.
            table = np.loadtxt(
                (text for _, text in islice(_lines(file), skip, None)),
                ndmin=2,
                comments=None,
                usecols=None if exact else range(columns),
                encoding="utf-8",
            )
    except ConfigError:
        raise
    except ValueError as error:
        reason = f"should begin with {columns} numbers"
        for number, text in islice(_lines(file), skip, None):
            words = text.split()
            for position, word in enumerate([*words, *[""] * columns][:columns]):
                if not _NUMBER.fullmatch(word):
                    raise ConfigError(
                        f"{file}:{number}:1: {reason}; number {position + 1} is none"
                    ) from error
            if exact and len(words) > columns:
                raise ConfigError(
                    f"{file}:{number}:1: should have {columns} numbers, and has {len(words)}"
                ) from error
        raise ConfigError(f"{file}: each line {reason}: {error}") from error
    if not table.size:
        raise ConfigError(f"{file}: has no lines of {columns} numbers")
    if table.shape[1] != columns:
        raise ConfigError(
            f"{file}:{skip + 1}:1: should have {columns} numbers, and has {table.shape[1]}"
        )
    return table


def _are_whole(
    numbers: Float[np.ndarray, "line column"], bounds: int | tuple[int, ...]
) -> Bool[np.ndarray, " line"]:
    """Which lines have whole numbers only, from 0 on, below the bound (of their column)."""
    whole = (numbers >= 0) & (numbers < np.array(bounds)) & (numbers == np.floor(numbers))
    lines: Bool[np.ndarray, " line"] = whole.all(1)
    return lines


def _refuse(file: Path, wrong: Bool[np.ndarray, " line"], reason: str, skip: int) -> None:
    """Refuse a file of which some lines are wrong; the first ``skip`` are no part of the table."""
    if wrong.any():
        number, _ = next(islice(_lines(file), int(wrong.argmax()) + skip, None))
        raise ConfigError(f"{file}:{number}:1: {reason}")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, and their numbers."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(iter(partial(lines.readline, MAX_LINE + 1), ""), start=1):
            if len(line) > MAX_LINE:
                raise ConfigError(f"{file}:{number}:1: has more than {MAX_LINE:,} characters")
            if text := line.strip():
                yield number, text
