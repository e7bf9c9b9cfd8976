"""Counterexamples to the structure that a world declares: false symmetries, words that matter.

Each check looks at some states only. What it finds is wrong is wrong; the reverse is likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import Successors, WorldSpec
from empo_core.world_structure import Reads, RowMap, Symmetry
from empo_core.worlds.samples import action_names

TOLERANCE = 1e-12
"""Difference of probabilities that rounding explains."""
MOST_PAIRS = 10_000
"""Pairs of a state and a joint action whose successors are compared."""
POLICY_TOLERANCE = 1e-6
"""The same for a human prior, which may answer in single precision."""


def false_symmetry(
    world: WorldModel, symmetry: Symmetry, states: Int[Tensor, "state word"]
) -> str | None:
    """A sentence that refutes a symmetry by one of these states; None where all agree with it."""
    if reason := _mismatch(world.spec, symmetry):
        return reason
    images = symmetry.rows(states)
    try:
        available, renamed = world.available(states), world.available(images)
    except WorldError as error:
        return f"it gives rows that are no states: {error}"
    if len(torch.unique(images, dim=0)) < len(torch.unique(states, dim=0)):
        return "two states have the same image"
    actions = symmetry.actions(states)
    agents = torch.tensor(symmetry.agents)
    exists = torch.arange(available.shape[2]) < torch.tensor(world.spec.num_actions)[:, None]
    differs = _renamed_actions(renamed[:, agents], actions, exists) != available
    if differs.any():
        at = int(differs.flatten(1).any(1).nonzero()[0])
        return (
            f"its image has other available actions than this state:\n{_shown(world, states, at)}"
        )
    reached = world.achieved(images)[:, torch.tensor(symmetry.goals, dtype=torch.int64)]
    achieved = world.achieved(states)
    if (reached != achieved).any():
        at, goal = (reached != achieved).nonzero()[0].tolist()
        name = world.spec.goals[goal].name
        return f"its image differs in goal {name!r} from this state:\n{_shown(world, states, at)}"
    for human in world.spec.humans:
        there = available[:, human].any(1)
        first = available[:, human].int().argmax(1)
        becomes = actions[torch.arange(len(states)), human, first]
        other = renamed[:, symmetry.agents[human]].int().argmax(1)
        wrong = there & achieved[:, list(world.spec.goals_of(human))].any(1) & (becomes != other)
        if wrong.any():
            at = int(wrong.nonzero()[0])
            return (
                f"{world.spec.agents[human].name} takes its first available action where it has "
                f"achieved a goal, which does not become the first one of the image, in this "
                f"state:\n{_shown(world, states, at)}"
            )
    return _differing_successors(world, symmetry, states, images, actions)


def prior_without_symmetry(
    world: WorldModel,
    prior: HumanPrior,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    steps_left: int,
) -> str | None:
    """A sentence that says where a human prior lacks a symmetry of its world; None: nowhere seen.

    Args:
        world: The world.
        prior: The prior.
        symmetry: The symmetry.
        states: States that are not terminal.
        steps_left: Steps until the end of the episode.
    """
    spec = world.spec
    policy = prior.policy(states, steps_left).double()
    other = prior.policy(symmetry.rows(states), steps_left).double()
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
        f"everything is renamed, in this state:\n{_shown(world, states, at)}"
    )


def cone(reads: Reads) -> Bool[Tensor, " word"]:
    """The words that availability and goals depend on, now or later [word]."""
    inside = reads.available | reads.achieved.any(0)
    while True:
        wider = inside | reads.words[inside].any(0)
        if torch.equal(wider, inside):
            return inside
        inside = wider


def prior_without_words(
    world: WorldModel,
    prior: HumanPrior,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    steps_left: int,
) -> str | None:
    """A sentence that shows that a human prior depends on some words; None: nowhere seen.

    Arguments as in ``prior_without_symmetry`` and ``word_that_matters``.
    """
    changed = _exchanged(dropped, states, 0)
    policies = [prior.policy(rows, steps_left).double() for rows in (states, changed)]
    differs = ((policies[0] - policies[1]).abs() > POLICY_TOLERANCE).flatten(1).any(1)
    if not differs.any():
        return None
    return _matters(world, states, changed, int(differs.nonzero()[0]), "its policies")


def word_that_matters(
    world: WorldModel,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    seed: int = 0,
) -> str | None:
    """A sentence that shows that words matter which are said not to; None: nowhere seen.

    Each of these states gets these words of some others, word by word.

    Args:
        world: The world.
        dropped: Words that nothing else depends on [word].
        states: Distinct states.
        seed: Seeds the choice of the others.
    """
    changed, names = _exchanged(dropped, states, seed), dropped.nonzero()[:, 0].tolist()
    try:
        available = world.available(changed)
    except WorldError as error:
        return f"rows with words {names} of other states are no states: {error}"
    different = (world.available(states) != available).flatten(1).any(1)
    if different.any():
        return _matters(world, states, changed, int(different.nonzero()[0]), "what is available")
    different = (world.achieved(states) != world.achieved(changed)).any(1)
    if different.any():
        return _matters(world, states, changed, int(different.nonzero()[0]), "achieved goals")

    def without(rows: Int[Tensor, "item word"]) -> Int[Tensor, "item word"]:
        return torch.where(dropped, torch.zeros_like(rows), rows)

    state, chosen = sampled_pairs(world.spec, len(states))
    found, other = (world.transitions(rows[state], chosen) for rows in (states, changed))
    pair = first_difference(found, other, without)
    if pair is None:
        return None
    about = f"the other words after ({_names(world.spec, chosen[pair])})"
    return _matters(world, states, changed, int(state[pair]), about)


def first_difference(
    found: Successors, other: Successors, renamed: RowMap, renamed_too: bool = True
) -> int | None:
    """The first pair whose successors differ; None where they are the same for all.

    Args:
        found: Successors of some pairs.
        other: Successors of as many, in the same order.
        renamed: Applied to the states in ``found`` before they are compared.
        renamed_too: Apply it to those in ``other``, too.
    """
    theirs = renamed(other.states) if renamed_too else other.states
    keys = np.concatenate([_keys(found, renamed(found.states)), _keys(other, theirs)])
    mass = np.concatenate([found.prob.double().numpy(), -other.prob.double().numpy()])
    distinct, position = np.unique(keys, axis=0, return_inverse=True)
    total = np.bincount(position.ravel(), mass, len(distinct))
    wrong = np.abs(total) > TOLERANCE
    return int(distinct[wrong, 0].min()) if wrong.any() else None


def _keys(found: Successors, rows: Int[Tensor, "item word"]) -> Float64[np.ndarray, "item key"]:
    """Pair, words and duration of each item."""
    duration = torch.ones(len(rows)) if found.duration is None else found.duration
    columns = (found.segments.index[:, None], rows, duration[:, None])
    return np.concatenate([column.double().numpy() for column in columns], 1)


def _differing_successors(
    world: WorldModel,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    images: Int[Tensor, "state word"],
    actions: Int[Tensor, "state agent action"],
) -> str | None:
    state, chosen = sampled_pairs(world.spec, len(states))
    agents = torch.arange(chosen.shape[1])
    becomes = torch.empty_like(chosen)
    becomes[:, torch.tensor(symmetry.agents)] = actions[state[:, None], agents, chosen].long()
    found = world.transitions(states[state], chosen)
    other = world.transitions(images[state], becomes)
    pair = first_difference(found, other, symmetry.rows, renamed_too=False)
    if pair is None:
        return None
    return (
        f"({_names(world.spec, chosen[pair])}) in the state below does not lead to the images of "
        f"what ({_names(world.spec, becomes[pair])}) leads to in its image:\n"
        f"{_shown(world, states, int(state[pair]))}"
    )


def sampled_pairs(
    spec: WorldSpec, states: int, seed: int = 0
) -> tuple[Int[Tensor, " pair"], Int[Tensor, "pair agent"]]:
    """Pairs of a state's position and a joint action: all, or ``MOST_PAIRS`` at random."""
    count = states * spec.num_joint_actions
    pairs = torch.arange(min(count, MOST_PAIRS))
    if count > MOST_PAIRS:
        pairs = torch.randint(count, pairs.shape, generator=torch.Generator().manual_seed(seed))
    joint = pairs % spec.num_joint_actions
    columns = [
        joint // stride % number
        for stride, number in zip(spec.strides, spec.num_actions, strict=True)
    ]
    return pairs // spec.num_joint_actions, torch.stack(columns, 1)


def _names(spec: WorldSpec, actions: Int[Tensor, " agent"]) -> str:
    """A joint action for people."""
    return action_names(spec, _index(spec, actions))


def _index(spec: WorldSpec, actions: Int[Tensor, " agent"]) -> int:
    return sum(a * s for a, s in zip(actions.tolist(), spec.strides, strict=True))


def _mismatch(spec: WorldSpec, symmetry: Symmetry) -> str | None:
    """Contradictions between a symmetry and the constants of a world."""
    for name, given, count in (
        ("agents", symmetry.agents, len(spec.agents)),
        ("goals", symmetry.goals, len(spec.goals)),
    ):
        if sorted(given) != list(range(count)):
            return f"its {name} are {list(given)}, not each of 0 to {count - 1} once"
    for agent, other in enumerate(symmetry.agents):
        mine, theirs = spec.agents[agent], spec.agents[other]
        if mine.role != theirs.role or len(mine.actions) != len(theirs.actions):
            return f"{mine.name} and {theirs.name} differ in their role or number of actions"
    for goal, other in enumerate(symmetry.goals):
        one, two = spec.goals[goal], spec.goals[other]
        if symmetry.agents[one.human] != two.human:
            return f"goal {one.name!r} becomes {two.name!r}, which is another human's"
        if one.weight != two.weight:
            weights = f"{one.weight} and {two.weight}"
            return f"goals {one.name!r} and {two.name!r} have the weights {weights}"
    return None


def _renamed_actions(
    available: Bool[Tensor, "state agent action"],
    actions: Int[Tensor, "state agent action"],
    exists: Bool[Tensor, "agent action"],
) -> Bool[Tensor, "state agent action"]:
    """True where the action that an action becomes is available; False for padding."""
    return available.gather(2, torch.where(exists, actions, 0).long()) & exists


def _exchanged(
    dropped: Bool[Tensor, " word"], states: Int[Tensor, "state word"], seed: int
) -> Int[Tensor, "state word"]:
    """The states with some words of others."""
    generator, changed = torch.Generator().manual_seed(seed), states.clone()
    for word in dropped.nonzero()[:, 0].tolist():
        changed[:, word] = states[torch.randperm(len(states), generator=generator), word]
    return changed


def _shown(world: WorldModel, states: Int[Tensor, "state word"], at: int) -> str:
    return world.describe(states[at])


def _matters(
    world: WorldModel,
    states: Int[Tensor, "state word"],
    changed: Int[Tensor, "state word"],
    at: int,
    about: str,
) -> str:
    words: Sequence[int] = (states[at] != changed[at]).nonzero()[:, 0].tolist()
    values = changed[at, torch.tensor(words)].tolist()
    return (
        f"{about} depend on words {words} after all: setting them to {values} makes a difference "
        f"in this state:\n{_shown(world, states, at)}"
    )
