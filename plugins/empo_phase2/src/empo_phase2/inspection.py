"""The learned values of a run, for explanations and pages of its decisions."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from empo_core.protocols import HumanPrior
from empo_phase2.compare import SolvedStates
from empo_phase2.learned_run import Estimates, LearnedRun
from empo_phase2.params import Phase2Theory
from empo_phase2.quantities import LEAST_Q
from empo_phase2.state_queries import StateEncoder
from empo_phase2.values import ValueEstimator
from empo_theory.inspection import Inspection, InspectionScope
from empo_theory.parameters import CompleteTheory, TheoryParams
from empo_worlds.policy_checks import checked_human_policy
from empo_worlds.row_table import RowTable


def inspect(
    learned: ValueEstimator,
    encoder: StateEncoder,
    prior: HumanPrior,
    theory: Phase2Theory,
    scope: InspectionScope,
    right: SolvedStates | None = None,
) -> Inspection:
    """What a learner thinks of the first world's states; see ``empo_theory.inspection``.

    Args:
        learned: Its values.
        encoder: Sees the world's states as the learner does.
        prior: How humans act in that world.
        theory: The parameters that were learned.
        scope: Where to begin, and how much to keep.
        right: Exact values, if they are known.
    """

    def estimate(rows: Int[Tensor, "state word"], left: Int[Tensor, " state"]) -> Estimates:
        estimates = learned(rows, left)
        q_r = estimates.q_r.double().clamp(max=LEAST_Q)
        humans = checked_human_policy(encoder.world, rows, prior.policy(rows, left))
        return Estimates(estimates.v_r, estimates.v_h_e, q_r, humans)

    shared = theory.model_dump(include=set(TheoryParams.model_fields))
    complete = CompleteTheory(**shared)
    run = LearnedRun(encoder.world, complete, theory.x_h_floor, estimate)
    result = run.inspection(scope)
    if right is None:
        return result
    place = RowTable.of(result.rows).find(right.rows.numpy())
    return result.with_right_values(
        place, right.steps_left.numpy(), right.v_r.numpy(), right.v_h_e.numpy()
    )
