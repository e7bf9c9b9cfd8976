"""Counterexamples to symmetries that a world declares, and images of states under them.

Each check looks at the states that it is given. What it finds is wrong is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import Expansion, WorldSpec
from empo_core.world_structure import RowMap, Symmetry
from empo_worlds.comparison import (
    POLICY_TOLERANCE,
    different_pairs,
    first_difference,
    sampled_pairs,
)
from empo_worlds.cone_checks import exchanged
from empo_worlds.row_table import RowTable
from empo_worlds.samples import joint_actions, names_of
from empo_worlds.signatures import expansion, signatures

MOST_STATES = 2000
"""States on which symmetries are tried, images included."""


def unchanged(rows: Int[Tensor, "state word"]) -> Int[Tensor, "state word"]:
    """The same rows."""
    return rows


def first_false(
    world: WorldModel,
    symmetries: Sequence[Symmetry],
    states: Int[Tensor, "state word"],
    alike: RowMap = unchanged,
) -> tuple[Symmetry, str] | None:
    """The first symmetry that states or their images refute, and a reason; None if all hold.

    Arguments as in ``false_symmetry``.
    """
    for rows in _in_turn(symmetries, states):
        for symmetry in symmetries:
            if reason := false_symmetry(world, symmetry, rows, alike):
                return symmetry, reason
    return None


def _in_turn(
    symmetries: Sequence[Symmetry], states: Int[Tensor, "state word"]
) -> Iterator[Int[Tensor, "row word"]]:
    """The states, and after them the states with their images."""
    yield states
    rows = rows_and_images(symmetries, states)
    if len(rows) > len(states):
        yield rows


def rows_and_images(
    symmetries: Sequence[Symmetry], states: Int[Tensor, "state word"], max_rows: int = MOST_STATES
) -> Int[Tensor, "row word"]:
    """Distinct states, followed by their images, images of those, and so on.

    Args:
        symmetries: The symmetries; the form of what they give has been checked.
        states: The states.
        max_rows: No more rows than this, unless there are more states.
    """
    table, num_mapped = RowTable.of(states.numpy()), 0
    while num_mapped < table.count < max_rows:
        rows = torch.from_numpy(table.rows[num_mapped:].copy())
        num_mapped = table.count
        for symmetry in symmetries:
            table.number(symmetry.rows(rows).numpy())
    return torch.from_numpy(table.rows[: max(max_rows, len(states))].copy())


def false_symmetry(
    world: WorldModel,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    alike: RowMap = unchanged,
    *,
    all_successors: Expansion | None = None,
) -> str | None:
    """A sentence about a state that refutes a symmetry; None where all states agree with it.

    Args:
        world: The world.
        symmetry: The symmetry.
        states: Distinct states.
        alike: What states are compared by, where some count as equal; itself a state.
        all_successors: All successors of the states, where all joint actions are to be tried;
            None: try ``MOST_PAIRS`` states and joint actions.
    """
    if reason := wrong_form(world.spec, symmetry, states):
        return reason
    images = symmetry.rows(states)
    try:
        available, renamed = world.available(states), world.available(images)
    except WorldError as error:
        return f"it gives rows that are no states: {error}"
    counts = [RowTable.of(alike(rows).numpy()).count for rows in (images, states)]
    if counts[0] < counts[1]:
        return "two states have the same image"
    actions = symmetry.actions(states)
    agents, exists = torch.tensor(symmetry.agents), _exists(world.spec)
    differs = _renamed_actions(renamed[:, agents], actions, exists) != available
    if differs.any():
        at = int(differs.flatten(1).any(1).nonzero()[0])
        return (
            f"its image has other available actions than this state:\n{world.describe(states[at])}"
        )
    reached = world.achieved(images)[:, torch.tensor(symmetry.goals, dtype=torch.int64)]
    achieved = world.achieved(states)
    if (reached != achieved).any():
        at, goal = (reached != achieved).nonzero()[0].tolist()
        name = world.spec.goals[goal].name
        return f"its image differs in goal {name!r} from this state:\n{world.describe(states[at])}"
    for human in world.spec.humans:
        acts = available[:, human].any(1)
        first = available[:, human].int().argmax(1)
        becomes = actions[torch.arange(len(states)), human, first]
        other = renamed[:, symmetry.agents[human]].int().argmax(1)
        wrong = acts & achieved[:, list(world.spec.goals_of(human))].any(1) & (becomes != other)
        if wrong.any():
            at = int(wrong.nonzero()[0])
            return (
                f"{world.spec.agents[human].name} takes its first available action where it has "
                "achieved a goal, which does not become the first one of the image, in this "
                f"state:\n{world.describe(states[at])}"
            )
    return _differing_successors(world, symmetry, states, alike, all_successors)


def mixed_words(
    symmetry: Symmetry,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    donors: Int[Tensor, "donor word"] | None = None,
) -> str | None:
    """A sentence about dropped words that change other words of images, or None.

    Args:
        symmetry: The symmetry.
        dropped: The words [word].
        states: Distinct states.
        donors: States whose words they get; None: the same.
    """
    source, changed = exchanged(dropped, states, donors)
    if not len(changed):
        return None
    remaining = ~dropped
    before, after = (
        symmetry.rows(states)[source][:, remaining],
        symmetry.rows(changed)[:, remaining],
    )
    differs = before != after
    if not differs.any():
        return None
    item, word = differs.nonzero()[0].tolist()
    read = (states[source[item]] != changed[item]).nonzero()[:, 0].tolist()
    into = int(remaining.nonzero()[word])
    return f"it moves one of the words {read}, on which nothing depends, into word {into}"


def prior_without_symmetry(
    world: WorldModel,
    prior: HumanPrior,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    steps_left: int,
) -> str | None:
    """A sentence about a state where a human prior breaks a symmetry of its world, or None.

    Args:
        world: The world.
        prior: The prior.
        symmetry: The symmetry.
        states: States that are not terminal.
        steps_left: Steps until the end of the episode.
    """
    spec = world.spec
    steps = torch.full((len(states),), steps_left)
    policy = prior.policy(states, steps).double()
    other = prior.policy(symmetry.rows(states), steps).double()
    other = other[:, torch.tensor(symmetry.goals, dtype=torch.int64)]
    humans = torch.tensor([goal.human for goal in spec.goals], dtype=torch.int64)
    actions = symmetry.actions(states)[:, humans, : policy.shape[2]].long()
    exists = torch.arange(policy.shape[2]) < torch.tensor(spec.num_actions)[humans][:, None]
    renamed = torch.where(exists, other.gather(2, torch.where(exists, actions, 0)), 0.0)
    differs = (renamed - torch.where(exists, policy, 0.0)).abs() > POLICY_TOLERANCE
    if not differs.any():
        return None
    at, goal, action = differs.nonzero()[0].tolist()
    human = spec.agents[spec.goals[goal].human]
    return (
        f"with goal {spec.goals[goal].name!r} {human.name} takes {human.actions[action]!r} with "
        f"probability {policy[at, goal, action]:.4g}, and {renamed[at, goal, action]:.4g} where "
        f"everything is renamed, in this state:\n{world.describe(states[at])}"
    )


def _differing_successors(
    world: WorldModel,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    alike: RowMap,
    all_successors: Expansion | None,
) -> str | None:
    if all_successors is not None:
        state, chosen = _suspects(world, symmetry, states, alike, all_successors)
    else:
        state, chosen = sampled_pairs(world.spec, len(states))
    if not len(state):
        return None
    agents, actions = torch.arange(chosen.shape[1]), symmetry.actions(states)
    becomes = torch.empty_like(chosen)
    becomes[:, torch.tensor(symmetry.agents)] = actions[state[:, None], agents, chosen].long()
    successors = world.transitions(states[state], chosen)
    other = world.transitions(symmetry.rows(states)[state], becomes)
    rows = alike(symmetry.rows(successors.states))
    pair = first_difference(successors, rows, other, alike(other.states))
    if pair is None:
        return None
    names, image_names = (names_of(world.spec, batch[pair].tolist()) for batch in (chosen, becomes))
    return (
        f"({names}) in the state below does not lead to the images of what ({image_names}) leads "
        "to in its image:\n"
        f"{world.describe(states[int(state[pair])])}"
    )


def _suspects(
    world: WorldModel,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    alike: RowMap,
    all_successors: Expansion,
) -> tuple[Int[Tensor, " pair"], Int[Tensor, "pair agent"]]:
    """States and joint actions whose signatures differ from those of their images."""
    spec, chosen = world.spec, joint_actions(world.spec)
    actions, joint = symmetry.actions(states), torch.zeros(len(states), len(chosen)).long()
    for agent, other in enumerate(symmetry.agents):
        joint += actions[:, agent].long()[:, chosen[:, agent]] * spec.strides[other]
    mine = signatures(all_successors, len(chosen), lambda rows: alike(symmetry.rows(rows)))
    theirs = signatures(expansion(world, symmetry.rows(states)), len(chosen), alike)
    return different_pairs(spec, mine, np.take_along_axis(theirs, joint.numpy()[..., None], 1))


def wrong_form(
    spec: WorldSpec, symmetry: Symmetry, states: Int[Tensor, "state word"]
) -> str | None:
    """A sentence about what is wrong with the form of a symmetry, whatever states it renames."""
    return _mismatch(spec, symmetry) or _misshapen(spec, symmetry, states)


def _mismatch(spec: WorldSpec, symmetry: Symmetry) -> str | None:
    """Contradictions between a symmetry and the constants of a world."""
    for name, permutation, count in (
        ("agents", symmetry.agents, len(spec.agents)),
        ("goals", symmetry.goals, len(spec.goals)),
    ):
        if len(permutation) != count or set(permutation) != set(range(count)):
            expected = f"each of 0 to {count - 1} once" if count else "none"
            return f"its {name} are {list(permutation)}, not {expected}"
    for agent, other in enumerate(symmetry.agents):
        mine, theirs = spec.agents[agent], spec.agents[other]
        if mine.role != theirs.role or len(mine.actions) != len(theirs.actions):
            return f"{mine.name} and {theirs.name} differ in their role or number of actions"
    for goal, other in enumerate(symmetry.goals):
        before, after = spec.goals[goal], spec.goals[other]
        if symmetry.agents[before.human] != after.human:
            return f"goal {before.name!r} becomes {after.name!r}, which is another human's"
        if before.weight != after.weight:
            weights = f"{before.weight} and {after.weight}"
            return f"goals {before.name!r} and {after.name!r} have the weights {weights}"
    return None


def _misshapen(
    spec: WorldSpec, symmetry: Symmetry, states: Int[Tensor, "state word"]
) -> str | None:
    """A sentence about a wrong form of the rows and actions that a symmetry gives."""
    original = states.clone()
    images = symmetry.rows(original)
    if not torch.equal(original, states):
        return "it changes the rows that it is given; rows must return new ones"
    if images.shape != states.shape or images.dtype != states.dtype:
        actual, expected = (f"{list(rows.shape)} of {rows.dtype}" for rows in (images, states))
        return f"its rows have shape {actual}, not {expected}"
    actions = symmetry.actions(states)
    shape = [len(states), len(spec.agents), max(spec.num_actions)]
    if list(actions.shape) != shape or actions.is_floating_point():
        return f"its actions have shape {list(actions.shape)} of {actions.dtype}, not {shape}"
    for agent, count in enumerate(spec.num_actions):
        becomes = actions[:, agent, :count].sort(1).values
        wrong = (becomes != torch.arange(count)).any(1)
        if wrong.any():
            renamed = actions[int(wrong.nonzero()[0]), agent, :count].tolist()
            return (
                f"it renames the actions of {spec.agents[agent].name} to {renamed}, which is not "
                f"each of 0 to {count - 1} once"
            )
    return None


def _exists(spec: WorldSpec) -> Bool[Tensor, "agent action"]:
    """False for padding of the action axis."""
    return torch.arange(max(spec.num_actions)) < torch.tensor(spec.num_actions)[:, None]


def _renamed_actions(
    available: Bool[Tensor, "state agent action"],
    actions: Int[Tensor, "state agent action"],
    exists: Bool[Tensor, "agent action"],
) -> Bool[Tensor, "state agent action"]:
    """True where the action that an action becomes is available; False for padding."""
    return available.gather(2, torch.where(exists, actions, 0).long()) & exists
