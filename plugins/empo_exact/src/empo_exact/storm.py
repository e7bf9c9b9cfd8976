"""Files in the explicit format of the model checker Storm (.tra, .lab, .rew)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from empo_core.runs.atomic import make_folder
from empo_exact.game import goal_places
from empo_exact.graph import StateGraph


def write_labels(path: Path, labels: Mapping[str, Bool[np.ndarray, " state"]]) -> None:
    """Write which states have which labels."""
    names = list(labels)
    has = np.stack([labels[name] for name in names], -1)
    lines = ["#DECLARATION", " ".join(names), "#END"]
    for state in np.flatnonzero(has.any(-1)):
        lines.append(f"{state} {' '.join(names[i] for i in np.flatnonzero(has[state]))}")
    path.write_text("\n".join(lines) + "\n")


def write_rewards(path: Path, reward: Float64[np.ndarray, " state"]) -> None:
    """Write the states' rewards, those that are not 0."""
    nonzero = np.flatnonzero(reward)
    path.write_text("".join(f"{state} {float(reward[state])!r}\n" for state in nonzero))


def export_game(
    graph: StateGraph, achieved: Bool[np.ndarray, "state padded_goal"], directory: Path
) -> list[Path]:
    """Write the game as a Markov decision process: game.tra, game.lab, and durations as game.rew.

    Whoever solves it chooses the joint action of all agents; choice ``i`` of a state is its
    ``i``-th available joint action. States that were not expanded, because the horizon ends
    the episode there, and terminal states get one step to themselves. Labels: ``init``,
    ``final`` and ``goal_<i>`` for the goals in ``spec.goals``.
    """
    make_folder(directory)
    joint = graph.spec.num_joint_actions
    rewards: list[str] = []
    final = np.ones(graph.num_states, np.bool_)
    lines = ["mdp"]
    for state in range(graph.num_states):
        choice = 0
        pairs = range(state * joint, (state + 1) * joint) if state < graph.num_expanded else ()
        for pair in pairs:
            items = range(int(graph.offsets[pair]), int(graph.offsets[pair + 1]))
            for item in items:
                prob = float(graph.prob[graph.code[item]])
                step = f"{state} {choice} {graph.successor[item]}"
                lines.append(f"{step} {prob!r}")
                rewards.append(f"{step} {float(graph.duration[graph.code[item]])!r}")
            choice += len(items) > 0
        final[state] = choice == 0
        if choice == 0:
            lines.append(f"{state} 0 {state} 1")
    files = [directory / "game.tra", directory / "game.lab"]
    files[0].write_text("\n".join(lines) + "\n")
    labels = {"init": np.arange(graph.num_states) == 0, "final": final}
    place = goal_places(graph.spec)
    labels |= {f"goal_{i}": achieved[:, place[i]] > 0 for i in range(len(place))}
    write_labels(files[1], labels)
    if (graph.duration != 1).any():
        files.append(directory / "game.rew")
        files[2].write_text("\n".join(rewards) + "\n")
    return files
