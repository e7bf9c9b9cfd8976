"""Collecting experience in the learner's own process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from empo_core.errors import CollectError
from empo_core.protocols import Actor, ActorFactory, Weights
from empo_core.trees import StateDict, whole_number
from empo_core.types import Experience

if TYPE_CHECKING:
    from empo_learning.plugin import SyncParams


class Sync:
    """Lets one actor act whenever experience is due, so that a run can be repeated exactly."""

    def __init__(self, params: SyncParams) -> None:
        self._params = params
        self._actor: Actor | None = None
        self._weights: Weights | None = None
        self._version = 0
        self._env_steps = 0

    def start(self, make_actor: ActorFactory) -> None:
        """Build the actor.

        Raises:
            CollectError: if the actor cannot be built; its traceback is in the message.
        """
        if self._actor is not None:
            raise CollectError("this collector runs already; stop it before starting it again")
        try:
            self._actor = make_actor(0)
        except Exception as error:
            raise CollectError(
                f"the actor cannot be built: {type(error).__name__}: {error}\n"
                f"{traceback.format_exc()}"
            ) from error

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let the actor act with these weights, as they are now, from its next step on."""
        actor = self._running()
        # The learner goes on to change its tensors, and must not change behaviour by that.
        self._weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self._version += 1
        actor.load(self._weights, self._version)

    def collect(self, training_step: int) -> Sequence[Experience]:
        """Act until there are as many environment steps as are due by this training step.

        Raises:
            CollectError: if the actor makes no step any more.
        """
        actor, params = self._running(), self._params
        due = params.min_env_steps + params.env_steps_per_training_step * training_step
        collected: list[Experience] = []
        while self._env_steps < due:
            try:
                experience = actor.act(training_step)
            except Exception as error:
                error.add_note(f"This happened while acting, before training step {training_step}.")
                raise
            if experience.env_steps < 1:
                raise CollectError("the actor acted without making a step in any environment")
            self._env_steps += experience.env_steps
            collected.append(experience)
        return collected

    def counters(self) -> dict[str, float]:
        """Environment steps so far, and how often weights were published."""
        return {"env_steps": self._env_steps, "policy_version": self._version}

    def state_dict(self) -> StateDict:
        """Counters, and the state of the actor; what was published last is the learner's."""
        return {
            "env_steps": self._env_steps,
            "policy_version": self._version,
            "actor": self._running().state_dict(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned, exactly so with the weights of that time."""
        actor = self._running()
        self._env_steps = whole_number(state_dict["env_steps"])
        self._version = whole_number(state_dict["policy_version"])
        if self._weights is not None:
            actor.load(self._weights, self._version)
        actor.load_state_dict(state_dict["actor"])

    def stop(self) -> None:
        """Forget the actor."""
        self._actor = None

    def _running(self) -> Actor:
        if self._actor is None:
            raise CollectError("this collector has no actor: start it first, and stop it last")
        return self._actor
