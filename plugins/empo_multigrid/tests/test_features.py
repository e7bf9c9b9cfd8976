"""States as numbers: pictures, agents and objects, straight from rows and from compact rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest
import random_worlds as rw
import reference_features as reference
import torch
from drawn_worlds import CONTROL, KILL, PAUSE, World, bush, button, door, wall
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_scene import Scene
from reference_transition import transition

import empo_multigrid
from empo_core.errors import WorldError
from empo_core.features import Features, Featurizer
from empo_multigrid.layout import (
    BALL,
    BLUE,
    BOX,
    COLOURS,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    FLOOR,
    GOAL_SQUARE,
    GREY,
    KEY,
    KILL_BUTTON,
    MAGIC_WALL,
    NORTH,
    NOTHING,
    RED,
    TERMINATED,
    WALL,
    YELLOW,
    Layout,
)
from empo_multigrid.learn import codec
from empo_multigrid.learn.channels import content_code
from empo_multigrid.learn.compact import Compactor, tensorize_state_from_compact
from empo_multigrid.learn.feature_layout import StateLayout
from empo_multigrid.learn.features import MultigridFeatures
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world, world_from_text

NAMES = sorted(p.stem for p in (Path(empo_multigrid.__file__).parent / "worlds").glob("*.yaml"))
PARTS = ("grid", "globals", "agents", "objects")
TINTED = (WALL, GOAL_SQUARE, FLOOR)
NO_KILLING = button(DISABLING_SWITCH, RED, KILL_BUTTON)
NO_CONTROL = button(DISABLING_SWITCH, RED, CONTROL_BUTTON)
AWAITING = CONTROL | {"word": 3 | 1 << 2}
RECORDED = CONTROL | {"word": 1 << 2 | 4 << 8}


def world_called(name: str) -> MultigridWorld:
    file = Path(empo_multigrid.__file__).parent / "worlds" / f"{name}.yaml"
    return load_world(MultigridParams.model_validate({"file": str(file)}))


def visited(world: MultigridWorld, steps: int = 40, count: int = 8) -> torch.Tensor:
    """Distinct states along some random walks."""
    generator = torch.Generator().manual_seed(1)
    states = world.initial_state().repeat(count, 1)
    seen = [states]
    for _ in range(steps):
        mask = world.available(states).double().flatten(0, 1)
        actions = torch.multinomial(mask, 1, generator=generator).view(count, -1)
        states = world.step(states, actions, generator)
        seen.append(states)
    return torch.unique(torch.cat(seen), dim=0)


def expected(layout: Layout, rows: torch.Tensor) -> Features:
    """Features of rows, computed by the readable reference."""
    lists = [row.tolist() for row in rows]
    objects = [reference.object_features(layout, row) for row in lists]
    return Features(
        torch.tensor([reference.picture(layout, row) for row in lists]),
        torch.tensor([reference.global_features(layout)]).repeat(len(lists), 1),
        torch.tensor([reference.agent_features(layout, row) for row in lists]),
        torch.tensor(objects).reshape(len(lists), -1, 14),
    )


def assert_same(actual: Features, expected: Features) -> None:
    for part in PARTS:
        left, right = getattr(actual, part), getattr(expected, part)
        assert left.dtype == torch.float32
        assert torch.equal(left, right), part


def drawn(picture: str, **keys: object) -> tuple[Layout, torch.Tensor]:
    world = World(picture, **keys)  # type: ignore[arg-type]
    return world.layout, torch.tensor([world.row])


def shown(layout: Layout, rows: torch.Tensor, cell: int) -> dict[str, float]:
    """Nonzero values in a cell of the first state's picture, by channel name."""
    values = MultigridFeatures(StateLayout(layout))(rows).grid[0].flatten(1)[:, cell].tolist()
    return {name: v for name, v in zip(reference.NAMES, values, strict=True) if v}


@st.composite
def tinted_worlds(draw: st.DrawFn) -> tuple[Layout, torch.Tensor]:
    """Crowded worlds in which terrain has all colours, too, and one or more of their rows."""
    layout, row, random = draw(rw.worlds())
    colours = rw.ints(random.randrange(len(COLOURS)) for _ in range(layout.num_cells))
    return layout._replace(terrain_colour=colours), torch.tensor([row])


class TestFeatures:
    @given(tinted_worlds())
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    def test_crowded_worlds_look_as_the_reference_says(
        self, world: tuple[Layout, torch.Tensor]
    ) -> None:
        layout, rows = world
        features = MultigridFeatures(StateLayout(layout))
        assert_same(features(rows), expected(layout, rows))

    @pytest.mark.parametrize("name", NAMES)
    def test_shipped_worlds_look_as_the_reference_says(self, name: str) -> None:
        world = world_called(name)
        states = visited(world)[::7][:12]
        assert_same(world.spec.featurizer(states), expected(world.layout, states))

    def test_the_shape_is_what_comes_back(self) -> None:
        world = world_called("household")
        features, shape = world.spec.featurizer, world.spec.featurizer.shape
        assert isinstance(features, Featurizer)
        found = features(world.initial_state()[None].repeat(3, 1))
        assert found.grid.shape == (3, shape.channels, shape.height, shape.width) == (3, 40, 9, 11)
        assert found.globals.shape == (3, shape.globals)
        assert found.agents.shape == (3, shape.agents, shape.agent_features) == (3, 4, 13)
        assert found.objects.shape == (3, shape.objects, shape.object_features) == (3, 6, 14)
        assert found.flat().shape == (3, shape.flat)

    def test_no_states_give_no_features(self) -> None:
        world = world_called("household")
        none = world.initial_state()[None][:0]
        assert len(world.spec.featurizer(none).flat()) == 0
        assert len(world.compact_features(world.compact(none)).flat()) == 0

    def test_the_dtype_of_rows_makes_no_difference(self) -> None:
        world = world_called("household")
        states = visited(world)
        assert_same(world.spec.featurizer(states), world.spec.featurizer(states.long()))

    def test_rows_of_another_length_are_refused(self) -> None:
        world = world_called("trivial")
        with pytest.raises(WorldError, match=r"have shape \[state, 9\], not \[1, 8\]"):
            world.spec.featurizer(world.initial_state()[None, :-1])
        with pytest.raises(WorldError, match=r"6 x 4 grid with 2 agents .* \[state, 30\]"):
            world.compact_features(world.compact(world.initial_state()[None])[:, 1:])

    def test_specs_of_one_file_are_equal_and_those_of_others_are_not(self) -> None:
        first, second = world_called("trivial").spec, world_called("trivial").spec
        assert first == second
        assert hash(first.features) == hash(second.features)
        assert first.features != world_called("two_room").spec.features
        assert first.features != "trivial"

    def test_a_goal_is_described_by_the_rectangle_around_its_cells(self) -> None:
        world = world_from_text(
            """
            map: |
              We We We We We
              We Ay .. Ae We
              We .. .. .. We
              We We We We We
            possible_goals: ["1,1", "2,1, 3,2", {cells: ["1,2", "3,2"]}, {cells: ["1,1, 3,2"]}]
            """
        )
        assert [goal.features for goal in world.spec.goals] == [
            (1, 1, 1, 1), (2, 1, 3, 2), (1, 2, 3, 2), (1, 1, 3, 2),
        ]  # fmt: skip


class TestPicture:
    def test_an_empty_cell_shows_nothing(self) -> None:
        assert shown(*drawn(">."), 1) == {}

    def test_walls_are_not_mistaken_for_nothing(self) -> None:
        assert shown(*drawn(">#"), 1) == {"wall": 1, "immobile": 1}

    @pytest.mark.parametrize(
        ("state", "sort"), [(0, "overlappable"), (1, "immobile"), (2, "immobile")]
    )
    @pytest.mark.parametrize("colour", range(len(COLOURS)))
    def test_doors_show_colour_and_state(self, state: int, sort: str, colour: int) -> None:
        found = shown(*drawn(">a", a=door(state, colour)), 1)
        assert found == {f"{COLOURS[colour]} door": 1 + state, sort: 1}

    def test_an_agent_hides_nothing_that_it_stands_on(self) -> None:
        here = shown(*drawn(">", colours=[YELLOW], under={0: door(0, BLUE)}), 0)
        assert here == {"yellow agent": 1, "blue door": 1, "overlappable": 1}

    def test_what_lies_on_terrain_hides_nothing(self) -> None:
        draft = rw.Draft(2, 1, agents=[rw.Agent(0)], terrain={1: GOAL_SQUARE})
        draft.items.append(rw.Item(KEY, 1, BLUE))
        layout, row = draft.build()
        found = shown(layout, torch.tensor([row]), 1)
        assert found == {"goal square": 1, "overlappable": 1, "blue key": 1, "mobile": 1}

    def test_carried_things_are_not_in_the_picture(self) -> None:
        layout, rows = drawn(">.", held={0: (KEY, RED)})
        assert shown(layout, rows, 0) == {"yellow agent": 1}
        assert MultigridFeatures(StateLayout(layout))(rows).agents[0, 0, 8:10].tolist() == [0, RED]

    def test_a_magic_wall_shows_its_side_until_it_is_solid(self) -> None:
        layout, rows = drawn(">a", a=wall(NORTH))
        assert shown(layout, rows, 1) == {"magic wall": 4, "immobile": 1}
        rows[0, -1] = 0
        assert shown(layout, rows, 1) == {"magic wall": 6, "immobile": 1}

    def test_a_trampled_bush_shows_nothing(self) -> None:
        layout, rows = drawn(">a", a=bush(0.5))
        assert shown(layout, rows, 1) == {"bush": 1, "immobile": 1}
        rows[0, -1] = 1
        assert shown(layout, rows, 1) == {}

    @pytest.mark.parametrize(
        ("content", "value"), [(None, 1), ((KEY, RED), 2), ((KEY, 6), 8), ((BALL, 6), 15)]
    )
    def test_a_box_shows_what_it_holds(self, content: tuple[int, int] | None, value: int) -> None:
        found = shown(*drawn(">X", content=content), 1)
        assert found == {"box": value, "mobile": 1}


class TestDescriptions:
    def test_an_agent_is_described_by_13_numbers(self) -> None:
        layout, rows = drawn(
            ".. .^", magic=[0], flags={0: TERMINATED}, forced={0: 4}, held={0: (BALL, BLUE)}
        )
        found = MultigridFeatures(StateLayout(layout))(rows).agents[0, 0].tolist()
        assert found == [1, 1, 0, 0, 0, 1, 1, 0, 1, BLUE, 0, 1, 4]

    @pytest.mark.parametrize(
        ("thing", "numbers"),
        [
            (KILL, [1, 0, 0, 0, 1, 0, 1, 0, YELLOW, GREY, -1, -1, -1, 0]),
            (PAUSE | {"word": 3}, [0, 1, 0, 0, 1, 0, 1, 1, YELLOW, GREY, -1, -1, -1, 0]),
            (PAUSE | {"word": 0}, [0, 1, 0, 0, 1, 0, 0, 0, YELLOW, GREY, -1, -1, -1, 0]),
            (NO_KILLING, [0, 0, 1, 0, 1, 0, 1, 0, RED, -1, 0, -1, -1, 0]),
            (NO_CONTROL, [0, 0, 1, 0, 1, 0, 1, 0, RED, -1, 2, -1, -1, 0]),
            (CONTROL, [0, 0, 0, 1, 1, 0, 1, 0, YELLOW, GREY, -1, -1, -1, 0]),
            (AWAITING, [0, 0, 0, 1, 1, 0, 1, 0, YELLOW, GREY, -1, 0, -1, 1]),
            (RECORDED, [0, 0, 0, 1, 1, 0, 0, 0, YELLOW, GREY, -1, 0, 3, 0]),
        ],
    )
    def test_a_button_is_described_by_14_numbers(self, thing: object, numbers: list[int]) -> None:
        layout, rows = drawn(">a", a=thing)
        assert MultigridFeatures(StateLayout(layout))(rows).objects[0].tolist() == [numbers]


class TestCompactRows:
    @given(tinted_worlds())
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    def test_decoding_what_was_encoded_is_direct_tensorisation(
        self, world: tuple[Layout, torch.Tensor]
    ) -> None:
        layout, rows = world
        compactor, direct = (
            Compactor(StateLayout(layout)),
            MultigridFeatures(StateLayout(layout))(rows),
        )
        assert_same(compactor.features(compactor(rows)), direct)
        grids, described = compactor.compress_grid(rows), compactor.tensorize_state_compact(rows)
        assert_same(tensorize_state_from_compact(grids, *described), direct)
        single = codec.decompress_grid_to_tensor(grids[0], "cpu")
        assert torch.equal(single, direct.grid)

    @given(tinted_worlds())
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    def test_a_cells_word_says_all_that_the_cell_holds(
        self, world: tuple[Layout, torch.Tensor]
    ) -> None:
        layout, rows = world
        words = Compactor(StateLayout(layout)).compress_grid(rows).flatten().tolist()
        scene = Scene.decode(layout, rows[0].tolist())
        assert [fields(word) for word in words] == [
            held(scene, cell) for cell in range(layout.num_cells)
        ]

    @given(tinted_worlds())
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    def test_a_row_ends_with_agents_chances_and_objects(
        self, world: tuple[Layout, torch.Tensor]
    ) -> None:
        layout, rows = world
        row, state = Compactor(StateLayout(layout))(rows)[0], rows[0].tolist()
        agents, chances, objects = row[layout.num_cells :].split(
            [layout.num_agents, 4, len(row) - layout.num_cells - layout.num_agents - 4]
        )
        for i, word in enumerate(agents.tolist()):
            cell, direction, flags, forced = state[4 * i : 4 * i + 4]
            assert word & 0x7FFFFF == cell | direction << 15 | flags << 17 | forced << 19
            assert word >> 29 == layout.can_enter_magic[i] + 2 * layout.can_push_rocks[i]
        assert chances.view(torch.float32).tolist() == pytest.approx(
            reference.global_features(layout), rel=1e-6
        )
        described = [f for f, kind in enumerate(layout.fixed_kind) if kind in reference.BUTTONS]
        position = [int(layout.fixed_word[f]) for f in described]
        assert [word >> 15 for word in objects.tolist()] == [
            state[p] if p >= 0 else 0 for p in position
        ]
        assert [word & 0x7FFF for word in objects.tolist()] == [
            layout.fixed_cell[f] for f in described
        ]

    @pytest.mark.parametrize("name", NAMES)
    def test_shipped_worlds_survive_compaction(self, name: str) -> None:
        world = world_called(name)
        states = visited(world)
        compact = world.compact(states)
        assert compact.dtype == torch.int32
        assert compact.shape == (len(states), world.compact_features.words)
        assert_same(world.compact_features(compact), world.spec.featurizer(states))
        assert world.compact_features.shape == world.spec.featurizer.shape

    @pytest.mark.parametrize("name", NAMES)
    def test_different_states_of_shipped_worlds_have_different_compact_rows(
        self, name: str
    ) -> None:
        world = world_called(name)
        states = visited(world)
        same = torch.unique(world.compact(states), dim=0)
        assert len(same) == len(states)

    def test_seven_by_seven_with_two_agents_takes_at_most_508_bytes(self) -> None:
        world = world_from_text(FULL_7_BY_7)
        assert (world.layout.num_agents, len(world.layout.fixed_kind)) == (2, 16)
        compact = world.compact(world.initial_state()[None])
        assert compact.nbytes <= 508
        assert compact.nbytes == 4 * (49 + 2 + 4 + 16)
        assert world.spec.featurizer.shape.flat * 4 > 7644

    def test_rows_of_layouts_of_one_size_can_be_mixed(self) -> None:
        first = world_from_text(SEVEN_BY_SEVEN)
        second = world_from_text(ANOTHER_7_BY_7)
        assert first.compact_features == second.compact_features
        both = [(world, visited(world)) for world in (first, second)]
        rows = torch.cat([world.compact(states) for world, states in both])
        wanted = torch.cat([world.spec.featurizer(states).flat() for world, states in both])
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        assert torch.equal(first.compact_features(rows[order]).flat(), wanted[order])

    def test_words_that_mean_nothing_show_nothing(self) -> None:
        nonsense = torch.arange(1 << codec.ITEM_AT, dtype=torch.int32).view(-1, 64, 64)
        pictures = codec.decompress_grid_batch_to_tensor(nonsense)
        assert bool(pictures.isfinite().all())
        kinds = nonsense.flatten() & 15
        assert not pictures[0].flatten(1)[:, kinds > codec.FIRST_FIXED + CONTROL_BUTTON].any()

    def test_malformed_states_are_refused(self) -> None:
        world = world_called("trivial")
        with pytest.raises(WorldError, match="agent 0 outside"):
            world.compact(world.initial_state()[None] + 50)


def assert_updates_equal(features: MultigridFeatures, states: torch.Tensor) -> None:
    """Going from each state to one of the others gives what the plain features of that are."""
    order = torch.randperm(len(states), generator=torch.Generator().manual_seed(0))
    after = states[order].contiguous()
    wanted = features(after).flat()
    out = torch.full((len(states), 2, wanted.shape[1] + 3), 7.0)
    out[:, :, :-3] = features(states).flat()[:, None]
    features.update(out.numpy(), states, after)
    assert torch.equal(out[:, :, :-3], wanted[:, None].expand(-1, 2, -1))
    assert bool((out[:, :, -3:] == 7.0).all())


@pytest.mark.parametrize("name", NAMES)
def test_updated_features_of_shipped_worlds_are_the_plain_ones(name: str) -> None:
    world = world_called(name)
    features = world.spec.featurizer
    assert isinstance(features, MultigridFeatures)
    assert features.can_update
    assert_updates_equal(features, visited(world))


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(world=rw.worlds())
def test_updated_features_are_the_plain_ones_whatever_changes(world: rw.World) -> None:
    layout, row, random = world
    rows = [row]
    for _ in range(8):
        found = transition(layout, rows[-1], rw.random_actions(random, layout, rows[-1]))
        rows.append(random.choice(found)[1] if found else row)
    states = torch.tensor(rows, dtype=torch.int16)
    assert_updates_equal(MultigridFeatures(StateLayout(layout)), states)


FULL_7_BY_7 = """
map: |
  We We We We We We We
  We Ay Ae .. .. .. We
  We Kb Kb Kb Kb Ro We
  We Ps Ps Ps Ps Bl We
  We Dk Dp DC Dk Kr We
  We CB CB CB CB Xb We
  We We We We We We We
goal_coverage: partial
possible_goals: ["1,1"]
"""

SEVEN_BY_SEVEN = """
map: |
  We We We We We We We
  We Ay .. Kr Ro .. We
  We .. Lr .. .. Kb We
  We Un .. Bl Gb .. We
  We .. .. Ma .. Ae We
  We .. Ro .. Bu CB We
  We We We We We We We
goal_coverage: partial
possible_goals: ["1,1"]
"""

ANOTHER_7_BY_7 = """
map: |
  We We We We We We We
  We Ar .. .. .. Xb We
  We .. Un .. Dk .. We
  We .. .. .. .. .. We
  We .. .. Me .. .. We
  We .. Ay .. .. Kb We
  We We We We We We We
goal_coverage: partial
possible_goals: ["1,1"]
"""


def fields(word: int) -> dict[str, int]:
    """The fields of a cell's word, as the table of ``codec`` has them."""
    widths = {
        "ground": 4, "colour": 3, "condition": 2, "aspect": 3,
        "item": 3, "item colour": 3, "content": 4, "agent": 3, "rest": 7,
    }  # fmt: skip
    found = {}
    for name, width in widths.items():
        found[name], word = word & (1 << width) - 1, word >> width
    return {name: value for name, value in found.items() if value}


def held(scene: Scene, cell: int) -> dict[str, int]:
    """Expected fields of a cell's word, from the layout and the decoded row."""
    layout = scene.layout
    f, kind = scene.fixed_at(cell)
    terrain = int(layout.terrain[cell])
    found = {"ground": terrain, "colour": int(layout.terrain_colour[cell])}
    if terrain not in TINTED:
        found["colour"] = 0
    if f is not None:
        control = scene.controls.get(f)
        word = scene.words.get(f, 0) if control is None else control.enabled + 2 * control.awaiting
        aspect = layout.fixed_side[f] if kind == MAGIC_WALL else max(layout.fixed_target[f], 0)
        found = {"ground": FLOOR + 1 + kind, "colour": max(int(layout.fixed_colour[f]), 0)}
        found |= {"condition": word, "aspect": int(aspect)}
    item = scene.item_at(cell)
    if item is not None:
        found |= {"item": 1 + item.kind, "item colour": item.colour}
        if item.kind == BOX:
            inside = reference.content(layout, scene.items.index(item)) or (NOTHING, NOTHING)
            found["content"] = content_code(*inside)
    agent = scene.agent_at(cell)
    if agent is not None:
        found["agent"] = 1 + int(layout.agent_colour[agent])
    return {name: int(value) for name, value in found.items() if value}


ELSEWHERE = """
import sys

FORBIDDEN = ["world", "compiler", "kernel", "effects", "worldfile"]
for name in FORBIDDEN:
    sys.modules["empo_multigrid." + name] = None  # Importing it fails.

import cloudpickle

spec, compact_features, states, compact = cloudpickle.load(sys.stdin.buffer)
found = spec.featurizer(states), compact_features(compact)
assert not any(sys.modules.get("empo_multigrid." + name) for name in FORBIDDEN)
assert "numba" not in sys.modules
cloudpickle.dump(found, sys.stdout.buffer)
"""


def test_a_process_without_a_world_reads_the_same() -> None:
    world = world_called("household")
    states = visited(world)
    compact = world.compact(states)
    sent = cloudpickle.dumps((world.spec, world.compact_features, states, compact))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    direct, decoded = cloudpickle.loads(done.stdout)
    assert_same(direct, world.spec.featurizer(states))
    assert_same(decoded, direct)


def test_features_that_were_used_on_a_device_travel_without_its_tensors() -> None:
    world = world_called("household")
    unused = len(cloudpickle.dumps(world_called("household").spec.features))
    world.spec.featurizer(world.initial_state()[None])
    assert len(cloudpickle.dumps(world.spec.features)) == unused
    copy = cloudpickle.loads(cloudpickle.dumps(world.spec.features))
    assert copy == world.spec.features


def test_everything_is_computed_on_the_device_of_the_states() -> None:
    # "meta" tensors have no numbers, but refuse to be mixed with those of another device.
    world = world_called("household")
    states = visited(world)[:5]
    compactor = Compactor(StateLayout(world.layout))
    compact = compactor(states.to("meta"))
    grids = compactor.compress_grid(states)
    for found, wanted in (
        (world.spec.featurizer(states.to("meta")).flat(), world.spec.featurizer(states).flat()),
        (compact, world.compact(states)),
        (world.compact_features(compact).flat(), world.spec.featurizer(states).flat()),
        (codec.decompress_grid_batch_to_tensor(grids, "meta"), world.spec.featurizer(states).grid),
    ):
        assert found.device.type == "meta"
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
