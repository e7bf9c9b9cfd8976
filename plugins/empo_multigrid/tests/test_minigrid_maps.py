"""Maps of MiniGrid as worlds, in which the human moves as MiniGrid's agent does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config.yaml import parse_yaml
from empo_core.errors import ConfigError
from empo_multigrid import layout as codes
from empo_multigrid.show.scene import scene
from empo_multigrid.world import MultigridWorld, world_from_text

pytest.importorskip("minigrid")

from minigrid.core import world_object
from minigrid.core.grid import Grid

from empo_multigrid.file.minigrid import from_minigrid

ACTIONS = 10_000
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = 0, 1, 2, 3, 4, 5
STILL = 0
"""Our action ahead of those that both have in one order."""
MAPS: dict[str, list[tuple[str, int]]] = {
    "DoorKey-5x5": [("key", PICKUP), ("nothing", DROP), ("door", TOGGLE), ("door", FORWARD)],
    "FourRooms": [],
    "LavaGapS5": [("lava", FORWARD), ("goal", FORWARD)],
    "KeyCorridorS3R1": [("ball", PICKUP), ("door", TOGGLE), ("door", FORWARD)],
    "ObstructedMaze-1Dlhb": [("box", PICKUP), ("box", TOGGLE), ("key", PICKUP)],
    "BlockedUnlockPickup": [("ball", PICKUP), ("nothing", DROP)],
    "Fetch-6x6-N2": [("key", PICKUP), ("ball", PICKUP)],
    "RedBlueDoors-6x6": [("door", TOGGLE), ("door", FORWARD)],
}
"""Maps, and what has to have had an effect on them: something in front, and an action."""
QUICK = {"FourRooms", "LavaGapS5", "KeyCorridorS3R1"}
ITEMS = {codes.KEY: "key", codes.BALL: "ball", codes.BOX: "box"}
DOOR_STATES = {codes.DOOR_OPEN: 0, codes.DOOR_CLOSED: 1, codes.DOOR_LOCKED: 2}

Env = gymnasium.Env[Any, Any]


def made(name: str, seed: int = 0) -> Env:
    env = gymnasium.make(f"MiniGrid-{name}-v0", max_steps=10**6, disable_env_checker=True)
    env.reset(seed=seed)
    return env


def theirs(env: Env) -> dict[Any, Any]:
    """Where what is in MiniGrid, as far as it may change."""
    inner: Any = env.unwrapped
    held = inner.carrying
    found: dict[Any, Any] = {
        "agent": (*map(int, inner.agent_pos), int(inner.agent_dir)),
        "held": None if held is None else (held.type, held.color),
    }
    for x in range(inner.width):
        for y in range(inner.height):
            thing = inner.grid.get(x, y)
            if isinstance(thing, world_object.Door):
                found[x, y] = ("door", thing.encode()[2])
            elif isinstance(thing, world_object.Key | world_object.Ball | world_object.Box):
                found[x, y] = (thing.type, thing.color)
    return found


def ours(world: MultigridWorld, row: torch.Tensor) -> dict[Any, Any]:
    """The same in a world."""
    layout, now = world.layout, scene(world.layout, row.numpy())
    (human,) = now.agents

    def place(cell: int) -> tuple[int, int]:
        return cell % layout.width, cell // layout.width

    def thing(item: Any) -> tuple[str, str]:
        return ITEMS[item.kind], codes.COLOURS[item.colour]

    held = None if human.carrying is None else thing(human.carrying)
    found: dict[Any, Any] = {"agent": (*place(human.cell), human.direction), "held": held}
    found |= {place(cell): thing(item) for cell, item in now.loose.items()}
    for cell, item in now.fixed.items():
        found[place(cell)] = ("door", DOOR_STATES[item.word])
    return found


def may_differ(env: Env, action: int) -> bool:
    """The one difference that is not about ends: in MiniGrid tiles, goals and lava hold nothing."""
    inner: Any = env.unwrapped
    tiles = world_object.Goal | world_object.Floor | world_object.Lava
    return (
        action == DROP
        and inner.carrying is not None
        and isinstance(inner.grid.get(*inner.front_pos), tiles)
    )


def played(name: str, seed: int, actions: int) -> set[tuple[str, int]]:
    """What was in front of the human when an action had an effect; fails where the laws differ."""
    env = made(name, seed)
    world = world_from_text(from_minigrid(env))
    start = row = world.initial_state()
    generator = torch.Generator().manual_seed(seed)
    before, effects = theirs(env), set()
    assert ours(world, row) == before
    rng = np.random.default_rng(seed)
    for action in rng.choice(
        [LEFT, RIGHT, FORWARD, FORWARD, PICKUP, DROP, TOGGLE], actions
    ).tolist():
        if may_differ(env, action):
            continue
        inner: Any = env.unwrapped
        ahead = inner.grid.get(*inner.front_pos)
        env.step(action)
        if action + STILL + 1 < len(world.spec.agents[0].actions):  # Else it is of no use there.
            row = world.step(row[None], torch.tensor([[action + STILL + 1]]), generator)[0]
        after = theirs(env)
        assert ours(world, row) == after, (action, before)
        if after != before:
            effects.add(("nothing" if ahead is None else ahead.type, action))
        before = after
        if action == FORWARD and isinstance(ahead, world_object.Lava):
            assert scene(world.layout, row.numpy()).agents[0].terminated
            env.reset(seed=seed)
            row, before = start, theirs(env)
    return effects


@pytest.mark.filterwarnings("ignore:.*has no robot")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MAPS],
)
def test_a_human_alone_moves_as_in_minigrid(name: str) -> None:
    effects = set().union(*(played(name, seed, ACTIONS // len(MAPS) // 4) for seed in range(4)))
    assert effects >= {("nothing", FORWARD), *MAPS[name]}


def emptied(width: int = 5, height: int = 3) -> Any:
    """A room with the agent in its first cell, facing east, and nothing else."""
    env: Any = gymnasium.make("MiniGrid-Empty-5x5-v0", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    env.width, env.height, env.grid = width, height, Grid(width, height)
    env.grid.wall_rect(0, 0, width, height)
    env.agent_pos, env.agent_dir = (1, 1), 0
    return env


def test_everything_has_its_code_and_the_agent_its_heading() -> None:
    env = emptied(9, 4)
    things = [
        world_object.Key("blue"),
        world_object.Ball("red"),
        world_object.Box("grey", world_object.Key("purple")),
        world_object.Door("green", is_locked=True),
        world_object.Door("yellow"),
        world_object.Door("red", is_open=True),
    ]
    for x, thing in enumerate(things, 2):
        env.grid.set(x, 1, thing)
    env.grid.set(1, 2, world_object.Lava())
    env.grid.set(2, 2, world_object.Floor("blue"))
    env.grid.set(3, 2, world_object.Goal())
    env.grid.set(4, 2, world_object.Wall("red"))
    env.agent_dir = 3
    text = from_minigrid(env, robot=(7, 2))
    data: Any = parse_yaml(text, name="world").data
    assert data["map"].splitlines()[1:3] == [
        "We Ay KB Br Xe Lg Cy Or We",
        "We La Fb Gg Wr .. .. Ae We",
    ]
    assert data["orientations"] == ["n", "e"]
    assert data["objects"] == {"4,1": {"contains": "Kp"}}
    first, elsewhere = data["possible_goals"]
    assert first == {"cells": "3,2", "name": "goal"}
    assert {"1,1", "5,1", "1,2", "2,2"} < set(elsewhere["cells"])
    assert not {"3,2", "4,2"} & set(elsewhere["cells"])
    world = world_from_text(text)
    assert [agent.role for agent in world.spec.agents] == ["human", "robot"]


@pytest.mark.filterwarnings("ignore:.*has no robot")
def test_a_map_without_goal_squares_has_every_cell_as_a_goal() -> None:
    world = world_from_text(from_minigrid(emptied(), robot=(3, 1)))
    assert [goal.name for goal in world.spec.goals] == ["(1,1)", "(2,1)", "(3,1)"]


class Trap(world_object.Ball):
    """A ball that is none of MiniGrid's own."""


def test_what_has_no_counterpart_is_refused_by_name_and_cell() -> None:
    env = emptied()
    env.grid.set(3, 1, Trap("red"))
    with pytest.raises(ConfigError, match=r"a Trap \(red ball\) in cell \(3,1\)"):
        from_minigrid(env)
    env.grid.set(3, 1, world_object.Box("red", world_object.Box("blue")))
    with pytest.raises(ConfigError, match=r"\(3,1\) .*Box \(blue box\)"):
        from_minigrid(env)
    env.grid.set(3, 1, None)
    env.grid.set(1, 1, world_object.Goal())
    with pytest.raises(ConfigError, match=r"\(1,1\).* Gg"):
        from_minigrid(env)
    env.grid.set(1, 1, None)
    env.carrying = world_object.Key("red")
    with pytest.raises(ConfigError, match=r"red key"):
        from_minigrid(env)
    with pytest.raises(ConfigError, match="no environment"):
        from_minigrid(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        ((1, 1), r"robot .*\(1,1\).* Ay"),
        ((0, 0), r"robot .*\(0,0\).* We"),
        ((5, 1), r"robot: 5,1 .*5 x 3"),
    ],
)
def test_a_robot_needs_an_empty_cell(robot: tuple[int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_minigrid(emptied(), robot=robot)


@pytest.mark.parametrize("tile", [world_object.Goal(), world_object.Floor(), world_object.Lava()])
def test_only_here_things_are_dropped_on_tiles(tile: Any) -> None:
    env = emptied()
    env.grid.set(2, 1, world_object.Key("red"))
    env.grid.set(1, 2, tile)
    env.grid.set(0, 2, world_object.Wall())
    world = world_from_text(from_minigrid(env, robot=(3, 1)))
    row = world.initial_state()
    for action in (PICKUP, RIGHT, DROP):
        env.step(action)
        row = world.step(row[None], torch.tensor([[action + STILL + 1, 0]]), torch.Generator())[0]
    assert env.carrying is not None
    now = scene(world.layout, row.numpy())
    assert (now.agents[0].carrying, [*now.loose]) == (None, [2 * 5 + 1])


@pytest.mark.filterwarnings("ignore:.*has no robot")
def test_a_goal_does_not_end_the_episode() -> None:
    env = emptied()
    env.grid.set(2, 1, world_object.Goal())
    world = world_from_text(from_minigrid(env, robot=(3, 1)))
    assert env.step(FORWARD)[2]
    row = world.step(world.initial_state()[None], torch.tensor([[3, 0]]), torch.Generator())[0]
    human = scene(world.layout, row.numpy()).agents[0]
    assert (human.cell, human.terminated) == (5 + 2, False)


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["from-minigrid", *words])
    return done.exit_code, done.stdout + done.stderr


def test_the_command_writes_a_world_that_depends_on_the_seed(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.yaml" for number in range(3)]
    for file, seed in zip(files, "112", strict=True):
        code, text = said(
            "MiniGrid-DoorKey-6x6-v0", "-o", str(file), "--seed", seed, "--robot", "1,2"
        )
        assert code == 0, text
    first, same, other = (file.read_text() for file in files)
    assert first == same != other
    assert "  We Ae We .. .. We\n" in first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("MiniGrid-Nowhere-v0",), "'MiniGrid-Nowhere-v0' is no environment of MiniGrid"),
        (("CartPole-v1",), "'CartPole-v1' is no environment of MiniGrid"),
        (("MiniGrid-Empty-5x5-v0", "--robot", "left"), "--robot left: write a cell as X,Y"),
        (("MiniGrid-Empty-5x5-v0", "--robot", "0,0"), "cannot start in cell (0,0)"),
    ],
)
def test_the_command_refuses_what_is_not_there(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    code, text = said(*words, "-o", str(tmp_path / "world.yaml"))
    assert (code, message in " ".join(text.split())) == (2, True), text
    assert not (tmp_path / "world.yaml").exists()
