"""The buffer against a reference that keeps a list of dictionaries per agent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_rollout.buffer import Rollout, SegmentBuffer
from empo_rollout.plan import VecPlan

PER_SEGMENT = {"memory", "agent"}


@dataclass(frozen=True)
class Case:
    """Settings of a test; its random events follow from ``seed``."""

    blocks: int = 2
    block_agents: int = 2
    segments: int = 4
    horizon: int = 3
    tail: Literal["bootstrap", "drop"] = "bootstrap"
    seed: int = 0
    ends: float = 0.3
    dead: float = 0.2
    discrete: bool = True
    masks: bool = False
    memory_size: int = 2
    reward_clip: float | None = None
    in_turns: bool = False
    receive_again: bool = False
    device: str = "cpu"

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            ObservationSpec(3, "float32" if self.discrete else "uint8"),
            ActionSpec(choices=(2, 3)) if self.discrete else ActionSpec(low=(-1.0,), high=(1.0,)),
            agents=("walker",), num_envs=self.blocks * self.block_agents, num_blocks=self.blocks,
            masks=self.masks,
        )  # fmt: skip

    def buffer(self) -> SegmentBuffer:
        agents = self.blocks * self.block_agents
        plan = VecPlan(
            1, 1, self.blocks, agents, self.horizon, self.segments, minibatch_size=self.horizon
        )
        return SegmentBuffer(
            self.spec, plan, memory_size=self.memory_size, tail=self.tail,
            device=self.device, reward_clip=self.reward_clip,
        )  # fmt: skip


Steps = dict[int, list[dict[str, Any]]]
"""Steps of a rollout, by agent; unknown outcomes are as in ``NO_OUTCOME``."""

NO_OUTCOME = {
    "reward": 0.0, "terminated": False, "truncated": False, "next_value": 0.0, "unseen": False,
    "is_known": False,
}  # fmt: skip


class Game:
    """Blocks that arrive in some order, a policy that says anything, and the reference."""

    def __init__(self, case: Case) -> None:
        self.case, self.buffer, self.spec = case, case.buffer(), case.spec
        self.rng = np.random.default_rng(case.seed)
        self.on_way = list(range(case.blocks))
        self.parked: list[TimeStep] = []
        self.last: dict[int, dict[str, Any]] = {}
        """Each agent's last step, while its outcome has not arrived."""

    def arrival(self, block: int) -> TimeStep:
        """Whatever may happen to a block."""
        size, rng, case = self.case.block_agents, self.rng, self.case
        truncated = rng.random(size) < case.ends
        final = np.flatnonzero(truncated & (rng.random(size) < 0.6))
        return TimeStep(
            block,
            rng.integers(0, 255, (size, 3)).astype(self.spec.observations.dtype),
            rng.normal(0, 3, size).astype(np.float32),
            rng.random(size) < case.ends,
            truncated,
            rng.random(size) < case.ends,
            rng.random(size) >= case.dead,
            final,
            np.zeros((len(final), 3), np.float32),
            rng.random((size, 5)) < 0.5 if case.masks else None,
        )

    def values(self, count: int) -> torch.Tensor:
        return torch.from_numpy(self.rng.normal(size=count).astype(np.float32))

    def receive(self, arrival: TimeStep) -> None:
        value, final = self.values(self.case.block_agents), self.values(len(arrival.final_row))
        self.buffer.receive(arrival, value, final)
        for row in range(self.case.block_agents):
            step = self.last.pop(self.agents(arrival)[row], None)
            if step is not None and step["valid"]:
                step.update(self.outcome(arrival, row, value, final))
            elif step is not None:
                step.update(NO_OUTCOME, is_known=True)

    def outcome(
        self, arrival: TimeStep, row: int, value: torch.Tensor, final: torch.Tensor
    ) -> dict[str, Any]:
        reward, clip = arrival.reward[row].item(), self.case.reward_clip
        terminated, truncated = bool(arrival.terminated[row]), bool(arrival.truncated[row])
        finals = dict(zip(arrival.final_row.tolist(), final.tolist(), strict=True))
        if terminated:
            following = 0.0
        elif truncated:
            following = finals.get(row, 0.0)
        else:
            following = value[row].item()
        return {
            "reward": reward if clip is None else max(-clip, min(clip, reward)),
            "terminated": terminated, "truncated": truncated, "next_value": following,
            "unseen": truncated and not terminated and row not in finals, "is_known": True,
        }  # fmt: skip

    def agents(self, arrival: TimeStep) -> range:
        agents = self.spec.agents_of(arrival.block)
        return range(agents.start, agents.stop)

    def act(self, arrival: TimeStep, version: int, steps: Steps) -> None:
        size, case = self.case.block_agents, self.case
        action = torch.from_numpy(
            self.rng.integers(0, 2, (size, 2)) if case.discrete
            else self.rng.normal(size=(size, 1)).astype(np.float32)
        )  # fmt: skip
        log_prob, value = self.values(size), self.values(size)
        memory = self.values(size * case.memory_size).reshape(size, -1)
        self.buffer.store(arrival, action, log_prob, value, memory, version)
        for row, agent in enumerate(self.agents(arrival)):
            step = {
                "observation": arrival.observation[row].tolist(), "action": action[row].tolist(),
                "log_prob": log_prob[row].item(), "value": value[row].item(),
                "starts": bool(arrival.starts[row]), "valid": bool(arrival.acts[row]),
                "version": version, **NO_OUTCOME,
                "memory": memory[row].tolist() if not arrival.starts[row]
                else [0.0] * case.memory_size,
            }  # fmt: skip
            if arrival.mask is not None:
                step["mask"] = arrival.mask[row].tolist()
            steps.setdefault(agent, []).append(step)
            ends_segment = len(steps[agent]) % case.horizon == 0
            if not (ends_segment and case.tail == "drop"):
                self.last[agent] = step
        self.on_way.append(arrival.block)
        # Environments write to their memory again once a block is sent.
        for name in ("observation", "reward", "terminated", "truncated", "starts", "acts"):
            getattr(arrival, name)[:] = 1

    def play(self, version: int) -> tuple[Rollout, Steps]:
        """A rollout, and what it should consist of."""
        steps: Steps = {}
        self.buffer.begin_rollout()
        parked, self.parked = self.parked, []
        for arrival in parked:
            if self.case.receive_again:
                self.receive(arrival)
            self.act(arrival, version, steps)
        while not self.buffer.ready:
            chosen = 0 if self.case.in_turns else self.rng.integers(len(self.on_way))
            arrival = self.arrival(self.on_way.pop(chosen))
            self.receive(arrival)
            if self.buffer.has_room(arrival.block):
                self.act(arrival, version, steps)
            else:
                self.parked.append(arrival)
        return self.buffer.rollout(), steps


def segments_of(rollout: Rollout, case: Case) -> list[tuple[int, list[dict[str, Any]]]]:
    """A rollout as the reference writes it down: the agent and the steps of each segment."""
    names = [each.name for each in fields(Rollout) if each.name not in PER_SEGMENT]
    lists = {n: getattr(rollout, n).tolist() for n in names if getattr(rollout, n) is not None}
    agents, memory = rollout.agent.tolist(), rollout.memory.tolist()
    return [
        (
            agents[s],
            [
                {name: lists[name][t][s] for name in lists} | ({} if t else {"memory": memory[s]})
                for t in range(case.horizon)
            ],
        )
        for s in range(case.segments)
    ]


def expected(steps: Steps, case: Case) -> list[tuple[int, list[dict[str, Any]]]]:
    """The same from the reference: each agent's steps, cut every ``horizon`` steps."""
    found = []
    for agent, mine in steps.items():
        for start in range(0, len(mine), case.horizon):
            first, *rest = mine[start : start + case.horizon]
            rest = [{k: v for k, v in step.items() if k != "memory"} for step in rest]
            found.append((agent, [first, *rest]))
    return found


def plain(segments: list[tuple[int, list[dict[str, Any]]]]) -> list[str]:
    """As text that does not depend on where segments are kept, with numbers as float32."""

    def short(value: Any) -> Any:
        return float(np.float32(value)) if isinstance(value, float) else value

    return sorted(
        str((agent, [[(k, short(v)) for k, v in sorted(step.items())] for step in steps]))
        for agent, steps in segments
    )


def check(case: Case, rollouts: int = 2) -> None:
    game = Game(case)
    for version in range(rollouts):
        rollout, steps = game.play(version)
        assert plain(segments_of(rollout, case)) == plain(expected(steps, case))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    blocks, size = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    chance, discrete = st.sampled_from([0.0, 0.3, 1.0]), draw(st.booleans())
    return Case(
        blocks, size,
        segments=size * (blocks + draw(st.integers(0, 4))),
        horizon=draw(st.integers(1, 4)),
        tail=draw(st.sampled_from(["bootstrap", "drop"])),
        seed=draw(st.integers(0, 2**16)),
        ends=draw(chance), dead=draw(chance),
        discrete=discrete, masks=discrete and draw(st.booleans()),
        memory_size=draw(st.integers(0, 2)),
        reward_clip=draw(st.sampled_from([None, 1.0])),
        in_turns=draw(st.booleans()), receive_again=draw(st.booleans()),
    )  # fmt: skip


@given(case=cases())
@settings(max_examples=50)
def test_every_field_of_every_step_is_what_lists_per_agent_say(case: Case) -> None:
    check(case, rollouts=3)


@pytest.mark.gpu
@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
def test_on_a_gpu_a_rollout_is_the_same(tail: Literal["bootstrap", "drop"]) -> None:
    case = Case(segments=6, tail=tail, masks=True, reward_clip=1.0)
    for _ in range(3):
        here, there = Game(case), Game(replace(case, device="cuda"))
        for version in range(2):
            own, _ = here.play(version)
            other, _ = there.play(version)
            assert other.reward.is_cuda
            assert plain(segments_of(own, case)) == plain(segments_of(other, case))


def test_what_is_written_to_a_rollout_is_in_the_buffer_and_copies_are_copies() -> None:
    case = Case(segments=6)
    game = Game(case)
    rollout, _ = game.play(0)
    chosen = torch.tensor([4, 1])
    copies = rollout.segments(chosen)
    copies.value.fill_(7)
    assert not (game.buffer.rollout().value == 7).any()
    rollout.value[:, chosen] = 5
    rollout.log_prob[1:] = 6
    again = game.buffer.rollout()
    assert (again.value == 5).all(0).tolist() == [False, True, False, False, True, False]
    assert (again.log_prob == 6).all(1).tolist() == [False, True, True]


def test_segments_can_be_picked_in_any_order() -> None:
    case = Case(segments=6, masks=True)
    rollout, _ = Game(case).play(0)
    order = [5, 0, 3, 3]
    found = segments_of(rollout, case)
    picked = segments_of(rollout.segments(torch.tensor(order)), replace(case, segments=4))
    assert picked == [found[i] for i in order]
