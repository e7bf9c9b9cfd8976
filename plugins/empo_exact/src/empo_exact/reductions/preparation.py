"""Checks of the structure that a world declares, before states are left out because of it."""

from __future__ import annotations

import logging

from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import Factored, HumanPrior, Symmetric, WorldModel
from empo_core.world_structure import Symmetry
from empo_core.worlds.samples import walked_states
from empo_core.worlds.structure_checks import (
    cone,
    false_symmetry,
    prior_without_symmetry,
    prior_without_words,
    word_that_matters,
)
from empo_core.worlds.symmetry_group import SymmetryGroup
from empo_exact.plugin import ExactParams
from empo_exact.reductions.canonical import Canonical
from empo_exact.setup import Assumptions, build_prior

MOST_STATES = 1000
"""States on which declarations are checked, and some ten thousand of their transitions."""

log = logging.getLogger("empo_exact")


def refuse_assumptions(assumed: Assumptions) -> None:
    """Refuse assumptions of a Python caller that nothing says how to compare.

    Raises:
        SolveError: There is one.
    """
    for key in ("beta_h", "nu", "habit", "believed_others"):
        if getattr(assumed, key) is not None:
            raise SolveError(
                f"reduce does not go with a {key} that is a function or table of the caller's, "
                f"which may tell states apart that are alike: leave reduce or {key} out"
            )


def canonical_of(world: WorldModel, params: ExactParams, assumed: Assumptions) -> Canonical:
    """Symmetries and the cone of influence, as far as they are asked for, checked on samples.

    Raises:
        UnsuitableWorldError: The world does not declare what is asked for.
        SolveError: A declaration is refuted; the message shows the state.
    """
    spec = world.spec
    states, steps = walked_states(world, MOST_STATES)
    priors = _priors(world, params, assumed)
    group = dropped = None
    if "symmetry" in params.reduce:
        symmetries = _symmetries(world)
        for symmetry in symmetries:
            _check_symmetry(world, symmetry, states, steps, priors)
        group = SymmetryGroup(symmetries, states, len(spec.goals))
    if "cone" in params.reduce:
        dropped = _dropped(world)
        _check_dropped(world, dropped, states, steps, priors)
    return Canonical(
        spec, group, None if dropped is None else dropped.numpy(), world.initial_state().numpy()
    )


def _symmetries(world: WorldModel) -> list[Symmetry]:
    found = list(world.symmetries()) if isinstance(world, Symmetric) else []
    if not found:
        raise UnsuitableWorldError(
            f"reduce: symmetry (algorithm.params.reduce) needs symmetries, and "
            f"{world.spec.name!r} declares none; leave symmetry out, or declare some by the "
            "method symmetries (empo_core.protocols.Symmetric)"
        )
    return found


def _dropped(world: WorldModel) -> Bool[Tensor, " word"]:
    if not isinstance(world, Factored):
        raise UnsuitableWorldError(
            f"reduce: cone (algorithm.params.reduce) needs to know what depends on what, and "
            f"{world.spec.name!r} does not say; leave cone out, or give the world a method reads "
            "(empo_core.protocols.Factored)"
        )
    reads, words = world.reads(), world.spec.state_words
    shapes = {
        "words": (reads.words, (words, words)),
        "available": (reads.available, (words,)),
        "achieved": (reads.achieved, (len(world.spec.goals), words)),
    }
    for name, (given, shape) in shapes.items():
        if tuple(given.shape) != shape:
            raise SolveError(
                f"reads() of {world.spec.name!r} gives {name} of shape {list(given.shape)}, "
                f"not {list(shape)}; correct the world, or leave cone out of reduce"
            )
    return ~cone(reads)


def _priors(world: WorldModel, params: ExactParams, assumed: Assumptions) -> dict[str, HumanPrior]:
    """The priors that say how humans act, by the keys that name them."""
    found = {
        "human_prior": assumed.human_prior or build_prior(params.human_prior, world),
        "habit": assumed.habit_prior or build_prior(params.habit, world),
    }
    priors = {key: prior for key, prior in found.items() if prior is not None}
    if priors and "lump" in params.reduce:
        raise SolveError(
            f"reduce: lump does not go with a {next(iter(priors))}, which may tell apart states "
            "that are alike otherwise: leave one of them out"
        )
    return priors


def _check_symmetry(
    world: WorldModel,
    symmetry: Symmetry,
    states: Int[Tensor, "state word"],
    steps: Int[Tensor, " state"],
    priors: dict[str, HumanPrior],
) -> None:
    reason = false_symmetry(world, symmetry, states)
    if reason is not None:
        raise SolveError(
            f"reduce: symmetry is refused, for {symmetry.name!r} is no symmetry of "
            f"{world.spec.name!r}: {reason}\nCorrect the world, or leave symmetry out."
        )
    for key, prior in priors.items():
        for left, asked in _asked(world, states, steps):
            if reason := prior_without_symmetry(world, prior, symmetry, asked, left):
                raise SolveError(
                    f"reduce: symmetry is refused, for {key} does not have the symmetry "
                    f"{symmetry.name!r} of {world.spec.name!r}: {reason}\nTake another {key}, or "
                    "leave symmetry out."
                )


def _check_dropped(
    world: WorldModel,
    dropped: Bool[Tensor, " word"],
    states: Int[Tensor, "state word"],
    steps: Int[Tensor, " state"],
    priors: dict[str, HumanPrior],
) -> None:
    if not dropped.any():
        log.info("all words of %r matter, so that reduce: cone leaves none out", world.spec.name)
        return
    reason = word_that_matters(world, dropped, states)
    if reason is not None:
        raise SolveError(
            f"reduce: cone is refused, for reads() of {world.spec.name!r} leaves something out: "
            f"{reason}\nCorrect the world, or leave cone out."
        )
    for key, prior in priors.items():
        for left, asked in _asked(world, states, steps):
            if reason := prior_without_words(world, prior, dropped, asked, left):
                raise SolveError(
                    f"reduce: cone is refused, for {key} depends on words that nothing else in "
                    f"{world.spec.name!r} does: {reason}\nTake another {key}, or leave cone out."
                )


def _asked(
    world: WorldModel, states: Int[Tensor, "state word"], steps: Int[Tensor, " state"]
) -> list[tuple[int, Int[Tensor, "_state word"]]]:
    """Questions to a prior: steps left, and states from which episodes go on by then."""
    alive = world.available(states).flatten(1).any(1)
    horizon = world.spec.horizon
    if horizon is None:
        return [(1, states[alive])]
    chosen = sorted({horizon, (horizon + 1) // 2, 1})
    asked = [(left, states[alive & (steps <= horizon - left)]) for left in chosen]
    return [(left, rows) for left, rows in asked if len(rows)]
