"""Following a sequence of movements for several steps, as a random walk hardly ever would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import Explorer
from empo_core.trees import StateDict
from empo_core.types import Scene, Successors, WorldSpec
from empo_explorers.params import ActionSequencesParams, SequenceType
from empo_worlds.queries import sample_actions
from empo_worlds.row_table import RowTable

ACTIONS = ("still", "left", "right", "forward")
TYPES: tuple[SequenceType, ...] = get_args(SequenceType)
TURNS: dict[SequenceType, tuple[str, ...]] = {
    "still": (),
    "forward": (),
    "left_forward": ("left",),
    "right_forward": ("right",),
    "back_forward": ("left", "left"),
}
"""First action of a sequence; then it goes forward, or stays, until its end."""


class ActionSequences(Explorer):
    """Each agent now and then begins a sequence, and follows it to its end.

    A sequence is cancelled where its next action is not available, or is blocked: it does
    nothing that ``still`` would not do. The agent then stays still for a step.
    """

    def __init__(
        self, params: ActionSequencesParams, spec: WorldSpec, agents: Sequence[int]
    ) -> None:
        """Look up the movements among the agents' actions.

        Raises:
            ConfigError: if an agent does not have them all.
        """
        self._counts = tuple(spec.num_actions[agent] for agent in agents)
        # [agent movement]: which action it is.
        self._action = torch.tensor([_movements(spec, agent) for agent in agents])
        self._dtype = torch.empty(0, dtype=spec.state_dtype).numpy().dtype
        self._prob = params.prob
        self._weight = torch.tensor([params.weights.get(name, 0.0) for name in TYPES]).double()
        lengths = params.expected_length
        mean = [lengths.get(t, 2.0) if isinstance(lengths, dict) else lengths for t in TYPES]
        self._stop = 1 / torch.tensor(mean, dtype=torch.float64)
        # [type step]: the movement of each step, the last one repeating.
        self._steps = torch.tensor(
            [
                [ACTIONS.index(m) for m in (*TURNS[t], *[_last_movement(t)] * (3 - len(TURNS[t])))]
                for t in TYPES
            ]
        )
        self._turns = torch.tensor([len(TURNS[name]) for name in TYPES])
        self._stride = torch.tensor([int(np.prod(self._counts[:k])) for k in range(len(agents))])
        self._kind = self._step = self._length = self._action_now = torch.zeros(0, len(agents))
        self._reset(0)

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """The policy, but certainty of the next action where a sequence is under way."""
        if len(self._kind) != len(policy):
            self._reset(len(policy))
        self._kind = self._kind.masked_fill(scene.started[:, None], -1)
        can = self._feasible(scene)
        uniform = torch.rand((3, *self._kind.shape), generator=generator, dtype=torch.float64)
        self._begin(can, uniform)
        movement = self._steps[self._kind.clamp(min=0), self._step.clamp(max=2)]
        under_way = self._kind >= 0
        allowed = can.gather(2, movement[..., None])[..., 0]
        cancelled = under_way & ~allowed
        self._kind = self._kind.masked_fill(cancelled, -1)
        movement = movement.masked_fill(cancelled, ACTIONS.index("still"))
        available = self._agent_actions(scene.available)
        action = self._action[torch.arange(len(self._counts)), movement]
        possible = available.gather(2, action[..., None])[..., 0]
        # Where not even staying is possible, the policy decides.
        self._action_now = torch.where(under_way & possible, action, -1)
        return self._certain(policy, self._action_now)

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Go on to the next step of each sequence; leave those that were not followed."""
        actions = choice[:, None] // self._stride % torch.tensor(self._counts)
        kind, step = self._kind, self._step + 1
        ended = (actions != self._action_now) | (step >= self._length)
        self._kind = torch.where(ended, -1, kind)
        self._step = step

    def state_dict(self) -> StateDict:
        """The sequences that are under way."""
        return {name: getattr(self, f"_{name}").clone() for name in ("kind", "step", "length")}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._reset(len(state_dict["kind"]))
        for name in ("kind", "step", "length"):
            setattr(self, f"_{name}", state_dict[name].clone())

    def _reset(self, environments: int) -> None:
        shape = environments, len(self._counts)
        self._kind = torch.full(shape, -1, dtype=torch.int64)
        self._step = torch.zeros(shape, dtype=torch.int64)
        self._length = torch.zeros(shape, dtype=torch.int64)
        self._action_now = torch.full(shape, -1, dtype=torch.int64)

    def _begin(self, can: Bool[Tensor, "env agent movement"], uniform: Tensor) -> None:
        """Begin sequences whose first step is possible, where none is under way."""
        weight = self._weight * can[..., self._steps[:, 0]]
        begins = (self._kind < 0) & (uniform[0] < self._prob) & (weight.sum(-1) > 0)
        # Some type must be drawn everywhere, also where it is not begun.
        safe = torch.where(begins[..., None], weight, torch.ones_like(weight))
        kind = sample_actions(safe, uniform[1])
        stop = self._stop[kind]
        # Geometric, at least 1: the number of trials until the first success.
        last = torch.floor(torch.log1p(-uniform[2]) / torch.log1p(-stop).clamp(max=-1e-300)) + 1
        self._kind = torch.where(begins, kind, self._kind)
        self._step = torch.where(begins, 0, self._step)
        self._length = torch.where(begins, self._turns[kind] + last.long(), self._length)

    def _feasible(self, scene: Scene) -> Bool[Tensor, "env agent movement"]:
        """Which movements are available, and do something as far as is known."""
        available = self._agent_actions(scene.available)
        is_feasible = available[:, torch.arange(len(self._counts))[:, None], self._action]
        if scene.successors is not None:
            is_feasible = is_feasible & ~self._blocked(scene, scene.successors)
        return is_feasible

    def _blocked(self, scene: Scene, successors: Successors) -> Bool[Tensor, "env agent movement"]:
        """Which movements lead nowhere that staying does not lead to, while other robots stay."""
        still = ACTIONS.index("still")
        stay = (self._action[:, still] * self._stride).sum()
        # [agent movement]: the joint action in which only one robot moves.
        joint = stay + (self._action - self._action[:, still, None]) * self._stride[:, None]
        table = RowTable(successors.states.shape[1], self._dtype)
        number = torch.from_numpy(table.number(successors.states.numpy())).long()
        state_number = torch.from_numpy(table.number(scene.states.numpy())).long()
        choices = scene.available.shape[1]
        environment = successors.segments.index // choices
        key = environment * table.count + number
        count = len(state_number)
        stays = successors.segments.index % choices == stay
        nothing_new = torch.cat([key[stays], torch.arange(count) * table.count + state_number])
        new = torch.zeros(successors.num_pairs, dtype=torch.bool)
        new[successors.segments.index[~torch.isin(key, nothing_new)]] = True
        blocked = ~new.view(count, choices)[:, joint]
        blocked[..., still] = False
        return blocked

    def _agent_actions(
        self, available: Bool[Tensor, "env choice"]
    ) -> Bool[Tensor, "env agent action"]:
        """Which actions each agent has, whatever the others do."""
        can_act = available.new_zeros(len(available), len(self._counts), max(self._counts))
        choice = torch.arange(available.shape[1])
        for agent, count in enumerate(self._counts):
            agent_action = choice // self._stride[agent] % count
            ways = torch.zeros(len(available), count).index_add_(1, agent_action, available.float())
            can_act[:, agent, :count] = ways > 0
        return can_act

    def _certain(
        self, policy: Float[Tensor, "env choice"], action: Int[Tensor, "env agent"]
    ) -> Float[Tensor, "env choice"]:
        """The policy, given that some agents surely do some action; -1 leaves them free."""
        # The first agent counts fastest, so its axis is the last.
        joint = policy.view(len(policy), *reversed(self._counts))
        for agent, count in enumerate(self._counts):
            axis = joint.ndim - 1 - agent
            fixed = action[:, agent] >= 0
            one_hot = torch.nn.functional.one_hot(action[:, agent].clamp(min=0), count).to(
                policy.dtype
            )
            shape = [len(policy)] + [1] * len(self._counts)
            whole = list(shape)
            whole[axis] = count
            certain = joint.sum(axis, keepdim=True) * one_hot.view(whole)
            joint = torch.where(fixed.view(shape), certain, joint)
        return joint.reshape(policy.shape)


def _last_movement(kind: SequenceType) -> str:
    return "still" if kind == "still" else "forward"


def _movements(spec: WorldSpec, agent: int) -> list[int]:
    agent_spec = spec.agents[agent]
    missing = [name for name in ACTIONS if name not in agent_spec.actions]
    if missing:
        raise ConfigError(
            f"action-sequences: {agent_spec.name} of {spec.name!r} has no action "
            f"{' or '.join(map(repr, missing))}, only {', '.join(agent_spec.actions)}; choose "
            "another explorer, e.g. epsilon-greedy"
        )
    return [agent_spec.actions.index(name) for name in ACTIONS]
