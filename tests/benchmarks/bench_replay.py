"""Cost of a stored transition, against dense tensors and against Python objects.

``python tests/benchmarks/bench_replay.py`` plays a 7 x 7 grid with two humans and two robots and
remembers what happens in the replay, and in the obvious alternative: a ``deque`` of Python
objects, with states as tuples. Bytes are exact or traced; times are best processor times, and
the contenders take turns. ``--growth`` prints instead what each operation takes with up to a
million transitions, whose states are all different.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_core.types import Experience
from empo_multigrid.world import MultigridWorld, world_from_text
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.frontier import Frontier
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_phase2.replay import Replay, ReplayShape
from empo_testing.worlds import TinyWorld

WORLD = """
map: |
  We We We We We We We
  We Ay .. Ro .. Ay We
  We .. .. .. .. .. We
  We .. Bl .. Ro .. We
  We .. .. .. .. .. We
  We Ae .. .. .. Ae We
  We We We We We We We
max_steps: 50
orientations: [s, s, n, n]
possible_goals: ["1,1, 2,3", "3,1, 5,2", "3,3, 5,3", "1,4, 5,5"]
"""
BATCH = 64
TRACED = 400
"""Transitions as Python objects whose memory is traced."""

SIZES = (1_000, 10_000, 100_000, 1_000_000)

Row = tuple[int, ...]


@dataclass
class Transition:
    """A transition as one would write it down."""

    state: Row
    steps_left: int
    human_policy: list[list[float]]
    acts_for: list[bool]
    action: int
    successors: dict[int, list[tuple[float, Row]]]


def objects(block: Block) -> list[Transition]:
    """A block as Python objects; every occurrence of a state is a tuple of its own."""
    new, rows = block.transitions, block.states.rows.tolist()
    offsets, successor, prob = new.offsets.tolist(), new.successor.tolist(), new.prob.tolist()
    pairs = (len(offsets) - 1) // len(new)
    policy, goals = new.human_policy.tolist(), new.acts_for.tolist()
    columns = (t.tolist() for t in (new.state, new.steps_left, new.action))
    kept = []
    for t, (state, steps_left, action) in enumerate(zip(*columns, strict=True)):
        successors = {
            pair: [
                (prob[item], tuple(rows[successor[item]]))
                for item in range(offsets[t * pairs + pair], offsets[t * pairs + pair + 1])
            ]
            for pair in range(pairs)
        }
        start = tuple(rows[state])
        kept.append(Transition(start, steps_left, policy[t], goals[t], action, successors))
    return kept


def batch_of_objects(transitions: deque[Transition], chance: random.Random) -> tuple[Tensor, ...]:
    """Tensors of a batch for the learner: flat successors, and every distinct state once."""
    batch = [transitions[chance.randrange(len(transitions))] for _ in range(BATCH)]
    ids: dict[Row, int] = {}
    state = [ids.setdefault(t.state, len(ids)) for t in batch]
    successor, prob, counts = [], [], []
    for transition in batch:
        for pair in transition.successors.values():
            counts.append(len(pair))
            for chance_of_it, row in pair:
                successor.append(ids.setdefault(row, len(ids)))
                prob.append(chance_of_it)
    return (
        torch.tensor(state), torch.tensor(counts).cumsum(0),
        torch.tensor(successor), torch.tensor(prob), torch.tensor(list(ids)),
        torch.tensor([t.human_policy for t in batch]), torch.tensor([t.acts_for for t in batch]),
        torch.tensor([t.steps_left for t in batch]), torch.tensor([t.action for t in batch]),
    )  # fmt: skip


def batch_of(replay: Replay, generator: torch.Generator) -> States:
    """The same from the replay."""
    batch = replay.transitions(replay.sample_indices(BATCH, generator))
    return replay.states(torch.cat([batch.state, batch.successor]).unique())


def best_us(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least processor time of each contender, in turns, after one call to warm up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        for name, call in contenders.items():
            start = time.process_time()
            call()
            if turn:
                best[name] = min(best[name], 1e6 * (time.process_time() - start))
    return best


def problem(world: MultigridWorld, store: str, max_pairs: int) -> Problem:
    """Learning in a world, storing states in one way."""
    params = Phase2Params.model_validate(
        {
            "human_prior": "path-heuristic",
            "values": {"q_r": "lookup", "v_h_e": "lookup"},
            "replay": {"store": store, "capacity": 10_000},
            "targets": {"max_pairs": max_pairs},
        }
    )
    return Problem.of(params, world)


def traced_bytes(blocks: list[Block]) -> float:
    """Bytes of a transition as a Python object."""
    kept: deque[Transition] = deque(maxlen=TRACED)
    tracemalloc.start()
    for block in blocks:
        kept.extend(objects(block))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(kept)


def rows_for(
    world: MultigridWorld, store: str, max_pairs: int, transitions: int
) -> list[list[str]]:
    """Play, remember, and say what it costs in memory and time."""
    about = problem(world, store, max_pairs)
    replay, actor = about.replay(), about.factory(0)
    blocks: list[Block] = []
    while len(replay) < transitions:
        experience: Experience = actor.act(0)
        block = Block.from_arrays(experience.arrays)
        replay.add(block, training_step=0)
        if len(blocks) * len(block.transitions) < TRACED:
            blocks.append(block)
    items, distinct = replay.items / len(replay), replay.distinct_states / len(replay)
    dense = (2 + items) * 4 * about.spec.featurizer.shape.flat
    own, python = replay.bytes_per_transition(), traced_bytes(blocks)
    pairs = (len(block.transitions.offsets) - 1) // len(block.transitions)
    memory = [
        store, f"{about.spec.state_words * about.spec.state_dtype.itemsize}", f"{pairs}",
        f"{items:.0f}", f"{distinct:.1f}", f"{own:,.0f}", f"{dense:,.0f}", f"{python:,.0f}",
        f"{dense / own:,.0f}", f"{python / own:,.0f}",
    ]  # fmt: skip

    generator, chance = torch.Generator().manual_seed(0), random.Random(0)
    kept: deque[Transition] = deque(maxlen=TRACED)
    for one in blocks:
        kept.extend(objects(one))
    added = best_us(
        {
            "replay": lambda: [replay.add(one, training_step=0) for one in blocks],
            "deque": lambda: [kept.extend(objects(one)) for one in blocks],
        },
        rounds=7,
    )
    drawn = best_us(
        {
            "replay": lambda: batch_of(replay, generator),
            "deque": lambda: batch_of_objects(kept, chance),
        },
        rounds=30,
    )
    speed = [store, f"{pairs}"]
    for times, count in ((added, len(blocks)), (drawn, 1)):
        speed += [f"{times['replay'] / count:,.0f}", f"{times['deque'] / count:,.0f}"]
        speed += [f"{times['deque'] / times['replay']:,.0f}"]
    return [memory, speed]


def random_block(count: int, chance: torch.Generator) -> Block:
    """Transitions between random states, with a successor of each of four pairs."""
    states, zeros = 6 * count, torch.zeros(count, dtype=torch.int64)
    return Block(
        States(
            rows=torch.randint(2**30, (states, 3), dtype=torch.int32, generator=chance),
            layout=torch.zeros(states, dtype=torch.int64),
            terminal=torch.zeros(states, dtype=torch.bool),
            achieved=torch.zeros(states, 2, dtype=torch.bool),
            available=torch.ones(states, 2, dtype=torch.bool),
        ),
        Transitions(
            state=torch.arange(count),
            steps_left=torch.randint(1, 51, (count,), generator=chance),
            human_policy=torch.full((count, 2, 2), 0.5),
            acts_for=torch.ones(count, 2, dtype=torch.bool),
            behaviour=torch.zeros(count, 0),
            action=zeros,
            offsets=torch.arange(4 * count + 1),
            successor=torch.arange(2 * count, 6 * count),
            prob=torch.ones(4 * count),
        ),
        torch.zeros(count, dtype=torch.bool),
        zeros[:, None],
        zeros[:, None],
        torch.arange(count, 2 * count),
    )


def growth(console: Console) -> None:
    """Print the time of each operation of a replay and of a frontier as they grow."""
    shape = ReplayShape(words=3, dtype=torch.int32, slots=2, robot_actions=2, human_slots=2,
                        human_actions=2, profiles=2)  # fmt: skip
    replay, chance = Replay(SIZES[-1], shape), torch.Generator().manual_seed(0)
    frontier = Frontier(TinyWorld().spec)
    seen = torch.arange(SIZES[-1])[:, None] // torch.tensor([1, 1000]) % 1000
    table = Table(title="Microseconds, in a replay of so many transitions of different states")
    names = ("add 64", "draw 256", "draw 256 by state", "read 256", "frontier: see 64", "draw 64")
    for heading in ("transitions", "states", *names):
        table.add_column(heading, justify="right")
    for size in SIZES:
        before = len(replay)
        for first in range(before, size, 1000):
            replay.add(random_block(min(1000, size - first), chance), training_step=0)
            replay.sample_indices(1, chance, by_state=True)
        rows = seen[before:size].to(torch.int16)
        frontier.see(rows, torch.ones(len(rows), dtype=torch.int64))
        drawn = replay.sample_indices(256, chance)
        calls: dict[str, Callable[[], object]] = {
            names[0]: lambda: replay.add(random_block(BATCH, chance), training_step=0),
            "block": lambda: random_block(BATCH, chance),
            names[1]: lambda: replay.sample_indices(256, chance),
            names[2]: lambda: replay.sample_indices(256, chance, by_state=True),
            names[3]: lambda: replay.states(replay.transitions(drawn).successor),  # noqa: B023
            names[4]: lambda: frontier.see(rows[:BATCH], torch.ones(BATCH, dtype=torch.int64)),  # noqa: B023
            names[5]: lambda: frontier.draw_new(BATCH, chance),
        }
        best = best_us(calls, 20)
        best[names[0]] -= best["block"]
        table.add_row(
            f"{len(replay):,}", f"{replay.distinct_states:,}", *(f"{best[n]:,.0f}" for n in names)
        )
    console.print(table)


def main() -> None:
    """Print what a transition takes, and how long it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=5000, help="how many to remember")
    parser.add_argument("--growth", action="store_true", help="times with up to a million")
    arguments = parser.parse_args()
    transitions = arguments.transitions
    torch.set_num_threads(1)
    if arguments.growth:
        growth(Console(width=120))
        return
    world = world_from_text(WORLD)
    cases = [
        rows_for(world, store, max_pairs, transitions)
        for max_pairs in (1, 1024)
        for store in ("rows", "compact")
    ]
    memory = Table(title=f"Memory per transition, {transitions:,} transitions")
    for heading in (
        "store", "bytes/row", "pairs", "items", "states", "replay B", "dense B", "Python B",
        "dense / replay", "Python / replay",
    ):  # fmt: skip
        memory.add_column(heading, justify="right")
    speed = Table(title="Microseconds")
    for heading in (
        "store", "pairs", "add a block", "deque", "deque / replay", "sample a batch", "deque",
        "deque / replay",
    ):  # fmt: skip
        speed.add_column(heading, justify="right")
    for in_memory, in_time in cases:
        memory.add_row(*in_memory)
        speed.add_row(*in_time)
    console = Console(width=120)
    console.print(memory)
    shape = world.spec.featurizer.shape
    console.print(
        "pairs: joint actions with successors; items: successors; states: distinct states of the\n"
        "whole replay, all per transition. dense: every state of a transition as float tensors of\n"
        f"{4 * shape.flat:,} bytes, of which the {shape.channels} x 7 x 7 picture takes "
        f"{4 * shape.channels * 49:,}.\nPython: objects with states as tuples, as traced."
    )
    console.print(speed)
    console.print(
        f"A block is 16 transitions. A batch is {BATCH}: flat successors, and each state that\n"
        "occurs once. Both start and end with tensors."
    )


if __name__ == "__main__":
    main()
