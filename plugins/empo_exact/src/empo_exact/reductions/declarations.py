"""Declarations of a world about its structure, refused where states show them to be false."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.world_structure import Reads, RowMap, Symmetry
from empo_exact.assumptions import Assumptions, build_prior
from empo_exact.plugin import ExactParams
from empo_worlds.cone_checks import (
    MOST_ROWS,
    cone,
    difference_by_words,
    exchanged,
    prior_without_words,
    word_that_matters,
)
from empo_worlds.row_table import distinct
from empo_worlds.signatures import expansion
from empo_worlds.symmetry_checks import (
    false_symmetry,
    first_false,
    mixed_words,
    prior_without_symmetry,
    wrong_form,
)

States = Int[Tensor, "state word"]
Donors = Int[Tensor, "donor word"]
SHORT = 16
"""Horizons up to which priors are asked at every step."""
MOST_TIMES = 32
"""Steps at which they are asked in longer episodes."""

log = logging.getLogger("empo_exact")


class RefusedError(SolveError):
    """A declaration is refuted.

    Attributes:
        reason: Why, in one line and without the counterexample.
    """

    def __init__(self, name: str, reason: str, advice: str) -> None:
        """For a sentence that begins with ``reduce: NAME is refused, for``."""
        super().__init__(f"reduce: {name} is refused, for {reason}\n{advice}, or leave {name} out.")
        self.reason = reason.splitlines()[0].rstrip(":")


@dataclass(frozen=True, eq=False)
class Declarations:
    """Declarations of a world, and human priors that have to agree with them.

    Attributes:
        world: The world.
        declared: Its symmetries as it gives them.
        dropped: Words that nothing which matters reads [word]; None: there are none, or they are
            not asked for.
        priors: Priors that say how humans act, by the keys that name them.
    """

    world: WorldModel
    declared: tuple[Symmetry, ...]
    dropped: Bool[Tensor, " word"] | None
    priors: Mapping[str, HumanPrior]

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Symmetries of the states as they are without the words that are left out."""

        def of(rows: RowMap) -> RowMap:
            return lambda states: self.projected(rows(states))

        if self.dropped is None:
            return self.declared
        return tuple(replace(symmetry, rows=of(symmetry.rows)) for symmetry in self.declared)

    def distinct_projected(self, states: States) -> Int[Tensor, "_state word"]:
        """The states that stand for some, each once."""
        return torch.from_numpy(distinct(self.projected(states).numpy()))

    def projected(self, states: States) -> States:
        """The states that stand for some, whose words without influence are the initial ones."""
        if self.dropped is None:
            return states
        return torch.where(self.dropped, self.world.initial_state(), states)

    def refuse_words(self, states: States, donors: Donors | None = None) -> None:
        """Raise if words matter that are said not to.

        Args:
            states: Distinct states.
            donors: States whose words they get; None: the same.

        Raises:
            RefusedError: if a state shows that the words matter.
        """
        if self.dropped is not None and (
            reason := word_that_matters(self.world, self.dropped, states, donors)
        ):
            raise RefusedError(
                "cone",
                f"reads() of {self.world.spec.name!r} leaves something out: {reason}",
                "Correct the world",
            )

    def refuse_words_in_all(self, states: States, donors: Donors) -> None:
        """Raise if words matter that are said not to, in any of these states; see ``refuse_words``.

        Each state gets these words of two others, and all joint actions are tried.
        """
        if self.dropped is not None:
            source, changed = exchanged(self.dropped, states, donors, max_rows=2 * len(states))
            self.refuse_changes(states[source], changed)

    def refuse_changes(self, states: States, changed: States) -> None:
        """Raise if rows that differ in words without influence differ in anything else.

        Args:
            states: State rows.
            changed: Rows that differ from those in such words only.

        Raises:
            RefusedError: if the words make a difference.
        """
        if self.dropped is not None and (
            reason := difference_by_words(self.world, self.dropped, states, changed, all_pairs=True)
        ):
            raise RefusedError(
                "cone",
                f"reads() of {self.world.spec.name!r} leaves something out: {reason}",
                "Correct the world",
            )

    def refuse_combinations(self, combinations: Sequence[Symmetry], states: States) -> None:
        """Raise if a combination of symmetries is none in one of these states.

        Args:
            combinations: All symmetries by which states stand for others.
            states: Distinct states, all of whose joint actions are tried.

        Raises:
            RefusedError: if a combination is no symmetry.
        """
        expanded = expansion(self.world, states) if combinations else None
        for symmetry in combinations:
            if reason := false_symmetry(
                self.world, symmetry, states, self.projected, all_successors=expanded
            ):
                self._refuse_symmetry(symmetry, reason)

    def refuse_unsteady_priors(self, states: States, steps: Int[Tensor, " state"]) -> None:
        """Raise if a prior that says that it is the same at all times (is_stationary) is not.

        Args:
            states: Distinct states.
            steps: Steps after which each can be reached.

        Raises:
            SolveError: if a state shows that the prior changes with time.
        """
        world, horizon = self.world, self.world.spec.horizon
        alive = world.available(states).flatten(1).any(1)
        for key, prior in self.priors.items():
            if horizon is None or not getattr(prior, "is_stationary", False):
                continue
            for after in torch.unique(steps[alive & (steps < horizon - 1)]).tolist():
                sample = states[alive & (steps == after)]
                last = torch.ones(len(sample), dtype=torch.int64)
                before = last * (horizon - after)
                differs = prior.policy(sample, last) != prior.policy(sample, before)
                if differs.any():
                    row = sample[int(differs.flatten(1).any(1).int().argmax())]
                    raise SolveError(
                        f"the {key} says that it is the same at all times (is_stationary), but "
                        f"differs with 1 and with {horizon - after} steps left; correct it. The "
                        f"state is:\n{world.describe(row)}"
                    )

    def refuse_symmetries(self, states: States, donors: Donors | None = None) -> None:
        """Raise if a symmetry is none.

        Args:
            states: Distinct states.
            donors: States whose words they get where words are left out; None: the same.

        Raises:
            RefusedError: if the world has another form, or a state or one of its images shows it.
        """
        name, dropped = self.world.spec.name, self.dropped
        for symmetry in self.declared:
            reason = wrong_form(self.world.spec, symmetry, states)
            if reason is None and dropped is not None:
                reason = mixed_words(symmetry, dropped, states, donors)
                if reason is not None:
                    raise RefusedError(
                        "symmetry",
                        f"{symmetry.name!r} of {name!r} does not go with cone: {reason}",
                        "Leave cone out, correct reads() of the world",
                    )
            if reason is not None:
                self._refuse_symmetry(symmetry, reason)
        tried = self.distinct_projected(states)
        if violation := first_false(self.world, self.symmetries, tried, self.projected):
            self._refuse_symmetry(*violation)

    def _refuse_symmetry(self, symmetry: Symmetry, reason: str) -> None:
        raise RefusedError(
            "symmetry",
            f"{symmetry.name!r} is no symmetry of {self.world.spec.name!r}: {reason}",
            "Correct the world",
        )

    def refuse_priors_of_words(
        self, states: States, steps: Int[Tensor, " state"], donors: Donors | None = None
    ) -> None:
        """Raise if humans act by words that are left out.

        Args:
            states: Distinct states.
            steps: Steps after which each can be reached.
            donors: States whose words they get, of two of them each; None: the same states.

        Raises:
            RefusedError: if a state shows that the words matter to a prior.
        """
        dropped, world = self.dropped, self.world
        if dropped is None:
            return
        for key, prior in self.priors.items():
            batches = questions(world, prior, states, steps)
            for left, rows in batches:
                max_rows = MOST_ROWS // len(batches) if donors is None else 2 * len(rows)
                if reason := prior_without_words(
                    world, prior, dropped, rows, left, max_rows, donors
                ):
                    raise RefusedError(
                        "cone",
                        f"{key} depends on words that nothing else in {world.spec.name!r} does: "
                        f"{reason}",
                        f"Take another {key}",
                    )

    def refuse_priors_of_symmetries(
        self,
        states: States,
        steps: Int[Tensor, " state"],
        combinations: Sequence[Symmetry] | None = None,
    ) -> None:
        """Raise if humans act otherwise where everything is renamed.

        Args:
            states: Distinct states.
            steps: Steps after which each can be reached.
            combinations: Symmetries; None: the declared ones.

        Raises:
            RefusedError: if a state shows that a symmetry changes a prior.
        """
        world = self.world
        tried = self.symmetries if combinations is None else combinations
        for key, prior in self.priors.items():
            batches = questions(world, prior, states, steps)
            for (left, rows), symmetry in itertools.product(batches, tried):
                if reason := prior_without_symmetry(world, prior, symmetry, rows, left):
                    raise RefusedError(
                        "symmetry",
                        f"{key} does not have the symmetry {symmetry.name!r} of "
                        f"{world.spec.name!r}: {reason}",
                        f"Take another {key}",
                    )


def questions(
    world: WorldModel, prior: HumanPrior, states: States, steps: Int[Tensor, " state"]
) -> list[tuple[int, Int[Tensor, "_state word"]]]:
    """Questions to a prior: steps left, and states from which episodes go on by then.

    Up to ``SHORT`` steps each state comes with every number of steps left that it may have; in
    longer episodes with one of them, at random.
    """
    alive, horizon = world.available(states).flatten(1).any(1), world.spec.horizon
    if horizon is None or getattr(prior, "is_stationary", False):
        return [(1, states[alive])] if alive.any() else []
    generator = torch.Generator().manual_seed(0)
    times = torch.arange(1, horizon + 1)
    if horizon > SHORT:  # The last step is open to all states.
        drawn = 2 + torch.randperm(horizon - 1, generator=generator)[: MOST_TIMES - 1]
        times = torch.cat([times[:1], drawn])
    may = (times <= horizon - steps[:, None]) & alive[:, None]
    if horizon > SHORT:
        rank = torch.rand(may.shape, generator=generator)
        may &= torch.arange(len(times)) == rank.where(may, -1.0).argmax(1)[:, None]
    batches = [(int(left), states[mine]) for left, mine in zip(times, may.T, strict=True)]
    return [(left, rows) for left, rows in batches if len(rows)]


def declared(world: WorldModel, params: ExactParams, assumed: Assumptions) -> Declarations:
    """The declarations that are asked for.

    Raises:
        UnsuitableWorldError: if the world does not declare the reduction.
        SolveError: if the world's declaration has the wrong form, or a human prior does not go with
            it.
    """
    symmetries = _symmetries(world) if "symmetry" in params.reduce else ()
    dropped = _dropped(world) if "cone" in params.reduce else None
    return Declarations(world, symmetries, dropped, _priors(world, params, assumed))


def _symmetries(world: WorldModel) -> tuple[Symmetry, ...]:
    name = world.spec.name
    answer = world.symmetries()
    symmetries = tuple(answer) if isinstance(answer, Iterable) else (answer,)
    if wrong := [symmetry for symmetry in symmetries if not isinstance(symmetry, Symmetry)]:
        raise SolveError(
            f"symmetries() of {name!r} gives {type(wrong[0]).__name__}, where it has to give a "
            "list of empo_core.world_structure.Symmetry; correct the world, or leave symmetry out "
            "of reduce"
        )
    if not symmetries:
        raise UnsuitableWorldError(
            f"reduce: symmetry (algorithm.params.reduce) needs symmetries, and {name!r} declares "
            "none; leave symmetry out, or declare some: under the key symmetries of the file of a "
            "table, or by the method symmetries (empo_core.protocols.WorldModel)"
        )
    return symmetries


def _dropped(world: WorldModel) -> Bool[Tensor, " word"] | None:
    name = world.spec.name
    reads, words = world.reads(), world.spec.state_words
    if reads is None:
        raise UnsuitableWorldError(
            f"reduce: cone (algorithm.params.reduce) needs to know what depends on what, and "
            f"{name!r} does not say; leave cone out, or give the world a method reads "
            "(empo_core.protocols.WorldModel)"
        )
    if not isinstance(reads, Reads):
        raise SolveError(
            f"reads() of {name!r} gives {type(reads).__name__}, where it has to give "
            "empo_core.world_structure.Reads; correct the world, or leave cone out of reduce"
        )
    shapes = {
        "words": (reads.words, (words, words)),
        "available": (reads.available, (words,)),
        "achieved": (reads.achieved, (len(world.spec.goals), words)),
    }
    for key, (mask, shape) in shapes.items():
        if tuple(mask.shape) != shape:
            raise SolveError(
                f"reads() of {name!r} gives {key} of shape {list(mask.shape)}, not "
                f"{list(shape)}; correct the world, or leave cone out of reduce"
            )
    dropped = ~cone(reads)
    if dropped.any():
        return dropped
    log.info("all words of %r matter, so that reduce: cone leaves none out", name)
    return None


def _priors(world: WorldModel, params: ExactParams, assumed: Assumptions) -> dict[str, HumanPrior]:
    """The priors that say how humans act, by the keys that name them."""
    candidates = {
        "human_prior": assumed.human_prior or build_prior(params.human_prior, world),
        "habit": assumed.habit_prior or build_prior(params.habit, world),
    }
    priors = {key: prior for key, prior in candidates.items() if prior is not None}
    if priors and "lump" in params.reduce:
        raise SolveError(
            f"reduce: lump does not go with a {next(iter(priors))}, which may tell apart states "
            "that are alike otherwise: leave one of them out"
        )
    return priors
