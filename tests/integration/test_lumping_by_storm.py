"""Lumping against the bisimulation of the model checker Storm, and against sets in Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.game import make_game
from empo_exact.graph import StateGraph, build_graph
from empo_exact.images import Images
from empo_exact.reductions.bisimulation import partition
from empo_exact.storm import export_game
from empo_theory.parameters import CompleteTheory

WORLDS: list[tuple[str, dict[str, Any]]] = [
    ("multigrid/trivial", {}),
    ("multigrid/two_room", {}),
    ("multigrid/tiny_test", {}),
    ("multigrid/small_trolley", {}),
    ("blocks", {"size": 3, "boxes": 2}),
    ("table/resource_split", {}),
    ("table/confirmation", {}),
]


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world[0])
def world(request: pytest.FixtureRequest) -> WorldModel:
    name, params = request.param
    found: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return found


@pytest.fixture(scope="module")
def graph(world: WorldModel) -> StateGraph:
    """All states, as if there were no horizon: rounds go on as long as anything changes."""
    found = build_graph(world, None)
    return replace(found, spec=replace(found.spec, horizon=None))


def parts_of(world: WorldModel, graph: StateGraph) -> np.ndarray:
    achieved = world.achieved(torch.from_numpy(graph.states)).numpy()
    return partition(graph, Images.none(graph), achieved)


def numbered(labels: list[Any]) -> list[int]:
    """Numbers of distinct labels, in order of first appearance."""
    number = {key: i for i, key in enumerate(dict.fromkeys(labels))}
    return [number[key] for key in labels]


def leads(graph: StateGraph, part: list[int], pair: int) -> tuple[Any, ...]:
    """Chances of a pair by part and duration, to twelve digits."""
    chances: dict[tuple[int, float], float] = {}
    for item in range(int(graph.offsets[pair]), int(graph.offsets[pair + 1])):
        code = int(graph.code[item])
        key = part[graph.successor[item]], float(graph.duration[code])
        chances[key] = chances.get(key, 0.0) + float(graph.prob[code])
    return tuple(sorted((key, round(chance, 12)) for key, chance in chances.items()))


def test_parts_are_those_of_plain_refinement(world: WorldModel, graph: StateGraph) -> None:
    achieved = world.achieved(torch.from_numpy(graph.states)).tolist()
    joint = graph.spec.num_joint_actions
    part = numbered(list(zip(map(tuple, achieved), graph.alive.tolist(), strict=True)))
    before = -1
    while max(part) > before:
        before = max(part)
        part = numbered(
            [
                (own, *(leads(graph, part, state * joint + j) for j in range(joint)))
                for state, own in enumerate(part)
            ]
        )
    assert parts_of(world, graph).tolist() == part


def test_storm_finds_as_many_parts(world: WorldModel, graph: StateGraph, tmp_path: Path) -> None:
    stormpy = pytest.importorskip("stormpy", reason="the model checker Storm is not installed")
    transformations = pytest.importorskip("stormpy.transformations")
    if (graph.duration != 1).any():
        pytest.skip("Storm's chains know no durations")
    achieved = world.achieved(torch.from_numpy(graph.states)).numpy()
    export_game(graph, make_game(graph, achieved, CompleteTheory()).achieved > 0, tmp_path)
    write_chain(graph, tmp_path)
    model = stormpy.build_model_from_explicit(tmp_path / "all.tra", tmp_path / "all.lab")
    labels = sorted(model.labeling.get_labels() - {"init"})
    formulas = stormpy.parse_properties(";".join(f'P=? [F "{label}"]' for label in labels))
    quotient = transformations.perform_bisimulation(model, formulas)
    parts = len(list(quotient.labeling.get_states("state")))
    assert parts == parts_of(world, graph).max() + 1


def write_chain(graph: StateGraph, folder: Path) -> None:
    """Write ``game.tra`` as a chain that has a labelled node of its own for each joint action.

    Storm's bisimulation of games compares sets of choices; ours tells joint actions apart.
    """
    joint, states = graph.spec.num_joint_actions, graph.num_states
    counts = np.diff(graph.offsets.astype(np.int64)).reshape(states, joint)
    pairs: dict[tuple[int, int], int] = {}
    steps: list[tuple[int, int, str]] = []
    for line in (folder / "game.tra").read_text().splitlines()[1:]:
        state, choice, target, prob = line.split()
        possible = np.flatnonzero(counts[int(state)])
        action = int(possible[int(choice)]) if len(possible) else joint
        node = pairs.setdefault((int(state), action), states + len(pairs))
        steps.append((node, int(target), prob))
    for (state, _), node in pairs.items():
        steps.append((state, node, repr(1 / max(1, int((counts[state] > 0).sum())))))
    lines = [f"{source} {target} {prob}" for source, target, prob in sorted(steps)]
    (folder / "all.tra").write_text("\n".join(["dtmc", *lines]) + "\n")
    text = (folder / "game.lab").read_text().splitlines()
    names = [*text[1].split(), "state", *(f"action_{j}" for j in range(joint + 1))]
    own = {int(line.split()[0]): line.split()[1:] for line in text[3:]}
    labels = [f"{state} {' '.join([*own.get(state, []), 'state'])}" for state in range(states)]
    labels += [f"{node} action_{action}" for (_, action), node in pairs.items()]
    text = ["#DECLARATION", " ".join(names), "#END", *labels]
    (folder / "all.lab").write_text("\n".join(text) + "\n")
