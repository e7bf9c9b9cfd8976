"""The tasks of `outside.py` without our environments: for the other library, and for the judge."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv

from empo_environments.registries import make_gymnasium, make_pettingzoo

Act = Callable[[np.ndarray], np.ndarray]
"""From what agents see, a row each, to their actions."""
NEWEST = 100
"""Episodes whose mean is a point of a curve."""


class Game(ABC):
    """One copy of a task; each agent sees a row of numbers, zeros once it has died.

    Attributes:
        agents: How many there are.
        words: Numbers that each sees.
        options: Actions of each.
        alive: Who will act next.
        terminated, truncated: Whether the episode is over, and how.
    """

    agents: int
    words: int
    options: int
    alive: np.ndarray
    terminated = truncated = False

    @abstractmethod
    def begin(self, seed: int | None = None) -> np.ndarray:
        """Rows at the beginning of an episode."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and rewards."""


class PictureGame(Game):
    """A Gymnasium environment of which an agent sees the part ``image``, channel first."""

    def __init__(self, id: str, kwargs: dict[str, Any]) -> None:
        self._env = make_gymnasium(gymnasium.make, id, kwargs)
        shown, actions = self._env.observation_space, self._env.action_space
        assert isinstance(shown, spaces.Dict)
        assert isinstance(actions, spaces.Discrete)
        self.agents, self.words, self.options = 1, shown["image"].sample().size, int(actions.n)
        self.alive = np.ones(1, bool)

    def begin(self, seed: int | None = None) -> np.ndarray:
        """Rows at the beginning of an episode."""
        return self._rows(self._env.reset(seed=seed)[0])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and rewards."""
        seen, reward, self.terminated, self.truncated, _ = self._env.step(int(actions[0]))
        return self._rows(seen), np.array([reward], np.float32)

    def _rows(self, seen: dict[str, np.ndarray]) -> np.ndarray:
        return seen["image"].transpose(2, 0, 1).reshape(1, -1)


class ParallelGame(Game):
    """A ParallelEnv of PettingZoo."""

    def __init__(self, id: str, kwargs: dict[str, Any]) -> None:
        self._env = make_pettingzoo(id, kwargs)
        self._names = names = self._env.possible_agents
        shown, actions = (space(names[0]) for space in self._spaces())
        self.agents, self.words, self.options = len(names), int(np.prod(shown.shape)), actions.n

    def begin(self, seed: int | None = None) -> np.ndarray:
        """Rows at the beginning of an episode."""
        return self._rows(self._env.reset(seed=seed)[0])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and rewards."""
        chosen = zip(self._names, actions.tolist(), strict=True)
        acting = {name: action for name, action in chosen if name in self._env.agents}
        seen, paid, _, truncated, _ = self._env.step(acting)
        over = not self._env.agents
        self.truncated = over and any(truncated.values())
        self.terminated = over and not self.truncated
        rewards = np.array([paid.get(name, 0) for name in self._names], np.float32)
        return self._rows(seen), rewards

    def _spaces(self) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
        return self._env.observation_space, self._env.action_space

    def _rows(self, seen: dict[str, np.ndarray]) -> np.ndarray:
        self.alive = np.array([name in self._env.agents for name in self._names])
        rows = np.zeros((self.agents, self.words), np.float32)
        for row, name in zip(rows, self._names, strict=True):
            if name in seen:
                row[:] = np.ravel(seen[name])
        return rows


def game(environment: dict[str, Any]) -> Game:
    """A copy of what a config's environment names."""
    kind = {"gymnasium": PictureGame, "pettingzoo": ParallelGame}[environment["name"]]
    params = environment["params"]
    return kind(params["id"], params.get("kwargs", {}))


def returns(games: Sequence[Game], act: Act, seed: int) -> np.ndarray:
    """Returns ``[episode agent]`` of one episode of each copy."""
    seen = np.stack([each.begin(seed + number) for number, each in enumerate(games)])
    earned, going = np.zeros(seen.shape[:2]), np.arange(len(games))
    while len(going):
        actions = act(seen[going].reshape(-1, seen.shape[2])).reshape(len(going), -1)
        for number, action in zip(going, actions, strict=True):
            seen[number], reward = games[number].step(action)
            earned[number] += reward
        going = np.array([n for n in going if not (games[n].terminated or games[n].truncated)])
    return earned


class Copies(VecEnv):
    """Copies of a game for Stable-Baselines3, to which every agent is an environment.

    Attributes:
        taken: Steps of agents that were alive.
        newest: Returns of the newest episodes of agents.
    """

    def __init__(self, games: Sequence[Game], seed: int) -> None:
        self._games, first = games, games[0]
        bounds = np.float32(np.inf)
        shown = spaces.Box(-bounds, bounds, (first.words,), np.float32)
        super().__init__(len(games) * first.agents, shown, spaces.Discrete(first.options))
        self.taken, self.newest = 0, deque[float](maxlen=NEWEST)
        self._first_seed = seed

    def reset(self) -> np.ndarray:
        """Begin an episode in every copy."""
        self._earned = np.zeros((len(self._games), self._games[0].agents))
        begun = [each.begin(self._first_seed + n) for n, each in enumerate(self._games)]
        return np.concatenate(begun).astype(np.float32)

    def step_async(self, actions: np.ndarray) -> None:
        """Note what everybody does."""
        self._actions = actions.reshape(len(self._games), -1)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Let everybody act; episodes that are over are followed by others."""
        seen, paid, over, infos = [], [], [], []
        for number, (each, actions) in enumerate(zip(self._games, self._actions, strict=True)):
            self.taken += int(each.alive.sum())
            rows, rewards = each.step(actions)
            ended, cut = each.terminated or each.truncated, each.truncated and not each.terminated
            self._earned[number] += rewards
            found: list[dict[str, Any]] = [{} for _ in rows]
            if ended:
                found = [{"terminal_observation": r, "TimeLimit.truncated": cut} for r in rows]
                self.newest.extend(self._earned[number].tolist())
                self._earned[number] = 0
                rows = each.begin()
            seen.append(rows)
            paid.append(rewards)
            over += [ended] * each.agents
            infos += found
        rows = np.concatenate(seen).astype(np.float32)
        return rows, np.concatenate(paid), np.array(over), infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The copies have no attributes, e.g. no mode of rendering."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not needed."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Not needed."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """They have no wrappers."""
        return [False] * self.num_envs


def trained(
    environment: dict[str, Any], ppo: dict[str, Any], steps: int, seed: int
) -> tuple[Act, list[tuple[int, float]], float]:
    """Stable-Baselines3's policy, its curve, and processor seconds."""
    begin = time.process_time()
    copies = Copies([game(environment) for _ in range(ppo["copies"])], 1000 * seed)
    model = PPO(
        "MlpPolicy",
        copies,
        n_steps=ppo["horizon"],
        batch_size=ppo["minibatch"],
        n_epochs=ppo["epochs"],
        gamma=ppo["gamma"],
        gae_lambda=ppo["gae_lambda"],
        clip_range=ppo["clip"],
        ent_coef=ppo["entropy"],
        learning_rate=ppo["lr"],
        max_grad_norm=ppo["max_grad_norm"],
        vf_coef=ppo["value_coef"],
        policy_kwargs={"net_arch": ppo["hidden"], "optimizer_kwargs": {"eps": ppo["eps"]}},
        seed=seed,
        device="cpu",
    )
    curve = []
    while copies.taken < steps:
        model.learn(copies.num_envs * ppo["horizon"], reset_num_timesteps=False)
        curve.append((copies.taken, float(np.mean(copies.newest)) if copies.newest else np.nan))
    seconds = time.process_time() - begin
    return lambda rows: model.predict(rows, deterministic=True)[0], curve, seconds
