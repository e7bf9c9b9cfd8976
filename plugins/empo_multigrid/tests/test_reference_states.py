"""States in the public implementation's form, and back."""

import json
from pathlib import Path

import pytest

from empo_core.errors import WorldError
from empo_multigrid.interchange.public_states import from_reference, to_reference
from empo_multigrid.world import world_from_text

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
SOLVED = sorted(GOLDEN.glob("micro_*.json"))

FURNISHED = """
map: |
  We We We We We We We
  We Ay Lr Bu Mn Kb We
  We Ae Kr Xb CB Ps We
  We .. Ro Bl Ro Cg We
  We We We We We We We
objects: {"3,2": {contains: Br}}
"""


def as_lists(value: object) -> object:
    return [as_lists(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_every_state_of_a_solved_world_survives_the_round_trip(path: Path) -> None:
    golden = json.loads(path.read_text())
    world = world_from_text(golden["yaml"])
    assert to_reference(world, world.initial_state(), 0) == to_reference(
        world, from_reference(world, golden["initial_state"]), 0
    )
    for entry in golden["states"]:
        state = entry["state"]
        row = from_reference(world, state)
        assert as_lists(to_reference(world, row, state[0])) == state


def test_every_sampled_state_and_successor_survives_the_round_trip() -> None:
    samples = json.loads((GOLDEN / "transition_samples.json").read_text())
    for sample in samples.values():
        world = world_from_text(sample["yaml"])
        for query in sample["queries"]:
            states = [query["state"], *(successor for _, successor in query["successors"])]
            for state in states:
                row = from_reference(world, state)
                assert as_lists(to_reference(world, row, state[0])) == state


def test_distinct_states_get_distinct_rows() -> None:
    golden = json.loads(SOLVED[0].read_text())
    world = world_from_text(golden["yaml"])
    states = {json.dumps(entry["state"][1:]) for entry in golden["states"]}
    rows = {tuple(from_reference(world, entry["state"]).tolist()) for entry in golden["states"]}
    assert len(rows) == len(states)


def test_the_initial_state_of_a_furnished_world_has_every_entry() -> None:
    world = world_from_text(FURNISHED)
    agent = (0, False, True, False, None, None, None)
    assert to_reference(world, world.initial_state(), 7) == (
        7,
        ((1, 1, *agent), (1, 2, *agent)),
        (("block", 3, 3), ("rock", 2, 3), ("rock", 4, 3)),
        (
            ("door", 2, 1, False, True),
            ("bush", 3, 1, False),
            ("magicwall", 4, 1, True),
            ("killbutton", 5, 1, True),
            ("box", 3, 2, "ball", "red"),
            ("controlbutton", 4, 2, True, None, None, False),
            ("pauseswitch", 5, 2, False, True),
            ("door", 5, 3, False, False),
        ),
    )


def test_carried_things_flags_and_programs_survive_the_round_trip() -> None:
    world = world_from_text(FURNISHED)
    state = (
        3,
        (
            (1, 1, 2, True, True, False, "ball", "red", None),
            (5, 1, 3, False, True, True, "key", "red", 2),
        ),
        (("block", 4, 1), ("rock", 1, 3), ("rock", 2, 3)),
        (
            ("door", 2, 1, True, False),
            ("bush", 3, 1, True),
            ("magicwall", 4, 1, False),
            ("killbutton", 5, 1, False),
            ("controlbutton", 4, 2, True, 1, 6, True),
            ("pauseswitch", 5, 2, True, True),
            ("door", 5, 3, False, False),
        ),
    )
    assert to_reference(world, from_reference(world, state), 3) == state


def test_boxes_are_told_apart_by_where_they_began() -> None:
    world = world_from_text("{map: [Ae .. Xr .. Xr], objects: {'2,0': {contains: KB}}}")
    start = world.initial_state()
    assert from_reference(world, to_reference(world, start, 0)).tolist() == start.tolist()
    state = list(as_lists(to_reference(world, start, 0)))
    state[3] = [entry for entry in state[3] if entry[1] == 2]  # The empty one was opened.
    row = from_reference(world, state)
    assert as_lists(to_reference(world, row, 0)) == state


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s[:3],
        lambda s: [s[0], s[1][:1], s[2], s[3]],
        lambda s: [s[0], s[1], s[2][:1], s[3]],
        lambda s: [s[0], s[1], [*s[2], ["rock", 1, 1]], s[3]],
        lambda s: [s[0], s[1], [["anvil", 1, 1]], s[3]],
        lambda s: [s[0], s[1], s[2], s[3][1:]],
        lambda s: [s[0], s[1], s[2], [*s[3], ["door", 1, 1, True, False]]],
        lambda s: [s[0], [[99, *s[1][0][1:]], s[1][1]], s[2], s[3]],
        lambda s: [s[0], [[1, 1, 4, *s[1][0][3:]], s[1][1]], s[2], s[3]],
        lambda s: [s[0], [[1, 1, 0, False, False, *s[1][0][5:]], s[1][1]], s[2], s[3]],
        lambda s: [s[0], [[*s[1][0][:6], "key", "green", None], s[1][1]], s[2], s[3]],
    ],
)
def test_what_is_no_state_of_the_world_is_refused(spoil: object) -> None:
    world = world_from_text(FURNISHED)
    state = as_lists(to_reference(world, world.initial_state(), 0))
    with pytest.raises(WorldError, match="'world' in reference"):
        from_reference(world, spoil(state))  # type: ignore[operator]
