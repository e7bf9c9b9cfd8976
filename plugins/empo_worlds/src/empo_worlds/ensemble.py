"""Several worlds as one, so that one learner can learn in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.config import HumanPriorRef
from empo_core.errors import SolveError, WorldError
from empo_core.features import Features, FeatureShape, Featurizer
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import InitialStates, Successors, WorldSpec
from empo_core.world_content import world_digest
from empo_worlds.contract import achieved_in, available_in, successors_of
from empo_worlds.policy_checks import human_policy
from empo_worlds.queries import sample_successors
from empo_worlds.ragged import concatenate, select_pairs
from empo_worlds.rows import state_rows


class EnsembleWorld(WorldModel):
    """Worlds side by side: a row is the number of the layout, then its row, padded with 0.

    A world knows nothing of the others: no transition changes the layout. States have compact
    rows where all of the worlds have compact rows of one form.

    Attributes:
        worlds: The worlds; their positions are the numbers of the layouts.
        spec: Agents and times as in each world; the goals of all, world by world.
    """

    def __init__(self, worlds: Sequence[WorldModel]) -> None:
        """Join the worlds.

        Raises:
            SolveError: if the worlds differ in what has to be the same for one learner.
        """
        self.worlds = tuple(worlds)
        self.spec = _union([world.spec for world in worlds])
        counts = [len(world.spec.goals) for world in worlds]
        self._first_goal = [sum(counts[:layout]) for layout in range(len(counts))]
        forms = {_compact_form(world) for world in worlds}
        self._is_compact = len(forms) == 1 and None not in forms

    def content(self) -> list[str]:
        """The digests of the worlds; see ``empo_core.protocols.WorldModel``."""
        return [world_digest(world) for world in self.worlds]

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row that episodes in the first world start from, if there is only one."""
        return self.initial_states().only(self.spec.name)

    def initial_states(self) -> InitialStates:
        """The states that episodes in the first world start from."""
        return self.starts()[0]

    def starts(self) -> list[InitialStates]:
        """The states that episodes start from, in each world."""
        return [
            InitialStates(self._wrapped(layout, initial.states), initial.prob)
            for layout, initial in enumerate(world.initial_states() for world in self.worlds)
        ]

    def layout_of(self, states: Int[Tensor, "state word"]) -> Int[Tensor, " state"]:
        """Which world each state belongs to.

        Raises:
            WorldError: if there is no such world, or the rows have another length.
        """
        if states.ndim != 2 or states.shape[1] != self.spec.state_words:
            raise WorldError(
                f"states have shape {list(states.shape)}; a row of {self.spec.name!r} has "
                f"{self.spec.state_words} words"
            )
        layout = states[:, 0].long()
        wrong = (layout < 0) | (layout >= len(self.worlds))
        if bool(wrong.any()):
            raise WorldError(
                f"{states[wrong][0].tolist()} names layout {int(layout[wrong][0])}; "
                f"there are {len(self.worlds)}, counted from 0"
            )
        return layout

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """All successors; see ``empo_core.protocols.WorldModel``."""
        num_joint = self.spec.num_joint_actions if actions is None else 1
        parts, pairs = [], []
        for layout, index, rows in self.split(states):
            successors = successors_of(
                self.worlds[layout], rows, None if actions is None else actions[index]
            )
            parts.append(replace(successors, states=self._wrapped(layout, successors.states)))
            pairs.append((index[:, None] * num_joint + torch.arange(num_joint)).flatten())
        if len(parts) == 1:
            return parts[0]
        if not parts:
            nothing = torch.zeros(1, dtype=torch.int64)
            return Successors(nothing, states[:0], torch.zeros(0, dtype=torch.float64))
        return select_pairs(concatenate(parts), torch.cat(pairs).argsort())

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has."""
        shape = len(states), len(self.spec.agents), max(self.spec.num_actions)
        is_available = torch.zeros(shape, dtype=torch.bool)
        for layout, index, rows in self.split(states):
            is_available[index] = available_in(self.worlds[layout], rows)
        return is_available

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where a goal is achieved; never where it is another world's."""
        is_achieved = torch.zeros(len(states), len(self.spec.goals), dtype=torch.bool)
        for layout, index, rows in self.split(states):
            is_achieved[index[:, None], self.goals_of(layout)] = achieved_in(
                self.worlds[layout], rows
            )
        return is_achieved

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state."""
        return sample_successors(self.transitions(states, actions), states, generator)

    @property
    def compact_features(self) -> Featurizer | None:
        """Reads compact rows of all the worlds."""
        return self.worlds[0].compact_features if self._is_compact else None

    def compact(
        self, states: Int[Tensor, "state word"]
    ) -> Int[Tensor, "state compact_word"] | None:
        """The compact row of each state, without the number of its layout."""
        if not self._is_compact:
            return None
        compact: Tensor | None = None
        for layout, index, rows in self.split(states):
            part = self.worlds[layout].compact(rows)
            assert part is not None
            if compact is None:
                compact = part.new_zeros(len(states), part.shape[1])
            compact[index] = part
        return self.worlds[0].compact(states[:0, 1:]) if compact is None else compact

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The world's name, and what it says about the state."""
        ((layout, _, rows),) = self.split(state[None])
        world = self.worlds[layout]
        return f"{world.spec.name} (layout {layout})\n{world.describe(rows[0])}"

    def split(self, states: Int[Tensor, "state word"]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The layouts that occur, where they occur, and the worlds' own rows there."""
        layouts = self.layout_of(states)
        for layout in sorted(set(layouts.tolist())):
            index = (layouts == layout).nonzero()[:, 0]
            spec = self.worlds[layout].spec
            rows = state_rows(spec, states[index, 1 : 1 + spec.state_words])
            yield layout, index, torch.from_numpy(rows)

    def goals_of(self, layout: int) -> Int[Tensor, " goal"]:
        """Positions of a world's goals among the goals of all."""
        first = self._first_goal[layout]
        return torch.arange(first, first + len(self.worlds[layout].spec.goals))

    def _wrapped(self, layout: int, rows: Int[Tensor, "state word"]) -> Tensor:
        whole = torch.zeros(len(rows), self.spec.state_words, dtype=self.spec.state_dtype)
        whole[:, 0] = layout
        whole[:, 1 : 1 + rows.shape[1]] = rows
        return whole


def _compact_form(world: WorldModel) -> tuple[int, FeatureShape] | None:
    """Words and features of a world's compact rows; None where it has none."""
    rows, features = world.compact(world.initial_states().states[:1]), world.compact_features
    return None if rows is None or features is None else (rows.shape[1], features.shape)


class EnsemblePrior:
    """Each world's own human prior; goals of other worlds get no probabilities at all."""

    def __init__(
        self, world: EnsembleWorld, make_prior: Callable[[WorldModel], HumanPrior]
    ) -> None:
        self._world = world
        self._priors = [make_prior(member) for member in world.worlds]
        spec = world.spec
        self._width = max(spec.num_actions[human] for human in spec.humans)

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities; see ``empo_core.protocols.HumanPrior``."""
        shape = len(states), len(self._world.spec.goals), self._width
        policies = torch.zeros(shape, dtype=torch.float64)
        for layout, index, rows in self._world.split(states):
            policy = human_policy(
                self._world.worlds[layout], self._priors[layout], rows, steps_left[index]
            )
            policies[index[:, None], self._world.goals_of(layout)] = policy[..., : self._width]
        return policies


@dataclass(frozen=True)
class EnsembleFeatures(Featurizer):
    """Reads rows of an ensemble: each as its world does, padded with 0 to the largest size.

    Attributes:
        readers: What reads the rows of each world.
        words: How many words they have.
        dtypes: And of which type.
        tells_layout: Whether the number of the layout, one-hot, follows the global numbers.
    """

    readers: tuple[Featurizer, ...]
    words: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    tells_layout: bool

    @property
    def shape(self) -> FeatureShape:
        """The largest number of each sort."""
        shapes = [reader.shape for reader in self.readers]
        largest = {
            name: max(getattr(shape, name) for shape in shapes)
            for name in FeatureShape.__dataclass_fields__
        }
        largest["globals"] += len(self.readers) * self.tells_layout
        return FeatureShape(**largest)

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state."""
        shape, count = self.shape, len(states)
        device = states.device
        whole = Features(
            torch.zeros(count, shape.channels, shape.height, shape.width, device=device),
            torch.zeros(count, shape.globals, device=device),
            torch.zeros(count, shape.agents, shape.agent_features, device=device),
            torch.zeros(count, shape.objects, shape.object_features, device=device),
        )
        layouts = states[:, 0].long()
        for layout in sorted(set(layouts.tolist())):
            index = (layouts == layout).nonzero()[:, 0]
            rows = states[index, 1 : 1 + self.words[layout]].to(self.dtypes[layout])
            part = self.readers[layout](rows)
            _put(whole.grid, index, part.grid)
            _put(whole.globals, index, part.globals)
            _put(whole.agents, index, part.agents)
            _put(whole.objects, index, part.objects)
            if self.tells_layout:
                whole.globals[index, shape.globals - len(self.readers) + layout] = 1.0
        return whole


def _put(whole: Tensor, index: Tensor, part: Tensor) -> None:
    """Write the part of some states into the corner of the larger whole."""
    padding = [
        pad
        for size, part_size in zip(reversed(whole.shape[1:]), reversed(part.shape[1:]), strict=True)
        for pad in (0, size - part_size)
    ]
    whole[index] = torch.nn.functional.pad(part.to(whole.dtype), padding)


def _union(specs: Sequence[WorldSpec]) -> WorldSpec:
    first = specs[0]
    for layout, spec in enumerate(specs):
        for subject, of_first, of_this in _to_agree(first, spec):
            if of_first != of_this:
                raise SolveError(
                    f"world {layout} of the ensemble, {spec.name!r}, has {subject} {of_this}, but "
                    f"{first.name!r} has {of_first}; worlds of an ensemble must agree in that"
                )
    dtypes = [spec.state_dtype for spec in specs] + [torch.int16]  # For the layout's number.
    features = EnsembleFeatures(
        tuple(spec.featurizer for spec in specs),
        tuple(spec.state_words for spec in specs),
        tuple(spec.state_dtype for spec in specs),
        # Words alone do not say which world they are from; proper features describe it.
        any(spec.features is None for spec in specs),
    )
    return WorldSpec(
        name=f"ensemble of {', '.join(spec.name for spec in specs)}",
        agents=first.agents,
        goals=tuple(
            replace(goal, name=f"{goal.name} in layout {layout}")
            for layout, spec in enumerate(specs)
            for goal in spec.goals
        ),
        state_words=1 + max(spec.state_words for spec in specs),
        state_dtype=reduce(torch.promote_types, dtypes),
        horizon=first.horizon,
        releases_gil=all(spec.releases_gil for spec in specs),
        features=features,
    )


def _to_agree(first: WorldSpec, spec: WorldSpec) -> Iterator[tuple[str, object, object]]:
    yield "horizon", first.horizon, spec.horizon
    yield "roles", [agent.role for agent in first.agents], [agent.role for agent in spec.agents]
    yield "actions", [a.actions for a in first.agents], [a.actions for a in spec.agents]
    yield "goals with these numbers of features", _goal_features(first), _goal_features(spec)


def _goal_features(spec: WorldSpec) -> list[int]:
    return sorted({len(goal.features) for goal in spec.goals})


def members_of(world: WorldModel) -> tuple[WorldModel, ...]:
    """The worlds of an ensemble, or the one world that it is."""
    return world.worlds if isinstance(world, EnsembleWorld) else (world,)


def layouts_of(world: WorldModel, states: Int[Tensor, "state word"]) -> Int[Tensor, " state"]:
    """Number of the world that each state belongs to; 0 where there is only one world."""
    if isinstance(world, EnsembleWorld):
        return world.layout_of(states)
    return torch.zeros(len(states), dtype=torch.int64)


def prior_of(reference: HumanPriorRef, world: WorldModel) -> HumanPrior:
    """The human prior of a world, or of each world of an ensemble."""
    if isinstance(world, EnsembleWorld):
        return EnsemblePrior(world, lambda member: build(reference, member))
    prior: HumanPrior = build(reference, world)
    return prior
