"""The names that scripts rely on, used as a script would use them."""

from pathlib import Path

import pytest
import torch

import empo_core
from empo_core.protocols import WorldModel

CONFIG = """\
world_model: {}
algorithm: {{name: exact, params: {{compute: {{workers: 1}}, rollouts: 0}}}}
runs: runs
"""


def solved_world(name: str, folder: Path) -> WorldModel:
    file = folder / "config.yaml"
    file.write_text(CONFIG.format(name))
    world: WorldModel = empo_core.run(empo_core.load_config(file)).problem.world  # type: ignore[attr-defined]
    return world


@pytest.mark.parametrize(
    "name", ["multigrid/unsteady_room", "bushworld/thicket", "table/confirmation"]
)
def test_every_world_answers_by_the_stable_names(name: str, tmp_path: Path) -> None:
    world = solved_world(name, tmp_path)
    state = world.initial_state()
    actions = torch.tensor([[0 for _ in world.spec.agents]])
    found = world.transitions(state[None], actions)
    assert (
        world.step(state[None], actions, torch.Generator().manual_seed(0)).tolist()[0]
        in found.states.tolist()
    )

    pairs = world.transition_probabilities(state, actions[0].tolist())  # type: ignore[attr-defined]
    expected = zip(found.prob.tolist(), map(tuple, found.states.tolist()), strict=True)
    assert sorted(pairs) == sorted(expected)
    assert [p for p, _ in pairs] == sorted((p for p, _ in pairs), reverse=True)
    again = world.transition_probabilities(pairs[0][1], actions[0].tolist())  # type: ignore[attr-defined]
    assert again is None or sum(p for p, _ in again) == pytest.approx(1, abs=1e-12)


def test_a_terminal_state_has_no_transition_probabilities(tmp_path: Path) -> None:
    world = solved_world("table/commitment", tmp_path)
    state, actions = tuple(world.initial_state().tolist()), [0] * len(world.spec.agents)
    for _ in range(20):
        pairs = world.transition_probabilities(state, actions)  # type: ignore[attr-defined]
        if pairs is None:
            return
        state = pairs[0][1]
    pytest.fail("the game does not end")
