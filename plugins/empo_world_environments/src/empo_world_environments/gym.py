"""Copies of a world for programs that know Gymnasium's vectors, or PettingZoo's agents.

``gymnasium.make_vec("empo_world_environments.gym:Empo/World-v0", num_envs=1024, world=...)`` makes
a ``WorldGymnasiumVector``. ``WorldParallelVector`` has the methods of a PettingZoo parallel
environment, with an axis of copies in front of every value. Both step the ``WorldVectorEnv`` that
our own trainer steps.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import Error, InvalidAction, ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, Shaped
from pydantic import ValidationError

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.protocols.environments import EnvironmentContext, TimeStep, VectorLayout
from empo_world_environments.environment import WorldEnvironment
from empo_world_environments.observation import WorldObservation
from empo_world_environments.params import WorldParams

Infos: TypeAlias = dict[str, Any]
Rows: TypeAlias = Float32[np.ndarray, "env number"]

POWER = {"kind": "power", "algorithm": "exact"}


class WorldStepper:
    """Copies of a world in one block, and what they show and take.

    Attributes:
        num_envs: Number of copies.
        sight: What the learners see.
        reasons: Names of the reasons for which episodes end.
    """

    def __init__(
        self,
        world: WorldModel | str,
        num_envs: int,
        params: Mapping[str, Any],
        *,
        joint: bool,
    ) -> None:
        """Make the copies.

        Args:
            world: A world model, or its name as in a config, e.g. ``"multigrid/trivial"``.
            num_envs: Number of copies.
            params: Params of the environment ``world``. The reward can be ``"power"``, which
                ``exact`` works out, or ``"goal"``.
            joint: Whether all robots of a copy are one agent; see ``WorldVectorEnv``.

        Raises:
            ConfigError: if the world or the params are not right.
            SolveError: if the world cannot be solved for the humans' power.
        """
        reward = params.get("reward", "power")
        if isinstance(reward, str):
            reward = POWER if reward == "power" else {"kind": reward}
        try:
            checked = WorldParams.model_validate({**params, "reward": reward})
            if isinstance(world, str):
                named: WorldModel = build(WorldModelRef.model_validate(world))
                world = named
        except ValidationError as error:
            problems = error.errors(include_url=False)
            places = [".".join(map(str, problem["loc"])) for problem in problems]
            raise ConfigError(
                "\n".join(
                    f"{place}: {problem['msg']}" if place else problem["msg"]
                    for place, problem in zip(places, problems, strict=True)
                )
            ) from error
        directory = tempfile.mkdtemp(prefix="empo-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        context = EnvironmentContext(world=world, directory=Path(directory))
        environment = WorldEnvironment(checked, context)
        layout = VectorLayout(terminal_observations=True)
        self._vector = environment.vector(num_envs, layout, joint=joint)
        self._step: TimeStep | None = None
        self.num_envs = num_envs
        self.sight = WorldObservation(world.spec, checked.learners, joint)
        self.reasons = self._vector.spec.reasons

    def start(self, seed: int) -> TimeStep:
        """Begin an episode in every copy."""
        self._vector.start(seed)
        self._step = self._vector.recv()
        return self._step

    def step(self, options: Shaped[np.ndarray, "*_shape"]) -> TimeStep:
        """Let the learners act.

        Raises:
            ResetNeeded: if nothing was started.
            InvalidAction: if a learner does not have its action; ``mask`` says what it has.
        """
        if self._step is None:
            raise ResetNeeded("call reset before step")
        acts = self._step.acts
        assert self._step.mask is not None
        mask = self._step.mask.reshape(-1, self.sight.num_options)
        shape = (self.num_envs, len(self.sight.agents))
        if options.shape != shape or not np.issubdtype(options.dtype, np.integer):
            raise InvalidAction(
                f"actions are {options.dtype} of shape {options.shape}; whole numbers of shape "
                f"{shape} are wanted, one per copy and learner"
            )
        rows = np.ascontiguousarray(options, dtype=np.int64).reshape(-1, 1)
        in_range = (rows >= 0) & (rows < mask.shape[1])
        is_available = np.take_along_axis(mask, np.where(in_range, rows, 0), 1) & in_range
        wrong = np.flatnonzero(np.repeat(acts, len(rows) // len(acts)) & ~is_available[:, 0])
        if len(wrong):
            copy, learner = divmod(int(wrong[0]), shape[1])
            name = self.sight.spec.agents[self.sight.agents[learner]].name
            raise InvalidAction(
                f"{name} in copy {copy} does not have action "
                f"{int(rows[wrong[0], 0])}; its action_mask is {mask[wrong[0]].astype(int)}"
            )
        self._vector.send(0, rows.reshape(len(acts), -1))
        self._step = self._vector.recv()
        return self._step

    def close(self) -> None:
        """Release the copies."""
        self._vector.close()


def last_observations(
    is_over: Bool[np.ndarray, " row"], last: Float32[np.ndarray, "final number"]
) -> Shaped[np.ndarray, " row"]:
    """The last observation of each episode that ended, None of the others, as Gymnasium does."""
    final = np.full(len(is_over), None, dtype=object)
    final[is_over] = np.fromiter(last, object, len(last))
    return final


class WorldGymnasiumVector(VectorEnv[Rows, Shaped[np.ndarray, "*_shape"], Any]):
    """Copies of a world in which one agent acts, or all robots as one.

    Observations are the features of the state, the share of the episode's steps that are left
    (where there is a horizon), and for a human which of its goals it pursues. Several robots are
    one actor with a choice per robot. Actions have to be available:
    ``infos["action_mask"]`` [env option] says which are, of several robots one after the other.

    Observations stay as they are while somebody keeps them. Those that everybody has dropped are
    written over, which spares copies.

    Episodes begin anew in the step that ends them (``AutoresetMode.SAME_STEP``);
    ``infos["final_obs"]`` has the last observation of each that ended, and
    ``infos["final_info"]["reason"]`` why it did, as a position in ``reasons``.

    Attributes:
        reasons: Names of the reasons for which episodes end.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, world: WorldModel | str, num_envs: int = 1, **params: Any) -> None:
        """Make the copies; see ``WorldStepper`` for arguments and errors.

        Raises:
            ConfigError: if several humans learn, or the world or the params are not right.
        """
        self._stepper = WorldStepper(world, num_envs, params, joint=True)
        sight = self._stepper.sight
        if sight.learners == "humans" and len(sight.agents) > 1:
            raise ConfigError(
                f"learners: {sight.spec.name!r} has {len(sight.agents)} humans with goals of their "
                "own, and one agent acts here: take WorldParallelVector"
            )
        self.num_envs, self.reasons = num_envs, self._stepper.reasons
        counts = [sight.spec.num_actions[agent] for agent in sight.agents]
        self._options = np.concatenate(
            [learner * sight.num_options + np.arange(n) for learner, n in enumerate(counts)]
        )
        words = sight.observations.words
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (words,), np.float32)
        self.single_action_space = (
            spaces.Discrete(counts[0]) if len(counts) == 1 else spaces.MultiDiscrete(counts)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Rows, Infos]:
        """Begin an episode in every copy; one seed is for all copies together.

        Raises:
            Error: if there are options, or a seed per copy.
        """
        if options:
            raise Error(f"reset has no option {next(iter(options))!r}; it has none")
        if isinstance(seed, list):
            raise Error("give one seed, from which the random numbers of all copies follow")
        super().reset(seed=seed)
        step = self._stepper.start(int(self.np_random.integers(2**63)))
        return step.observation, self._infos(step)

    def step(
        self, actions: Shaped[np.ndarray, "*_shape"]
    ) -> tuple[
        Rows,
        Float64[np.ndarray, " env"],
        Bool[np.ndarray, " env"],
        Bool[np.ndarray, " env"],
        Infos,
    ]:
        """Act in every copy.

        Raises:
            ResetNeeded: if ``reset`` was not called.
            InvalidAction: if an action is not available.
        """
        learners = len(self._stepper.sight.agents)
        step = self._stepper.step(np.asarray(actions).reshape(-1, learners))
        infos = self._infos(step)
        is_over = step.terminated | step.truncated
        if is_over.any():
            final = last_observations(is_over, step.final_observation)
            reason = np.where(is_over, step.reasons, 0)
            infos |= {"final_obs": final, "_final_obs": is_over}
            infos |= {"final_info": {"reason": reason, "_reason": is_over}, "_final_info": is_over}
        return (
            step.observation,
            step.reward.astype(np.float64),
            step.terminated.copy(),
            step.truncated.copy(),
            infos,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Release the copies."""
        self._stepper.close()

    def _infos(self, step: TimeStep) -> Infos:
        assert step.mask is not None
        mask = step.mask.reshape(self.num_envs, -1)[:, self._options].astype(np.int8)
        return {"action_mask": mask, "_action_mask": np.ones(self.num_envs, np.bool_)}


class WorldParallelVector:
    """Copies of a world in which all robots act, or all humans, each under its name.

    The methods are those of ``pettingzoo.ParallelEnv``; every observation, reward, flag and action
    has an axis of copies in front. Agents never leave: ``infos[agent]["acts"]`` [env] says where
    the agent's next action has an effect, ``["action_mask"]`` [env option] which actions it has.
    Observations stay as they are while somebody keeps them. Episodes begin anew in the step that
    ends them; ``["final_obs"]`` [env] then has the agent's
    last observation where ``["_final_obs"]`` [env] is True, and None elsewhere.

    Attributes:
        num_envs: Number of copies.
        reasons: Names of the reasons for which episodes end; ``infos[agent]["reason"]`` counts
            them, -1 where none ended.
        possible_agents: Names of the agents.
        agents: The same.
    """

    metadata = {"name": "empo_world_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, world: WorldModel | str, num_envs: int = 1, **params: Any) -> None:
        """Make the copies; see ``WorldStepper`` for arguments and errors."""
        self._stepper = WorldStepper(world, num_envs, params, joint=False)
        sight = self._stepper.sight
        self.num_envs, self.reasons = num_envs, self._stepper.reasons
        self.possible_agents = list(sight.names)
        self.agents = self.possible_agents.copy()
        shape = (sight.observations.words,)
        self.observation_spaces = {
            name: spaces.Box(-np.inf, np.inf, shape, np.float32) for name in sight.names
        }
        self.action_spaces = {
            name: spaces.Discrete(sight.spec.num_actions[agent])
            for name, agent in zip(sight.names, sight.agents, strict=True)
        }
        self._random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> spaces.Box:
        """The space of one copy's observations of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The space of one copy's actions of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Rows], dict[str, Infos]]:
        """Begin an episode in every copy.

        Raises:
            Error: if there are options.
        """
        if options:
            raise Error(f"reset has no option {next(iter(options))!r}; it has none")
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        step = self._stepper.start(int(self._random.integers(2**63)))
        return self._observations(step), self._infos(step)

    def step(
        self, actions: Mapping[str, Shaped[np.ndarray, "*_shape"]]
    ) -> tuple[
        dict[str, Rows],
        dict[str, Float32[np.ndarray, " env"]],
        dict[str, Bool[np.ndarray, " env"]],
        dict[str, Bool[np.ndarray, " env"]],
        dict[str, Infos],
    ]:
        """Let every agent act in every copy.

        Raises:
            ResetNeeded: if ``reset`` was not called.
            InvalidAction: if an agent has no actions, or one that is not available.
        """
        if actions.keys() != set(self.possible_agents):
            raise InvalidAction(
                f"actions are for {sorted(actions)}; {self.possible_agents} have to act"
            )
        joint = np.stack([np.asarray(actions[name]) for name in self.possible_agents], -1)
        step = self._stepper.step(joint)
        return (
            self._observations(step),
            self._by_agent(step.reward),
            self._by_agent(step.terminated),
            self._by_agent(step.truncated),
            self._infos(step),
        )

    def close(self) -> None:
        """Release the copies."""
        self._stepper.close()

    def _observations(self, step: TimeStep) -> dict[str, Rows]:
        agents = len(self.agents)
        return {name: step.observation[place::agents] for place, name in enumerate(self.agents)}

    def _by_agent(self, rows: Shaped[np.ndarray, "*rows"]) -> dict[str, Any]:
        agents = len(self.possible_agents)
        return {name: rows[place::agents].copy() for place, name in enumerate(self.agents)}

    def _infos(self, step: TimeStep) -> dict[str, Infos]:
        assert step.mask is not None
        is_over = step.terminated | step.truncated
        columns = {
            "action_mask": step.mask.astype(np.int8),
            "acts": step.acts,
            "reason": step.reasons,
            "final_obs": last_observations(is_over, step.final_observation),
            "_final_obs": is_over,
        }
        infos: dict[str, Infos] = {name: {} for name in self.possible_agents}
        for key, rows in columns.items():
            for name, values in self._by_agent(rows).items():
                infos[name][key] = values
        for name, info in infos.items():
            info["action_mask"] = info["action_mask"][:, : self.action_spaces[name].n]
        return infos


gymnasium.register("Empo/World-v0", vector_entry_point=f"{__name__}:WorldGymnasiumVector")
