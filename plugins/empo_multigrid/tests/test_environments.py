import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from empo_core.errors import WorldError
from empo_multigrid.gym.environments import MultigridEnv, MultigridParallelEnv
from empo_multigrid.layout import AGENT_WORDS, CELL
from empo_multigrid.world import MultigridWorld, world_from_text

ID = "empo_multigrid:Empo/Multigrid-v0"
PAIR = """
map: 'Ae .. .. Ay'
orientations: [e, w]
max_steps: 6
possible_goals: ["0,0, 1,0", "2,0", {cells: "3,0", name: start}]
"""
LAVA = "map: 'Ae La .. Ay'\norientations: [e, e]\nmax_steps: 5"
STILL, LEFT, RIGHT, FORWARD = range(4)


def always(action: int):  # noqa: ANN201
    def policy(world: MultigridWorld, agent: int, row: torch.Tensor, left: int) -> list[float]:
        return [float(index == action) for index in range(len(world.spec.agents[agent].actions))]

    return policy


def cells(observation: np.ndarray) -> list[int]:
    return observation[CELL::AGENT_WORDS][:2].tolist()


@pytest.mark.parametrize("name", ["free_the_human", "key_and_door", "lava_bridge", "quiet_zone"])
def test_gymnasiums_own_checker_accepts_it(name: str) -> None:
    check_env(gymnasium.make(ID, world=name).unwrapped)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["gymnasium", pytest.param("empo_multigrid.world", marks=pytest.mark.slow)]
)
def test_gymnasium_makes_it_whatever_was_imported_before(first: str) -> None:
    code = f"import {first}, gymnasium; gymnasium.make({ID!r}, world='trivial').reset()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", ["free_the_human", "key_and_door", "lava_bridge", "unsteady_room"])
def test_pettingzoos_own_checkers_accept_it(name: str) -> None:
    parallel_api_test(MultigridParallelEnv(name), num_cycles=100)
    parallel_seed_test(lambda: MultigridParallelEnv(name), num_cycles=20)


@pytest.mark.parametrize(("mode", "kind"), [("rgb_array", np.ndarray), ("ansi", str)])
def test_the_parallel_game_is_drawn_without_a_window(mode: str, kind: type) -> None:
    # PettingZoo's render_test insists on a mode that opens a window.
    env = MultigridParallelEnv("lava_bridge", render_mode=mode)
    env.reset(seed=0)
    before = env.render()
    assert isinstance(before, kind)
    env.step(dict.fromkeys(env.agents, LEFT))
    assert np.any(np.asarray(env.render() != before))


def test_steps_return_five_things_of_the_right_kind() -> None:
    env = MultigridEnv(world_from_text(PAIR))
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert info["action_mask"].tolist() == [1, 1, 1, 1]
    observation, reward, terminated, truncated, info = env.step(FORWARD)
    assert env.observation_space.contains(observation)
    assert (reward, terminated, truncated, info["steps_left"]) == (0.0, False, False, 5)


def test_every_row_of_an_episode_lies_in_the_observation_space() -> None:
    for name in ("household", "control_button", "boxes", "pause_switch", "magic_walls"):
        env = MultigridEnv(name, max_steps=200)
        observation, info = env.reset(seed=1)
        over = False
        while not over:
            assert env.observation_space.contains(observation)
            action = env.action_space.sample(info["action_mask"])
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated


def test_the_first_robot_acts_unless_another_agent_is_named() -> None:
    world = world_from_text(PAIR)
    assert MultigridEnv(world).agent == 0
    human = MultigridEnv(world, agent=1, others=always(STILL))
    human.reset(seed=0)
    assert cells(human.step(FORWARD)[0]) == [0, 2]


def test_others_act_as_their_function_says() -> None:
    env = MultigridEnv(world_from_text(PAIR), others=always(FORWARD))
    env.reset(seed=0)
    assert cells(env.step(STILL)[0]) == [0, 2]
    assert cells(env.step(STILL)[0]) == [0, 1]


def test_others_act_at_random_by_default() -> None:
    env = MultigridEnv(world_from_text(PAIR))
    seen = set()
    for seed in range(40):
        env.reset(seed=seed)
        seen.add(tuple(env.step(STILL)[0].tolist()))
    assert len(seen) == 4


def test_a_human_prior_moves_the_humans_towards_goals_drawn_by_weight() -> None:
    class Walker:
        """For goal 0 forward, for the others still."""

        def policy(self, states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
            policy = torch.zeros(len(states), 3, 4, dtype=torch.float64)
            policy[:, 0, FORWARD] = 1
            policy[:, 1:, STILL] = 1
            return policy

    text = PAIR.replace('"0,0, 1,0"', '{cells: "0,0, 1,0", weight: 3}').replace(
        '"2,0"', '{cells: "2,0", weight: 0}'
    )
    world = world_from_text(text.replace("name: start", "name: start, weight: 1"))
    env = MultigridEnv(world, others=Walker())
    moved = []
    for seed in range(200):
        env.reset(seed=seed)
        places = [cells(env.step(STILL)[0])[1] for _ in range(2)]
        assert places in ([2, 1], [3, 3])  # One goal throughout an episode.
        moved.append(places[0] == 2)
    assert 0.65 < np.mean(moved) < 0.85


def test_a_seed_decides_everything_and_global_generators_are_left_alone() -> None:
    def episode(env: MultigridEnv, seed: int | None) -> list[tuple[int, ...]]:
        env.reset(seed=seed)
        return [tuple(env.step(STILL)[0].tolist()) for _ in range(6)]

    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    env, other = MultigridEnv(world_from_text(PAIR)), MultigridEnv(world_from_text(PAIR))
    first, second = episode(env, 7), episode(env, None)
    assert [first, second] == [episode(other, 7), episode(other, None)]
    assert first != episode(env, 8)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_outcomes_have_the_worlds_probabilities() -> None:
    # Unsteady ground: straight on with probability 1 - s, to either side with s / 2 each.
    world = world_from_text("map: '.. .. ..\n\n Ae Un ..\n\n .. .. ..'\nstumble_probability: 0.4")
    env = MultigridEnv(world)
    env.reset(seed=0)
    start = (1, tuple(env.step(FORWARD)[0].tolist()))
    places = []
    for _ in range(1000):
        env.set_state(start)
        places.append(int(env.step(FORWARD)[0][CELL]))
    shares = [places.count(cell) / 1000 for cell in (1, 5, 7)]
    # Three standard deviations of a share of 1000 draws are below 0.05.
    np.testing.assert_allclose(shares, [0.2, 0.6, 0.2], atol=0.05)


def test_the_horizon_truncates() -> None:
    env = MultigridEnv(world_from_text(PAIR), max_steps=None)
    env.reset(seed=0)
    ends = [env.step(STILL)[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]


def test_an_agent_that_walks_into_lava_is_terminated() -> None:
    env = MultigridEnv(world_from_text(LAVA))
    env.reset(seed=0)
    assert env.step(FORWARD)[2:4] == (True, False)


def test_a_goal_pays_once_and_ends_the_episode() -> None:
    env = MultigridEnv(world_from_text(PAIR), agent=1, goal="(0,0)-(1,0)", others=always(STILL))
    env.reset(seed=0)
    assert env.step(FORWARD)[1:4] == (0.0, False, False)
    assert env.step(FORWARD)[1:4] == (1.0, True, False)


def test_an_episode_goes_on_from_a_saved_state() -> None:
    env = MultigridEnv(world_from_text(PAIR), others=always(FORWARD))
    env.reset(seed=0)
    env.step(FORWARD)
    state = env.get_state()
    assert state[0] == 1
    after = env.step(RIGHT)[0]
    env.set_state(state)
    np.testing.assert_array_equal(env.step(RIGHT)[0], after)
    observation, info = env.reset(options={"state": state})
    assert tuple(observation.tolist()) == state[1]
    assert info["steps_left"] == 5


def test_pictures_and_texts_show_the_state() -> None:
    world = world_from_text(PAIR)
    env = MultigridEnv(world, render_mode="rgb_array", tile_size=20)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), world.render(world.initial_state(), tile_size=20))
    text = MultigridEnv(world, render_mode="ansi")
    text.reset(seed=0)
    assert text.render() == world.describe(world.initial_state())


def test_a_world_can_be_a_name_a_path_or_itself(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(PAIR)
    for world in ("trivial", "multigrid/trivial", file, str(file)):
        assert MultigridEnv(world, max_steps=3).world.spec.horizon == 3
    with pytest.raises(WorldError, match=r"'trivia'.*trivial"):
        MultigridEnv("trivia")
    with pytest.raises(WorldError, match="belong"):
        MultigridEnv(world_from_text(PAIR), max_steps=3)


@pytest.mark.parametrize("action", [4, -1, "forward", 1.5, None])
def test_what_is_no_action_is_refused(action: object) -> None:
    env = MultigridEnv(world_from_text(PAIR))
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="0 still, 1 left, 2 right, 3 forward"):
        env.step(action)


def test_an_action_that_is_unavailable_here_is_refused() -> None:
    rule = "action_rules: [{agents: robots, cells: '0,0', forbid: [forward]}]"
    env = MultigridEnv(world_from_text(PAIR + rule))
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1, 1, 0]
    with pytest.raises(InvalidAction, match="do forward"):
        env.step(FORWARD)


def test_mistakes_are_named() -> None:
    world = world_from_text(PAIR)
    with pytest.raises(WorldError, match="has 2 agents"):
        MultigridEnv(world, agent=2)
    with pytest.raises(WorldError, match=r"goal .*'x'"):
        MultigridEnv(world, agent=1, goal="x")
    with pytest.raises(WorldError, match="its goals: none"):
        MultigridEnv(world, agent=0, goal="start")
    with pytest.raises(WorldError, match=r"'svg' .*rgb_array"):
        MultigridEnv(world, render_mode="svg")
    for early in (MultigridEnv(world).get_state, lambda: MultigridParallelEnv(world).step({})):
        with pytest.raises(ResetNeeded):
            early()
    with pytest.raises(WorldError, match="no option 'goal'"):
        MultigridEnv(world).reset(options={"goal": 1})
    with pytest.raises(WorldError, match=r"'world' .*int16"):
        MultigridEnv(world).reset(options={"state": (0, (1, 2))})


def test_agents_are_named_by_role_in_the_worlds_order() -> None:
    world = world_from_text("map: 'Ae Ay Ar Ay Ae'")
    names = ["robot_0", "human_0", "other_0", "human_1", "robot_1"]
    assert MultigridParallelEnv(world).possible_agents == names


def test_all_agents_act_at_once() -> None:
    env = MultigridParallelEnv(world_from_text(PAIR))
    env.reset(seed=0)
    observations, rewards, terminations, truncations, infos = env.step(
        {"robot_0": FORWARD, "human_0": FORWARD}
    )
    assert cells(observations["human_0"]) == [1, 2]
    assert rewards == {"robot_0": 0.0, "human_0": 0.0}
    assert terminations == truncations == {"robot_0": False, "human_0": False}
    assert infos["human_0"]["action_mask"].tolist() == [1, 1, 1, 1]


def test_a_goal_pays_its_human_once_and_the_game_goes_on() -> None:
    env = MultigridParallelEnv(world_from_text(PAIR), goals={"human_0": "(2,0)"})
    env.reset(seed=0)
    paid = [env.step({"robot_0": STILL, "human_0": a})[1]["human_0"] for a in (FORWARD, STILL)]
    assert paid == [1.0, 0.0]
    assert env.agents == ["robot_0", "human_0"]
    with pytest.raises(WorldError, match="'human_1'"):
        MultigridParallelEnv(world_from_text(PAIR), goals={"human_1": "(2,0)"})


def test_a_terminated_agent_leaves_and_the_others_go_on_to_the_horizon() -> None:
    env = MultigridParallelEnv(world_from_text(LAVA))
    env.reset(seed=0)
    _, _, terminations, _, _ = env.step({"robot_0": FORWARD, "human_0": STILL})
    assert terminations == {"robot_0": True, "human_0": False}
    assert env.agents == ["human_0"]
    for _ in range(4):
        _, _, terminations, truncations, _ = env.step({"human_0": STILL})
    assert (terminations, truncations) == ({"human_0": False}, {"human_0": True})
    assert env.agents == []


def test_missing_and_unknown_agents_are_refused() -> None:
    env = MultigridParallelEnv(world_from_text(PAIR))
    env.reset(seed=0)
    for actions in ({"robot_0": STILL}, {"robot_0": STILL, "human_0": STILL, "human_1": STILL}):
        with pytest.raises(InvalidAction, match=r"'human_0'\] have"):
            env.step(actions)


def test_the_parallel_game_goes_on_from_a_saved_state() -> None:
    env = MultigridParallelEnv(world_from_text(LAVA))
    env.reset(seed=0)
    state = env.get_state()
    env.step({"robot_0": FORWARD, "human_0": STILL})
    gone = env.get_state()
    env.set_state(state)
    assert env.agents == ["robot_0", "human_0"]
    env.set_state(gone)
    assert env.agents == ["human_0"]
