"""Words of a row that affect neither availability nor goals, and counterexamples to that claim.

Each check looks at the states that it is given. What it finds is wrong is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.world_structure import Reads
from empo_worlds.comparison import (
    POLICY_TOLERANCE,
    different_pairs,
    first_difference,
    sampled_pairs,
)
from empo_worlds.row_table import distinct
from empo_worlds.samples import names_of
from empo_worlds.signatures import expansion, signatures

MOST_ROWS = 10_000
"""Rows that are tried with words of other states."""


def cone(reads: Reads) -> Bool[Tensor, " word"]:
    """The words that availability and goals depend on, now or later [word]."""
    inside = reads.available | reads.achieved.any(0)
    while True:
        wider = inside | reads.words[inside].any(0)
        if torch.equal(wider, inside):
            return inside
        inside = wider


def exchanged(
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    donors: Int[Tensor, "donor word"] | None = None,
    max_rows: int = MOST_ROWS,
) -> tuple[Int[Tensor, " item"], Int[Tensor, "item word"]]:
    """Distinct rows: states whose dropped words are replaced by those of other states.

    Half of them, where there are so many, have all these words from one other state, and the rest
    each from a state of its own. Of few states all pairs are tried.

    Args:
        dropped: The words that change [word].
        states: Distinct states.
        donors: The others; None: the same states.
        max_rows: No more rows than about this, and two of each state.

    Returns:
        The position of the state that each row comes from, and the row.
    """
    donors = states if donors is None else donors
    count, num_donors, generator = len(states), len(donors), torch.Generator().manual_seed(0)
    rounds = max(2, -(-max_rows // max(1, count)))
    shift = torch.randperm(num_donors, generator=generator)[: -(-rounds // 2), None, None]
    position = torch.arange(count)
    shape = (rounds - len(shift), count, states.shape[1])
    shifted = (position[:, None] + shift) % num_donors
    mixed = torch.randint(num_donors, shape, generator=generator)
    of = torch.cat([shifted.expand(-1, -1, states.shape[1]), mixed]).flatten(0, 1)
    position = position.repeat(rounds)
    rows = torch.where(dropped, donors.gather(0, of), states[position])
    labelled = torch.cat([position[:, None], rows.long()], 1)
    labelled = torch.from_numpy(distinct(labelled.numpy()))
    source, rows = labelled[:, 0], labelled[:, 1:].to(states.dtype)
    differs = (rows != states[source]).any(1)
    return source[differs], rows[differs]


def word_that_matters(
    world: WorldModel,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    donors: Int[Tensor, "donor word"] | None = None,
) -> str | None:
    """A counterexample to the claim that dropped words do not matter, as a sentence, or None.

    These states get these words of others, see ``exchanged``.

    Args:
        world: The world.
        dropped: Words that nothing else depends on [word].
        states: Distinct states.
        donors: States whose words they get; None: the same.
    """
    source, changed = exchanged(dropped, states, donors)
    return difference_by_words(world, dropped, states[source], changed)


def difference_by_words(
    world: WorldModel,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "item word"],
    changed: Int[Tensor, "item word"],
    *,
    all_pairs: bool = False,
) -> str | None:
    """A sentence about a difference that changed words cause in a world, or None.

    Args:
        world: The world.
        dropped: Words that nothing else depends on [word].
        states: State rows.
        changed: Rows that differ from those in these words only.
        all_pairs: Whether all joint actions are tried, and not ``MOST_PAIRS`` of them and of
            states.
    """
    if not len(changed):
        return None
    try:
        available = world.available(changed)
    except WorldError as error:
        names = dropped.nonzero()[:, 0].tolist()
        return f"rows with words {names} of other states are no states: {error}"
    different = (world.available(states) != available).flatten(1).any(1)
    if different.any():
        return _matters(world, states, changed, int(different.nonzero()[0]), "what is available")
    different = (world.achieved(states) != world.achieved(changed)).any(1)
    if different.any():
        return _matters(world, states, changed, int(different.nonzero()[0]), "achieved goals")
    if all_pairs:

        def image(rows: Int[Tensor, "outcome word"]) -> Int[Tensor, "outcome _word"]:
            return rows[:, ~dropped]

        joint = world.spec.num_joint_actions
        before, after = (
            signatures(expansion(world, rows), joint, image) for rows in (states, changed)
        )
        item, chosen = different_pairs(world.spec, before, after)
    else:
        item, chosen = sampled_pairs(world.spec, len(states))
    if not len(item):
        return None
    successors, other = (world.transitions(rows[item], chosen) for rows in (states, changed))
    pair = first_difference(
        successors, successors.states[:, ~dropped], other, other.states[:, ~dropped]
    )
    if pair is None:
        return None
    effect = f"the other words after ({names_of(world.spec, chosen[pair].tolist())})"
    return _matters(world, states, changed, int(item[pair]), effect)


def prior_without_words(
    world: WorldModel,
    prior: HumanPrior,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    steps_left: int,
    max_rows: int = MOST_ROWS,
    donors: Int[Tensor, "donor word"] | None = None,
) -> str | None:
    """A sentence about a difference that changed words cause in a human prior, or None.

    Args:
        world: The world.
        prior: The prior.
        dropped: Words that nothing else depends on [word].
        states: Distinct states that are not terminal.
        steps_left: Steps until the end of the episode.
        max_rows: About how many rows it is asked about.
        donors: States whose words they get; None: the same states.
    """
    source, changed = exchanged(dropped, states, donors, max_rows=max_rows)
    if not len(changed):
        return None
    policy = prior.policy(states, torch.full((len(states),), steps_left)).double()[source]
    other = prior.policy(changed, torch.full((len(changed),), steps_left)).double()
    differs = ((policy - other).abs() > POLICY_TOLERANCE).flatten(1).any(1)
    if not differs.any():
        return None
    return _matters(world, states[source], changed, int(differs.nonzero()[0]), "its policies")


def _matters(
    world: WorldModel,
    states: Int[Tensor, "item word"],
    changed: Int[Tensor, "item word"],
    at: int,
    effect: str,
) -> str:
    words: Sequence[int] = (states[at] != changed[at]).nonzero()[:, 0].tolist()
    values = changed[at, torch.tensor(words)].tolist()
    return (
        f"{effect} depend on words {words} after all: setting them to {values} makes a difference "
        f"in this state:\n{world.describe(states[at])}"
    )
