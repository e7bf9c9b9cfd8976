"""A human prior that plans nothing: walk along cheapest paths, use keys and doors on the way.

For a human with a goal, the first rule that applies decides:

0. In the goal: stay there.
1. A door is next to it that it can open (closed, or locked and it carries the key): turn to it
   and toggle; a door ahead that is open and on the way: walk through.
2. Its hands are empty and a key lies next to it that opens some locked door: turn to it, pick up.
3. It carries a key for which no locked door is left: put it down.
4. Softmax of ``beta`` times the advantage of standing still, turning and moving forward.

The potential of a cell is minus its path cost to the goal over the largest cost there can be.
The advantage of forward is the gain in potential, -1 if the way is blocked; of still 0; of a
turn half of what forward would then give. If the best direction promises a gain and is not
ahead, the turn towards it has 0.8 of the gain, or, if it lies behind, both turns have 0.6 of it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_multigrid import layout as codes
from empo_multigrid.law import kernel
from empo_multigrid.law.effects import NEIGHBOUR
from empo_multigrid.layout import Bools, Floats, Ints
from empo_multigrid.local_view import AHEAD, BEHIND, LEFTWARD, RIGHTWARD, Surroundings
from empo_multigrid.paths import IMPASSABLE, ROCK_COST, UNREACHABLE, Costs, cost_maps, path_costs
from empo_multigrid.plugin import PathHeuristicParams
from empo_multigrid.world import MultigridWorld

SINGLE_TURN: Final = 0.8
BOTH_TURNS: Final = 0.6
_MEMORY: Final = 2**24
"""Path costs that are kept from call to call, in numbers."""


class PathHeuristic:
    """The human prior ``path-heuristic``; satisfies ``empo_core.protocols.HumanPrior``.

    Attributes:
        is_stationary: It never depends on how many steps are left.
    """

    is_stationary = True

    def __init__(self, params: PathHeuristicParams, world: WorldModel) -> None:
        if not isinstance(world, MultigridWorld):
            raise ConfigError(
                f"path-heuristic finds its way on multigrid worlds only, and {world.spec.name!r} "
                f"is a {type(world).__name__}; take another human_prior"
            )
        self._params = params
        self._world = world
        self._layout = world.layout
        self._neighbours = kernel.pack(self._layout).cell[:, NEIGHBOUR:].astype(np.int64)
        self._max_cost = (self._layout.width + self._layout.height) * ROCK_COST
        self._costs_by_map: dict[tuple[int, bytes], Costs] = {}

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human; ``steps_left`` makes no difference."""
        spec = self._world.spec
        available = self._world.available(states).numpy()
        achieved = self._world.achieved(states).numpy()
        rows = np.ascontiguousarray(states.cpu().numpy().astype(np.int16, copy=False))
        policy = np.zeros((len(rows), len(spec.goals), len(self._layout.actions)))
        for human in spec.humans:
            goals = list(spec.goals_of(human))
            if goals and len(rows):
                has = available[:, human]
                policy[:, goals] = self._policy_of(rows, human, goals, has, achieved[:, goals])
        return torch.from_numpy(policy)

    def _policy_of(
        self, rows: Ints, human: int, goals: list[int], available: Bools, achieved: Bools
    ) -> Floats:
        """Action probabilities of one human [state goal action]."""
        view = Surroundings(self._layout, self._neighbours, rows, human)
        gain = self._gains(view, goals)
        policy = _softmax(self._params.beta * self._advantages(gain), self._walks(available))
        rules = [
            self._drops(view, gain),
            self._wants(view, view.useful_keys(), codes.PICKUP)[:, None],
            self._wants(view, view.closed_doors(), codes.TOGGLE)[:, None],
            self._walks_through(view, gain),
        ]
        for rule in rules:  # Later ones overrule earlier ones.
            _overrule(policy, rule, available)
        self._stay(policy, achieved, available)
        return policy

    def _gains(self, view: Surroundings, goals: list[int]) -> Floats:
        """Advantage of moving ahead, right, behind and left [state goal relative]."""
        maps = cost_maps(self._layout, view.rows, view.agent)
        distinct, which = np.unique(maps, axis=0, return_inverse=True)
        costs = self._path_costs(distinct, view.agent, goals)
        which = which.reshape(-1, 1)
        goal_index = np.arange(len(goals))
        here = costs[which, goal_index, view.cells[:, None]]
        around = view.around
        entered = np.take_along_axis(maps, np.maximum(around, 0), 1)
        there = costs[which[..., None], goal_index[:, None], np.maximum(around, 0)[:, None]]
        there[np.broadcast_to(((around < 0) | (entered == IMPASSABLE))[:, None], there.shape)] = (
            UNREACHABLE
        )
        gain = self._potential(there) - self._potential(here)[..., None]
        return np.where(view.free[:, None], gain, -1.0)

    def _path_costs(self, maps: Ints, human: int, goals: list[int]) -> Costs:
        """Path costs on each map; those of maps seen before are remembered."""
        keys = [(human, row.tobytes()) for row in maps]
        size = len(goals) * self._layout.num_cells
        if (len(self._costs_by_map) + len(keys)) * size > _MEMORY:
            self._costs_by_map.clear()
        new = [index for index, key in enumerate(keys) if key not in self._costs_by_map]
        new_costs = path_costs(self._layout, maps[new], self._layout.goal_cells[goals])
        self._costs_by_map.update(zip([keys[index] for index in new], new_costs, strict=True))
        return np.stack([self._costs_by_map[key] for key in keys])

    def _potential(self, costs: Costs) -> Floats:
        """Minus the path cost over the largest there can be; -1 where there is no path."""
        bounded: Floats = -np.minimum(costs, self._max_cost) / self._max_cost
        return bounded

    def _advantages(self, gain: Floats) -> Floats:
        """Estimated value of each action, `[state goal action]`."""
        best = gain.max(-1)
        turns = {codes.RIGHT: gain[..., RIGHTWARD] / 2, codes.LEFT: gain[..., LEFTWARD] / 2}
        elsewhere = (best > 0) & (gain[..., AHEAD] < best)
        behind = elsewhere & (gain[..., RIGHTWARD] < best) & (gain[..., LEFTWARD] < best)
        for turn, side in ((codes.RIGHT, RIGHTWARD), (codes.LEFT, LEFTWARD)):
            towards = elsewhere & (gain[..., side] == best)
            turns[turn] = np.where(towards, SINGLE_TURN * best, turns[turn])
            turns[turn] = np.where(behind, BOTH_TURNS * best, turns[turn])
        promised = {codes.STILL: np.zeros_like(best), codes.FORWARD: gain[..., AHEAD], **turns}
        nothing = np.zeros_like(best)
        actions = self._layout.actions.tolist()
        return np.stack([promised.get(action, nothing) for action in actions], -1)

    def _walks(self, available: Bools) -> Bools:
        """The available actions among those of rule 4, or all where none of them is."""
        walking = available & np.isin(
            self._layout.actions, (codes.STILL, codes.LEFT, codes.RIGHT, codes.FORWARD)
        )
        return np.where(walking.any(-1, keepdims=True), walking, available)[:, None]

    def _action(self, meaning: int) -> int | None:
        """The index of an action, None where the world lacks it."""
        positions = np.flatnonzero(self._layout.actions == meaning)
        return int(positions[0]) if len(positions) else None

    def _wants(self, view: Surroundings, target: Bools, meaning: int) -> Bools:
        """Turn to a target and use it [state action]; ``target`` is [state relative]."""
        chosen = np.zeros((len(target), len(self._layout.actions)), dtype=np.bool_)
        action = self._action(meaning)
        if action is None:
            return chosen
        is_ahead = target[:, AHEAD]
        chosen[:, action] = is_ahead
        only_behind = target[:, BEHIND] & ~target[:, RIGHTWARD] & ~target[:, LEFTWARD]
        left, right = self._action(codes.LEFT), self._action(codes.RIGHT)
        for turn, other, side in ((left, right, LEFTWARD), (right, left, RIGHTWARD)):
            # Where agents turn one way only, three turns make the other.
            way = other if turn is None else turn
            if way is not None:
                chosen[:, way] |= ~is_ahead & (target[:, side] | only_behind)
        return chosen

    def _walks_through(self, view: Surroundings, gain: Floats) -> Bools:
        """Forward, through an open door that is on the way [state goal action]."""
        chosen = np.zeros((*gain.shape[:2], len(self._layout.actions)), dtype=np.bool_)
        forward = self._action(codes.FORWARD)
        if forward is not None:
            chosen[..., forward] = view.open_door_ahead()[:, None] & (gain[..., AHEAD] > 0)
        return chosen

    def _drops(self, view: Surroundings, gain: Floats) -> Bools:
        """Put down a key that opens nothing any more [state goal action]."""
        chosen = np.zeros((*gain.shape[:2], len(self._layout.actions)), dtype=np.bool_)
        drop = self._action(codes.DROP)
        if drop is not None:
            useless = view.carries_useless_key() & view.has_room_ahead()
            aside = gain[..., AHEAD] <= 0
            chosen[..., drop] = useless[:, None] & (aside | (self._params.drop == "at-once"))
        return chosen

    def _stay(self, policy: Floats, achieved: Bools, available: Bools) -> None:
        """In the goal do what leaves the cell least: nothing, else turn."""
        undecided = np.ones(len(policy), dtype=np.bool_)
        for meaning in (codes.STILL, codes.DONE, codes.LEFT, codes.RIGHT):
            action = self._action(meaning)
            if action is not None:
                chosen = undecided & available[:, action]
                undecided &= ~chosen
                policy[chosen[:, None] & achieved] = np.eye(policy.shape[-1])[action]


def _softmax(logits: Floats, allowed: Bools) -> Floats:
    """Probabilities on the allowed actions."""
    logits = np.where(allowed, logits, -np.inf)
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Floats = weight / weight.sum(-1, keepdims=True)
    return shares


def _overrule(policy: Floats, chosen: Bools, available: Bools) -> None:
    """Spread all probability evenly on the wanted actions, where some are available."""
    chosen = np.broadcast_to(chosen & available[:, None], policy.shape)
    count = chosen.sum(-1)
    applies = count > 0
    policy[applies] = chosen[applies] / count[applies][:, None]
