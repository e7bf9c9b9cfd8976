"""A tiny world that has everything a conformance kit needs to see."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_worlds.queries import sample_successors

CLOSED, OPEN, INSIDE = range(3)


class TinyWorld(WorldModel):
    """Two humans and a robot at a door: three states, chance, a terminal state.

    A row is ``(open, inside)``. While the door is closed the robot may ``open`` it, which
    works three times in four, always if the second human also shouts. Once it is open neither
    opening nor shouting is available; the first human may ``go`` in, which ends the episode
    and works every other time, unless the second human's own ``go`` shuts the door first,
    which it does one time in three.
    """

    def __init__(self, horizon: int | None = 3) -> None:
        self.spec = WorldSpec(
            name="door",
            agents=(
                AgentSpec(name="walker", role="human", actions=("wait", "go")),
                AgentSpec(name="robot", role="robot", actions=("wait", "open")),
                AgentSpec(name="shouter", role="human", actions=("wait", "go", "shout")),
            ),
            goals=(
                Goal(human=0, name="open", weight=1.0),
                Goal(human=0, name="inside", weight=2.0),
                Goal(human=2, name="inside", weight=0.5),
            ),
            state_words=2,
            state_dtype=torch.int16,
            horizon=horizon,
        )
        self._rows = torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.int16)
        # [state agent action], padded with False; inside there is nothing to do.
        self._available = torch.tensor(
            [
                [[1, 1, 0], [1, 1, 0], [1, 1, 1]],
                [[1, 1, 0], [1, 0, 0], [1, 1, 0]],
                [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
            ],
            dtype=torch.bool,
        )
        self._achieved = torch.tensor(
            [[False, False, False], [True, False, False], [True, True, True]]
        )
        counts = self.spec.num_actions
        # product() counts its last factor fastest, the joint index its first.
        joint = [actions[::-1] for actions in itertools.product(*map(range, reversed(counts)))]
        self._prob = torch.tensor(
            [[self._next(state, actions) for actions in joint] for state in range(3)],
            dtype=torch.float64,
        )

    def _next(self, state: int, actions: Sequence[int]) -> list[float]:
        walker, robot, shouter = actions
        available = self._available[state]
        if not all(available[agent, action] for agent, action in enumerate(actions)):
            return [0.0, 0.0, 0.0]
        if state == CLOSED:
            opens = (1.0 if shouter == 2 else 0.75) * (robot == 1)
            return [1 - opens, opens, 0.0]
        shuts = 1 / 3 if shouter == 1 else 0.0
        enters = (1 - shuts) / 2 * (walker == 1)
        return [shuts, 1 - shuts - enters, enters]

    def initial_state(self) -> Int[Tensor, " word"]:
        """The closed door."""
        return self._rows[CLOSED].clone()

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """All successors; see ``empo_core.protocols.WorldModel``."""
        number = self._numbers(states)
        if actions is None:
            prob = self._prob[number].flatten(0, 1)
        else:
            prob = self._prob[number, self._joint(actions)]
        pair, successor = torch.nonzero(prob, as_tuple=True)
        counts = torch.bincount(pair, minlength=len(prob))
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return Successors(offsets, self._rows[successor], prob[pair, successor])

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has."""
        return self._available[self._numbers(states)]

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True if the door is open, and whether the walker is inside."""
        return self._achieved[self._numbers(states)]

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state."""
        return sample_successors(self.transitions(states, actions), states, generator)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """A few words."""
        return ("closed", "open", "inside")[int(self._numbers(state[None]))]

    def _numbers(self, states: Tensor) -> Tensor:
        """The number of each row.

        Raises:
            WorldError: if a row is none of the three.
        """
        if states.ndim != 2 or states.shape[1] != 2:
            raise WorldError(f"states have shape {list(states.shape)}; a row has 2 words")
        same = (states[:, None] == self._rows).all(-1)
        if not bool(same.any(1).all()):
            wrong = states[~same.any(1)][0].tolist()
            raise WorldError(f"{wrong} is no state; states are {self._rows.tolist()}")
        return same.int().argmax(1)

    def _joint(self, actions: Tensor) -> Tensor:
        limits = torch.tensor(self.spec.num_actions)
        wrong = ((actions < 0) | (actions >= limits)).any(-1)
        if bool(wrong.any()):
            raise WorldError(
                f"there is no joint action {actions[wrong][0].tolist()}; "
                f"the agents have {limits.tolist()} actions"
            )
        return (actions * torch.tensor(self.spec.strides)).sum(-1)


WALK = ("still", "left", "right", "forward")


class Street(WorldModel):
    """Walkers on five cells, who pass each other; a row is ``(cell, heading)`` of each.

    Heading 0 is east, 2 is west. Only who heads along the street can go forward, and only up
    to its ends. Everything is certain, and everything is always available.
    """

    def __init__(self, robots: int = 1, horizon: int | None = 6) -> None:
        agents = (
            AgentSpec(name="human", role="human", actions=WALK),
            *[AgentSpec(name=f"robot {i}", role="robot", actions=WALK) for i in range(robots)],
        )
        self.spec = WorldSpec(
            name="street",
            agents=agents,
            goals=tuple(Goal(human=0, name=str(cell), weight=1.0 + cell) for cell in (0, 2, 4)),
            state_words=2 * len(agents),
            state_dtype=torch.int16,
            horizon=horizon,
        )
        joint = torch.arange(self.spec.num_joint_actions)[:, None]
        self._joint = joint // torch.tensor(self.spec.strides) % len(WALK)

    def initial_state(self) -> Tensor:
        return torch.tensor([2, 0] * len(self.spec.agents), dtype=torch.int16)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            actions = self._joint.repeat(len(states), 1)
            states = states.repeat_interleave(len(self._joint), 0)
        cell, heading = states[:, ::2], states[:, 1::2].long()
        goes = torch.tensor([1, 0, -1, 0])[heading] * (actions == WALK.index("forward"))
        turns = torch.tensor([0, 3, 1, 0])[actions]
        parts = ((cell + goes).clamp(0, 4), (heading + turns) % 4)
        rows = torch.stack(parts, 2).flatten(1).to(torch.int16)
        count = len(rows)
        return Successors(torch.arange(count + 1), rows, torch.ones(count, dtype=torch.float64))

    def available(self, states: Tensor) -> Tensor:
        return torch.ones(len(states), len(self.spec.agents), len(WALK), dtype=torch.bool)

    def achieved(self, states: Tensor) -> Tensor:
        return states[:, :1] == torch.tensor([0, 2, 4])

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return self.transitions(states, actions).states

    def describe(self, state: Tensor) -> str:
        return str(state.tolist())
