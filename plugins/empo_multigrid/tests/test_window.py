"""Episodes in a window, and games by Gymnasium's ``play``; nothing appears on a screen."""

import json
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import render_test
from pettingzoo.utils import parallel_to_aec

from empo_multigrid.gym.environments import MultigridEnv, MultigridParallelEnv

ID = "empo_multigrid:Empo/Multigrid-v0"
FORWARD = 3

PLAY = """
import json, sys, warnings
warnings.simplefilter("ignore")  # It chooses a backend of matplotlib that needs a screen.
import gymnasium, pygame
from gymnasium.utils.play import play
env = gymnasium.make("empo_multigrid:Empo/Multigrid-v0", world="free_the_human",
                     render_mode="rgb_array")
pressed, taken = [pygame.K_UP, pygame.K_w, pygame.K_DOWN, pygame.K_2, pygame.K_RIGHT], []
def after_step(before, after, action, *outcome):
    taken.append(int(action))
    if taken[1:] and len(taken) <= len(pressed):
        pygame.event.post(pygame.event.Event(pygame.KEYUP, key=pressed[len(taken) - 2]))
    if len(taken) > len(pressed):
        pygame.event.post(pygame.event.Event(pygame.QUIT))
    else:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pressed[len(taken) - 1]))
    if len(taken) == 2:
        seen = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        assert (seen == shown[-1]).all()
shown, render = [], env.render
def recorded():
    shown.append(render())
    return shown[-1]
env.render = recorded
play(env, fps=1000, seed=0, callback=after_step)
print(json.dumps(taken))
"""


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr("empo_multigrid.gym.game.FPS", 1000)


def in_window() -> np.ndarray:
    pygame = pytest.importorskip("pygame")
    return pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)


def test_a_window_shows_each_state_and_closes() -> None:
    pygame = pytest.importorskip("pygame")
    env = gymnasium.make(ID, world="free_the_human", render_mode="human")
    game: Any = env.unwrapped

    def is_shown() -> bool:
        state = game.world.initial_state().new_tensor(game.get_state()[1])
        return np.array_equal(in_window(), game.world.render(state, tile_size=48))

    env.reset(seed=0)
    assert is_shown()
    begin = in_window()
    env.step(FORWARD)
    assert is_shown()
    assert not np.array_equal(in_window(), begin)
    assert env.render() is None
    assert pygame.display.get_caption()[0] == game.world.spec.name
    game.set_state((0, game.world.initial_state().tolist()))
    assert np.array_equal(in_window(), begin)
    for _ in range(2):
        env.close()
        assert not pygame.display.get_init()
    env.reset()
    assert is_shown()
    env.close()


def test_windows_pass_the_checkers_of_gymnasium_and_pettingzoo() -> None:
    pytest.importorskip("pygame")
    check_env(gymnasium.make(ID, world="trivial", render_mode="human").unwrapped)
    render_test(lambda render_mode: parallel_to_aec(MultigridParallelEnv(render_mode=render_mode)))


def test_play_takes_arrows_letters_and_digits() -> None:
    pytest.importorskip("pygame")
    command = [sys.executable, "-c", PLAY]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 3, 3, 0, 1, 2]


@pytest.mark.parametrize("kind", [MultigridEnv, MultigridParallelEnv])
def test_without_pygame_a_window_says_what_to_install(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # Then it cannot be imported.
    with pytest.raises(DependencyNotInstalled, match=r"empo-multigrid\[window\]"):
        kind("trivial", render_mode="human")
    kind("trivial", render_mode="rgb_array").close()
