"""Every world of the library loads by its name, can be stepped, and shows what it is for."""

import json
from pathlib import Path

import pytest
import torch

import empo_multigrid
from empo_core.config import WorldModelRef, installed
from empo_core.errors import ConfigError
from empo_multigrid.file.mapcodes import all_codes, decode, pairs
from empo_multigrid.file.worldfile import WorldFile, read_world_file, schema_text
from empo_multigrid.layout import (
    AGENT_WORDS,
    CELL,
    DIRECTION,
    FLAGS,
    FORCED,
    WALL,
)
from empo_multigrid.world import MultigridWorld
from empo_worlds.grid.maps import tokens

FOLDER = Path(empo_multigrid.__file__).parent / "worlds"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> MultigridWorld:
    reference = WorldModelRef.model_validate(f"multigrid/{name}")
    world = installed().get("world_model", reference.name).load()(reference.params)
    assert isinstance(world, MultigridWorld)
    return world


def act(world: MultigridWorld, plan: list[dict[int, str]]) -> torch.Tensor:
    """The state after some steps that leave nothing to chance; agents not named are still."""
    state = world.initial_state()
    names = world.spec.agents[0].actions
    for step in plan:
        actions = [names.index(step.get(agent, "still")) for agent in range(len(world.spec.agents))]
        successors = world.transitions(state[None], torch.tensor([actions]))
        assert successors.prob.tolist() == [1.0]
        state = successors.states[0]
    return state


def test_the_library_has_at_least_25_worlds() -> None:
    assert len(NAMES) >= 25
    titles = [load(name).spec.name for name in NAMES]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", NAMES)
def test_a_world_says_what_it_is_and_has_goals(name: str) -> None:
    file, document = read_world_file(FOLDER / f"{name}.yaml")
    assert document.text.startswith("# yaml-language-server: $schema=../world.schema.json\n")
    assert {"name", "description"} <= set(file.metadata or {})
    assert "max_steps" in file.model_fields_set
    world = load(name)
    assert world.spec.horizon == file.max_steps
    assert world.spec.humans
    assert all(world.spec.goals_of(human) for human in world.spec.humans)


@pytest.mark.parametrize("name", NAMES)
def test_the_initial_row_of_a_world_is_valid(name: str) -> None:
    world = load(name)
    layout, row = world.layout, world.initial_state().tolist()
    assert len(row) == world.spec.state_words == layout.state_words
    for agent in range(layout.num_agents):
        words = row[AGENT_WORDS * agent : AGENT_WORDS * (agent + 1)]
        assert layout.terrain[words[CELL]] != WALL
        assert layout.fixed_at[words[CELL]] == -1
        assert words[DIRECTION] in range(4)
        assert words[FLAGS] in range(4)
        assert words[FORCED] == 0
    places = row[layout.first_item_word :][: layout.num_items]
    groups = list(zip(layout.item_group.tolist(), places, strict=True))
    assert groups == sorted(groups)
    assert layout.goal_cells.any(1).all()


@pytest.mark.parametrize("name", NAMES)
def test_thirty_random_steps_stay_among_the_successors(name: str) -> None:
    world = load(name)
    generator = torch.Generator().manual_seed(5)
    state = world.initial_state()[None]
    for _ in range(30):
        mask = world.available(state)[0]
        actions = torch.multinomial(mask.double(), 1, generator=generator).T
        successors = world.transitions(state, actions)
        assert successors.offsets.tolist() == [0, len(successors.prob)]
        assert abs(float(successors.prob.sum()) - 1) < 1e-12
        assert (successors.prob > 0).all()
        state = world.step(state, actions, generator)
        assert (successors.states == state).all(1).any()
        assert world.describe(state[0])


def test_the_library_shows_every_code_but_for_colours() -> None:
    def shown(code: str) -> tuple[object, ...]:
        meaning = decode(code)
        return meaning.layer, meaning.kind, meaning.target, meaning.side, meaning.word

    used = set()
    for name in NAMES:
        file, _ = read_world_file(FOLDER / f"{name}.yaml")
        used |= {shown(token.text) for row in tokens(file.map, pairs) for token in row}
    assert used == {shown(code) for code in all_codes()}


def test_the_library_shows_every_key_that_shapes_a_world() -> None:
    used = set()
    for name in NAMES:
        file, _ = read_world_file(FOLDER / f"{name}.yaml")
        used |= file.model_fields_set
    unused = {"seed", "partial_obs", "agent_view_size", "see_through_walls", "rocks_can_kill"}
    given_by_the_map = {"grid_size", "width", "height"}
    assert used | unused | given_by_the_map | {"robots"} == set(WorldFile.model_fields)


def test_an_unknown_world_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"'trival'.*trivial"):
        load("trival")


def test_the_robot_can_free_the_human() -> None:
    world = load("free_the_human")
    human = ["still", "still", "forward", "right", "forward", "forward"]
    robot = ["forward", "forward", "forward", "right", "forward", "still"]
    state = act(world, [{0: r, 1: h} for h, r in zip(human, robot, strict=True)])
    assert world.positions(state[None])[0].tolist() == [[4, 2], [4, 1]]
    assert world.spec.horizon is not None
    assert len(human) <= world.spec.horizon
    alone = act(world, [{1: action} for action in human])
    assert world.positions(alone[None])[0, 1].tolist() == [2, 2]


def test_the_robot_can_fetch_the_key_open_the_door_and_step_aside() -> None:
    world = load("key_and_door")
    fetch = ["forward", "right", "pickup", "right", "forward", "toggle", "left", "forward"]
    human = ["forward", "forward", "forward"]
    state = act(world, [*({1: a} for a in fetch), *({0: a} for a in human)])
    assert world.positions(state[None])[0].tolist() == [[4, 1], [3, 2]]
    assert world.spec.horizon is not None
    assert len(fetch) + len(human) <= world.spec.horizon
    assert not world.achieved(world.initial_state()[None])[0, 3]
    assert world.achieved(state[None])[0, 3]


def test_the_door_stays_shut_without_the_key() -> None:
    world = load("key_and_door")
    plan = ["right", "right", "toggle"]
    state = act(world, [{1: a} for a in plan])
    human = act(world, [*({1: a} for a in plan), {0: "toggle"}, {0: "forward"}])
    assert world.positions(human[None])[0, 0].tolist() == [1, 1]
    assert "locked" in world.describe(state)


def test_the_human_can_make_the_robot_act_with_a_programmed_button() -> None:
    world = load("programmed_button")
    state = act(world, [{0: "toggle"}, {1: "left"}])
    assert world.positions(state[None])[0, 1].tolist() == [3, 2]


def test_action_rules_take_actions_away_where_they_say() -> None:
    world = load("quiet_zone")
    state = world.initial_state()
    names = world.spec.agents[1].actions
    state[AGENT_WORDS + CELL] = world.layout.width * 1 + 3
    robot = dict(zip(names, world.available(state[None])[0, 1].tolist(), strict=True))
    assert [name for name, has in robot.items() if not has] == ["still"]
    assert world.available(world.initial_state()[None]).all()


def test_the_schema_for_editors_is_up_to_date() -> None:
    text = (FOLDER.parent / "world.schema.json").read_text()
    command = "from empo_multigrid.file.worldfile import schema_text; print(schema_text(), end='')"
    assert text == schema_text(), f'run: python -c "{command}" > world.schema.json'
    assert set(json.loads(text)["properties"]) == set(WorldFile.model_fields)


def test_a_world_file_that_is_missing_is_a_located_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml:1:1:"):
        read_world_file(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("name", "steps", "states", "terminal", "edges"),
    [
        ("trivial", 2, 45, 32, 138),
        ("trivial", 3, 92, 47, 453),
        ("trivial", 5, 243, 87, 1572),
        ("trivial", 10, 1115, 223, 9117),
        ("tiny_test", 3, 31, 17, 52),
        ("simple_circle", 3, 165, 99, 760),
        ("simple_circle", 5, 692, 326, 4224),
        ("small_trolley", 3, 220, 112, 3141),
        ("deactivate_destroy", 3, 70, 40, 333),
        ("deactivate_destroy", 4, 174, 104, 826),
        ("asymmetric_freeing_simple", 3, 300, 176, 3942),
        ("two_room", 3, 86, 45, 428),
        ("two_room", 5, 280, 117, 1759),
    ],
)
def test_unrolled_sizes_are_those_of_the_public_implementation(
    name: str, steps: int, states: int, terminal: int, edges: int
) -> None:
    world = load(name)
    layer = world.initial_state()[None]
    num_states, num_edges = 1, 0
    for _ in range(steps):
        successors = world.transitions(layer)
        source = successors.segments.index // world.spec.num_joint_actions
        layer, target = torch.unique(successors.states, dim=0, return_inverse=True)
        num_states += len(layer)
        num_edges += len(torch.unique(source * len(layer) + target))
    assert (num_states, len(layer), num_edges) == (states, terminal, edges)
