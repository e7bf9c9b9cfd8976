"""The same as ``targets`` on a CPU: a few compiled loops instead of many tensor operations."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from empo_phase2.experience import TimedStates, Transitions
from empo_phase2.forward import lasting_values
from empo_phase2.quantities import Quantities, mean_value
from empo_phase2.target_cache import TargetCache, Values
from empo_phase2.target_kernels import (
    Batch,
    People,
    Scratch,
    Setting,
    TargetArrays,
    ValueTable,
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

NEVER = -1.0
"""No exponent of the robot's policy."""


class Targets(NamedTuple):
    """Those of Q_r with weights and policy, and of V_h^e with weights."""

    q_r: Tensor
    q_r_weight: Tensor
    pi_r: Tensor
    v_h_e: Tensor
    v_h_e_weight: Tensor


class CompiledTargets:
    """Computes the targets of batches as ``plain`` does.

    Args:
        plain: The same in tensor operations.
        dtype: That of targets.
    """

    def __init__(self, plain: TargetComputer, dtype: torch.dtype) -> None:
        self._plain, self._dtype = plain, torch.empty(0, dtype=dtype).numpy().dtype
        self._values: Values | None = None
        self._knows_profiles = False
        spec, profiles = plain.spec, plain.profiles
        humans, slots = len(spec.humans), len(plain.goals)
        self._elapsed, self._span = 0 if spec.horizon is None else 1, span_of(spec)
        self._people = People(
            np.zeros((1, humans), np.int64),
            profiles.human.numpy(),
            profiles.share.numpy(),
            plain.goals.weight.numpy(),
            (plain.goals.goal >= 0).numpy(),
        )
        self._scratch = Scratch(
            np.empty((3, spec.num_robot_actions)), np.empty((2, slots)), np.empty((humans, 0)),
            np.empty(slots),
        )  # fmt: skip

    def __call__(
        self,
        batch: Transitions,
        look_up: LookUp,
        values: Quantities,
        theory: ScheduledTheory,
        uniform: Float[Tensor, " transition"] | None,
        cache: TargetCache,
    ) -> BatchTargets:
        """The targets of a batch; see ``TargetComputer``."""
        stage = self._plain.timers
        with stage("stage1_collect"):
            keys = self._keys(batch)
        with stage("stage2_encode"):
            sources = TimedStates.of(look_up(batch.state), batch.steps_left)
        with stage("stage3_forward"):
            states = partial(encode, spec=self._plain.spec, look_up=look_up)
            place, distinct = cache.ask(keys, states, partial(situations, values=values))
        with stage("stage4_aggregate"):
            questions = asked_of(batch, place, distinct, uniform)
            setting = self._setting(batch, values, theory)
            targets = self._aggregated(questions, setting, cache.values)
        if targets is None:
            # It finds out what is wrong.
            return self._plain(batch, look_up, values, theory, uniform)
        learned, x_h, u_r, v_r = values.networks, None, None, None
        if {"x_h", "u_r", "v_r"} & learned.keys():
            start = torch.from_numpy(place[: len(batch)]).long()
            at = {name: column[start].to(targets.q_r) for name, column in cache.values.items()}
            q_values = targets.q_r if setting.looks_ahead else at["q_r"]
            x_h = values.power(sources, at["v_h_e"]) if "x_h" in learned else None
            u_r = values.reward(at["x_h"]) if "u_r" in learned else None
            v_r = mean_value(at["u_r"], q_values, targets.pi_r) if "v_r" in learned else None
        return BatchTargets(
            sources=sources,
            q_r=targets.q_r,
            q_r_weight=targets.q_r_weight,
            pi_r=targets.pi_r,
            v_h_e=targets.v_h_e,
            v_h_e_weight=targets.v_h_e_weight,
            x_h=x_h,
            u_r=u_r,
            v_r=v_r,
            distinct=len(distinct),
            items=len(questions.prob),
            must_be_finite={},
        )

    def _keys(self, batch: Transitions) -> Int64[np.ndarray, "occurrence 1"]:
        """Numbers of the timed states of sources and successors, as in ``encode``."""
        state, successor = batch.state.numpy(), batch.successor.numpy()
        keys = np.empty((len(state) + len(successor), 1), np.int64)
        steps_left, offsets = batch.steps_left.numpy(), batch.offsets.numpy()
        timed_keys(state, steps_left, successor, offsets, self._elapsed, self._span, keys)
        return keys

    def _setting(self, batch: Transitions, values: Quantities, theory: ScheduledTheory) -> Setting:
        plain = self._plain
        return Setting(
            theory.gamma_h, theory.gamma_r, theory.beta_r, values.theory.terminal_value,
            NEVER if plain.advantage_floor is None else plain.advantage_floor,
            plain.model_based, "v_r" in values.networks, plain.looks_ahead(batch, values),
        )  # fmt: skip

    def _aggregated(self, batch: Batch, setting: Setting, values: Values) -> Targets | None:
        """The targets, if all are finite."""
        count, slots, num_actions = batch.human_policy.shape
        if slots and not self._knows_profiles:
            self._people = self._people._replace(action=self._plain.profiles.action.numpy())
        self._knows_profiles |= slots > 0
        if self._values is not values:
            self._values = values
            self._table = ValueTable(*(values[name].numpy() for name in ValueTable._fields))
        robot, _, mean, chance = self._scratch
        if mean.shape[1] != num_actions:
            self._scratch = self._scratch._replace(mean=np.empty((len(mean), num_actions)))
        columns = (robot.shape[1],) * 3 + (len(chance),) * 2
        targets = TargetArrays(*(np.empty((count, width), self._dtype) for width in columns))
        if not put_targets(batch, self._people, self._table, setting, self._scratch, targets):
            return None
        return Targets(*map(torch.from_numpy, targets))


def asked_of(
    batch: Transitions,
    place: Int32[np.ndarray, " occurrence"],
    distinct: Int32[np.ndarray, " distinct"],
    uniform: Float[Tensor, " transition"] | None = None,
) -> Batch:
    """What kernels read of a batch, in the same memory."""
    if uniform is None:
        uniform = torch.zeros(0, dtype=torch.float64)
    return Batch(
        place, distinct, batch.human_policy.numpy(), batch.acts_for.numpy(),
        batch.behaviour.numpy(), batch.action.numpy(), batch.offsets.numpy(), batch.prob.numpy(),
        uniform.numpy(),
    )  # fmt: skip


@torch.no_grad()
def situations(states: TimedStates, values: Quantities) -> Values:
    """The columns of ``target_kernels.ValueTable``."""
    lasting = lasting_values(states, values)
    nothing = torch.zeros(len(states), dtype=torch.float64)
    lasting = {"q_r": nothing[:, None][:, :0], "v_r": nothing} | lasting
    columns = {name: value.double() for name, value in lasting.items()}
    return columns | {
        "layout": states.states.layout,
        "alive": states.alive,
        # In one piece, as later ones are: kernels are compiled for each layout in memory.
        "achieved": states.states.achieved.contiguous(),
        "available": states.states.available.contiguous(),
        "beta_r": torch.full_like(nothing, NEVER),
    }
