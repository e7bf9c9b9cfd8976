"""The compiled code against the law as its page says it, on crowded situations."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from crowded_situations import Crowd, crowds
from law_from_the_page import successors

from empo_core.types import Successors

Law = dict[tuple[int, ...], float]

TOLERANCE = 1e-12
QUICK, SLOW = 2_400, 100_000
EXPANDED = 512
"""Joint actions that a state may have if all of them are asked for at once."""

HAPPENS = {
    "action forced", "action recorded", "block of 2", "block of 3", "block of 4", "box opened",
    "bush: fail", "bush: in", "button disabled or enabled", "button programmed",
    "button triggered", "door opened", "door shut", "door unlocked", "drop", "kill", "lava",
    "magic: fail", "magic: in", "magic: solid", "move", "move into a vacated cell", "pause",
    "pickup", "push", "push of a rock", "push of a row", "release", "release by disabling",
    "stopped before acting", "stumble", "stumbler resisted by a bush",
    "stumblers contest a cell", "trample",
}  # fmt: skip
"""Everything that the law tells apart."""


class Comparison:
    """Asserts that page and code give the same distributions.

    Attributes:
        seen: Number of situations in which each thing may happen.
        situations: Number of situations compared.
        surplus: Number of samples that were the first successor listed, less its expectation.
        variance: That of ``surplus``.
    """

    def __init__(self, seed: int, situations: int) -> None:
        self.seen: Counter[str] = Counter()
        self.situations = 0
        self.surplus = self.variance = 0.0
        generator = torch.Generator().manual_seed(seed)
        for crowd in crowds(seed, situations):
            self._compare(crowd, generator)

    def _compare(self, crowd: Crowd, generator: torch.Generator) -> None:
        world, laws = crowd.world, []
        for row, actions in zip(crowd.rows.tolist(), crowd.actions.tolist(), strict=True):
            happens: Counter[str] = Counter()
            laws.append(successors(world.layout, row, actions, happens))
            self.seen.update(what for what, count in happens.items() if count)
        self.situations += len(laws)
        rows, actions = torch.from_numpy(crowd.rows), torch.from_numpy(crowd.actions)
        for k, law in enumerate(laws):
            assert math.isclose(sum(law.values()), 1.0), _told(crowd, k, law, {})
        listed = world.transitions(rows, actions)
        _agree(crowd, laws, listed, list(range(len(laws))))
        if (joint := world.spec.num_joint_actions) <= EXPANDED:
            index = (actions * torch.tensor(world.spec.strides)).sum(1).tolist()
            pairs = [k * joint + j for k, j in enumerate(index)]
            _agree(crowd, laws, world.transitions(rows), pairs)
        first = listed.states[listed.offsets[:-1]].tolist()
        for k, row in enumerate(world.step(rows, actions, generator).tolist()):
            drawn, law = tuple(row), laws[k]
            assert drawn in law, f"never drawn: {drawn}\n{_told(crowd, k, law, {})}"
            p = law[tuple(first[k])]
            self.surplus += (row == first[k]) - p
            self.variance += p * (1 - p)


def _agree(crowd: Crowd, laws: list[Law], listed: Successors, pairs: list[int]) -> None:
    offsets = listed.offsets.tolist()
    rows, prob = listed.states.numpy(), listed.prob.tolist()
    for k, (law, pair) in enumerate(zip(laws, pairs, strict=True)):
        items = range(offsets[pair], offsets[pair + 1])
        found = {tuple(rows[item].tolist()): prob[item] for item in items}
        assert len(found) == len(items), f"not merged\n{_told(crowd, k, law, found)}"
        same = found.keys() == law.keys() and all(
            abs(p - law[row]) <= TOLERANCE for row, p in found.items()
        )
        assert same, _told(crowd, k, law, found)


def _told(crowd: Crowd, k: int, law: Law, simulated: Law) -> str:
    """One situation in words, and what differs between page and code."""
    world, row = crowd.world, crowd.rows[k].tolist()
    names = [world.spec.agents[0].actions[action] for action in crowd.actions[k]]
    lines = [world.describe(torch.from_numpy(crowd.rows[k])), f"row {row}", f"actions {names}"]
    for successor in sorted(law.keys() | simulated.keys()):
        changes = {
            word: (before, after)
            for word, (before, after) in enumerate(zip(row, successor, strict=True))
            if before != after
        }
        page, code = law.get(successor, 0.0), simulated.get(successor, 0.0)
        lines.append(f"page {page:.6f} code {code:.6f} {changes}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def quick() -> Comparison:
    """The first situations, compared."""
    return Comparison(0, QUICK)


def test_the_code_obeys_the_page_in_crowded_situations(quick: Comparison) -> None:
    assert quick.situations == QUICK


def test_sampled_successors_follow_the_page(quick: Comparison) -> None:
    assert quick.variance > QUICK / 20
    assert abs(quick.surplus) < 4 * math.sqrt(quick.variance)


def test_the_situations_are_crowded(quick: Comparison) -> None:
    seen = quick.seen
    assert set(seen) >= HAPPENS, HAPPENS - set(seen)
    assert seen["block of 2"] > QUICK / 4
    assert seen["block of 3"] + seen["block of 4"] > QUICK / 30
    assert seen["luck"] > QUICK / 20


@pytest.mark.slow
def test_the_code_obeys_the_page_in_a_hundred_thousand_crowded_situations() -> None:
    compared = Comparison(1, SLOW)
    assert compared.situations == SLOW
    assert abs(compared.surplus) < 4 * math.sqrt(compared.variance)
    assert min(compared.seen[what] for what in HAPPENS) >= SLOW / 5000, compared.seen
