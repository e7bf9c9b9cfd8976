"""The same as ``targets`` on a CPU: a few compiled loops instead of many tensor operations."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from empo_core.types import WorldSpec
from empo_phase2.experience import TimedStates, Transitions
from empo_phase2.forward import lasting_values
from empo_phase2.quantities import Quantities, mean_value
from empo_phase2.target_cache import TargetCache, Values
from empo_phase2.target_kernels import (
    Batch,
    Found,
    Known,
    People,
    Setting,
    put_targets,
    timed_keys,
)
from empo_phase2.targets import (
    BatchTargets,
    LookUp,
    ScheduledTheory,
    TargetComputer,
    encode,
    span_of,
)
from empo_phase2.trajectories import Trajectories

NEVER = -1.0
"""No exponent of the robot's policy."""


class CompiledTargets:
    """Computes the targets of batches as ``plain`` does, which computes those along paths.

    Args:
        plain: The same in tensor operations.
        dtype: That of targets.
    """

    def __init__(self, plain: TargetComputer, dtype: torch.dtype) -> None:
        self._plain, self._dtype = plain, dtype
        self._values: Values | None = None
        self._knows_profiles = False
        spec, profiles = plain.spec, plain.profiles
        self._people = People(
            np.zeros((1, len(spec.humans)), np.int64),
            profiles.human.numpy(),
            profiles.share.numpy(),
            plain.goals.weight.numpy(),
            (plain.goals.goal >= 0).numpy(),
        )

    @torch.no_grad()
    def __call__(
        self,
        batch: Transitions,
        look_up: LookUp,
        values: Quantities,
        theory: ScheduledTheory,
        paths: Trajectories | None,
        cache: TargetCache,
    ) -> BatchTargets:
        """The targets of a batch; see ``TargetComputer``."""
        if paths is not None:
            return self._plain(batch, look_up, values, theory, paths)
        stage = self._plain.timing.stage
        with stage("stage1_collect"):
            keys = keys_of(batch, self._plain.spec)
        with stage("stage2_encode"):
            sources = TimedStates.of(look_up(batch.state), batch.steps_left)
        with stage("stage3_forward"):
            states = partial(encode, spec=self._plain.spec, look_up=look_up)
            place, distinct = cache.ask(keys, states, partial(situations, values=values))
        with stage("stage4_aggregate"):
            found = self._aggregated(batch, place, distinct, values, theory, cache.values)
        if found is None:
            return self._plain(batch, look_up, values, theory)  # It finds out what is wrong.
        q_r, q_r_weight, pi_r, v_h_e, v_h_e_weight = found
        learned, x_h, u_r, v_r = values.networks, None, None, None
        if {"x_h", "u_r", "v_r"} & learned.keys():
            start = torch.from_numpy(place[: len(batch)]).long()
            at = {name: known[start].to(self._dtype) for name, known in cache.values.items()}
            own = q_r if self._plain.looks_ahead(batch, values) else at["q_r"]
            x_h = values.power(sources, at["v_h_e"]) if "x_h" in learned else None
            u_r = values.reward(at["x_h"]) if "u_r" in learned else None
            v_r = mean_value(at["u_r"], own, pi_r) if "v_r" in learned else None
        return BatchTargets(
            sources=sources,
            q_r=q_r,
            q_r_weight=q_r_weight,
            pi_r=pi_r,
            v_h_e=v_h_e,
            v_h_e_weight=v_h_e_weight,
            x_h=x_h,
            u_r=u_r,
            v_r=v_r,
            distinct=len(distinct),
            items=len(batch.prob),
            must_be_finite={},
        )

    def _aggregated(
        self,
        batch: Transitions,
        place: Int32[np.ndarray, " occurrence"],
        distinct: Int32[np.ndarray, " distinct"],
        values: Quantities,
        theory: ScheduledTheory,
        known: Values,
    ) -> tuple[Tensor, ...] | None:
        """Targets of Q_r with weights and policy, and of V_h^e with weights, if all are finite."""
        plain, count = self._plain, len(batch)
        slots, most = batch.human_policy.shape[1:]
        if slots and not self._knows_profiles:
            self._people = self._people._replace(action=plain.profiles.action.numpy())
        self._knows_profiles |= slots > 0
        if self._values is not known:
            self._values = known
            self._known = Known(*(known[name].numpy() for name in Known._fields))
        robot = np.empty((3, count, plain.spec.num_robot_actions))
        human = np.empty((2, count, len(plain.goals)))
        is_finite = put_targets(
            Batch(
                place, distinct, batch.human_policy.numpy(),
                np.ascontiguousarray(batch.goal.numpy()), batch.action.numpy(),
                batch.offsets.numpy(), batch.prob.numpy(),
            ),
            self._people,
            self._known,
            Setting(
                theory.gamma_h, theory.gamma_r, theory.beta_r, values.theory.terminal_value,
                NEVER if plain.advantage_floor is None else plain.advantage_floor,
                plain.model_based, "v_r" in values.networks, plain.looks_ahead(batch, values),
            ),
            Found(
                robot, human, np.empty((len(plain.spec.humans), most)), np.empty(len(plain.goals))
            ),
        )  # fmt: skip
        if not is_finite:
            return None
        found = (torch.from_numpy(part).to(self._dtype).unbind() for part in (robot, human))
        return sum(found, ())


def keys_of(batch: Transitions, spec: WorldSpec) -> Int64[np.ndarray, "occurrence 1"]:
    """Numbers of the timed states of sources and successors, as in ``encode``."""
    keys = np.empty((len(batch) + len(batch.prob), 1), np.int64)
    timed_keys(
        batch.state.numpy(), batch.steps_left.numpy(), batch.successor.numpy(),
        batch.offsets.numpy(), 0 if spec.horizon is None else 1, span_of(spec), keys,
    )  # fmt: skip
    return keys


def situations(states: TimedStates, values: Quantities) -> Values:
    """The columns of ``target_kernels.Known``."""
    found = lasting_values(states, values)
    nothing = torch.zeros(len(states), dtype=torch.float64)
    found = {"q_r": nothing[:, None][:, :0], "v_r": nothing} | found
    known = {name: value.double() for name, value in found.items()}
    return known | {
        "layout": states.states.layout,
        "alive": states.alive,
        # In one piece, as later ones are: kernels are compiled for each layout in memory.
        "achieved": states.states.achieved.contiguous(),
        "available": states.states.available.contiguous(),
        "beta_r": torch.full_like(nothing, NEVER),
    }
