"""A house with a lift: the robot moves it, the human gets in and out.

A state is a row of three words: the lift's floor, the human's floor, and whether the human
is inside (0 or 1); a human inside is on the lift's floor.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_example_world.plugin import LiftParams
from empo_worlds.queries import sample_successors

HUMAN, ROBOT = 0, 1


class Lift(WorldModel):
    """The lift moves first; then the human, if the door is here and works, goes through it."""

    def __init__(self, params: LiftParams) -> None:
        self._floors = params.floors
        self._door_works = params.door_works
        self.spec = WorldSpec(
            name="lift",
            agents=(
                AgentSpec(name="human", role="human", actions=("wait", "go through door")),
                AgentSpec(name="lift", role="robot", actions=("down", "stop", "up")),
            ),
            goals=tuple(
                Goal(human=HUMAN, name=f"floor {floor}", weight=1.0)
                for floor in range(params.floors)
            ),
            state_words=3,
            state_dtype=torch.int16,
            horizon=params.max_steps,
        )

    def initial_state(self) -> Int[Tensor, " word"]:
        """The human on the ground floor, the lift at the top."""
        return torch.tensor([self._floors - 1, 0, 0], dtype=self.spec.state_dtype)

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """What follows where the door works, and where it sticks."""
        self._check_states(states)
        if actions is None:
            every = self._joint_actions()
            actions = every.repeat(states.shape[0], 1)
            states = states.repeat_interleave(every.shape[0], 0)
        self._check_actions(actions, states.shape[0])
        lift, human, inside = states.long().unbind(1)
        lift = (lift + actions[:, ROBOT] - 1).clamp(0, self._floors - 1)
        human = torch.where(inside == 1, lift, human)  # Who is inside rides along.
        tries = (actions[:, HUMAN] == 1) & (human == lift)
        stays = torch.stack([lift, human, inside], 1)
        goes = torch.stack([lift, human, 1 - inside], 1)
        works = self._door_works * tries.double()
        rows, prob = torch.stack([goes, stays], 1), torch.stack([works, 1 - works], 1)
        happens = prob > 0  # A successor must be possible, so others are left out.
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), happens.sum(1).cumsum(0)])
        return Successors(offsets, rows[happens].to(self.spec.state_dtype), prob[happens])

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Everything, always; the human's third action is padding."""
        self._check_states(states)
        mask = torch.tensor([[True, True, False], [True, True, True]])
        return mask.repeat(states.shape[0], 1, 1)

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """A floor is reached by standing on it, outside the lift."""
        self._check_states(states)
        outside = states[:, 2:] == 0
        return outside & (states[:, 1:2] == torch.arange(self._floors))

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state."""
        return sample_successors(self.transitions(states, actions), states, generator)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """A line per floor, the top first: the lift as brackets, the human as ``H``."""
        lift, human, inside = (int(word) for word in state)
        lines = []
        for floor in reversed(range(self._floors)):
            here = "H" if floor == human else "."
            rider = here if inside else "."
            shaft = f"[{rider}]" if floor == lift else "   "
            lines.append(f"{floor:3} {shaft} {'.' if inside else here}")
        return "\n".join(lines)

    def _joint_actions(self) -> Int[Tensor, "joint agent"]:
        """Every joint action in the order of its index: agent 0 counts fastest."""
        joint = torch.arange(self.spec.num_joint_actions)
        return (
            joint[:, None] // torch.tensor(self.spec.strides) % torch.tensor(self.spec.num_actions)
        )

    def _check_actions(self, actions: Int[Tensor, "row agent"], number: int) -> None:
        limits = torch.tensor(self.spec.num_actions)
        if actions.shape != (number, 2) or bool(((actions < 0) | (actions >= limits)).any()):
            raise WorldError(
                f"actions must be one row (human below 2, lift below 3) per state; "
                f"got {actions[:3].tolist()}"
            )

    def _check_states(self, states: Int[Tensor, "state word"]) -> None:
        limits = torch.tensor([self._floors, self._floors, 2])
        if states.shape[1:] != (3,) or bool(((states < 0) | (states >= limits)).any()):
            raise WorldError(
                f"a state is a row (lift, human, inside) below {tuple(limits.tolist())}; "
                f"got {states[:3].tolist()}"
            )
        apart = (states[:, 2] == 1) & (states[:, 0] != states[:, 1])
        if bool(apart.any()):
            raise WorldError(f"a human inside is on the lift's floor; got {states[apart].tolist()}")
