"""The worker's side: one actor in its process."""

from __future__ import annotations

import os

import cloudpickle  # type: ignore[import-untyped]
from numpy.random import SeedSequence
from safetensors.torch import load

from empo_core.errors import WorkerError
from empo_core.protocols import Actor, ActorFactory, Report
from empo_core.random_streams import seed_globals
from empo_core.trees import StateDict
from empo_core.types import Experience

_KINDS = "biufc"
"""Kinds of dtypes that experience may have: booleans and numbers."""


class ActorWorker:
    """Builds an actor when it is told to, and lets it act as far as it may."""

    def __init__(self, make_actor: bytes, seed: int) -> None:
        """Begin without an actor.

        Args:
            make_actor: The pickled ``ActorFactory``.
            seed: Of the run.
        """
        self._make_actor, self._seed = make_actor, seed
        self._actor: Actor | None = None
        self._env_steps = 0

    def build(self, index: int) -> int:
        """Build the actor with this index, and return the number of this process."""
        # What actors draw from global generators differs between them, and from run to run
        # as the seed does; no index is given twice.
        seed_globals(SeedSequence(self._seed, spawn_key=(index,)))
        make: ActorFactory = cloudpickle.loads(self._make_actor)
        self._actor = make(index)
        return os.getpid()

    def load(self, weights: bytes, version: int) -> int:
        """Act with these weights, in the safetensors format, and return their version."""
        self._alive.load(load(weights), version)
        return version

    def load_state(self, state: StateDict) -> None:
        """Go on from the state of an actor."""
        self._alive.load_state_dict(state)

    def state(self) -> StateDict:
        """The actor's state."""
        return self._alive.state_dict()

    def act(self, report: Report, until: int, training_step: int) -> None:
        """Act until so many environment steps in all, or until another call waits.

        Raises:
            WorkerError: if the actor does not take a step, or records what is no number.
        """
        actor = self._alive
        self._actor = None  # After an error it does not act again.
        while self._env_steps < until:
            experience = actor.act(training_step)
            _check(experience)
            self._env_steps += experience.env_steps
            if report(experience):
                break  # The learner knows better by now how far to go.
        self._actor = actor

    @property
    def _alive(self) -> Actor:
        if self._actor is None:
            raise WorkerError("this actor has failed and waits for its end")
        return self._actor


def _check(experience: Experience) -> None:
    if experience.env_steps < 1:
        raise WorkerError(
            f"act returned an experience of {experience.env_steps} environment steps; "
            "every call must take at least 1, or the learner would wait for ever"
        )
    for name, array in experience.arrays.items():
        if array.dtype.kind not in _KINDS:
            raise WorkerError(
                f"array {name!r} has dtype {array.dtype}; only booleans and numbers can be sent"
            )
