"""The worker's side of environments in processes."""

from __future__ import annotations

import os
from mmap import mmap

import cloudpickle  # type: ignore[import-untyped]
from numpy.random import SeedSequence

from empo_core.protocols.environments import EnvSpec
from empo_core.random_streams import seed_globals
from empo_environments.env_group import EnvGroup
from empo_environments.shared_buffers import SharedBuffers, buffer_bytes
from empo_executors.shared_memory import Descriptor


class EnvWorker(EnvGroup):
    """The environments of one process, whose actions and time steps are in shared memory."""

    def __init__(
        self,
        make: bytes,
        first: int,
        offset: int,
        globals_seed: tuple[int, ...],
        memory: Descriptor,
    ) -> None:
        """Make the environments.

        Args:
            make: The pickled makers of the environments.
            first: Place of the first environment in the vector.
            offset: Number of the vector's first environment.
            globals_seed: Seed of the process-wide generators, and the key of their stream: those
                of no two workers may agree, nor those of a worker and its successor.
            memory: The shared memory, which may be empty so far.
        """
        seed, *key = globals_seed
        seed_globals(SeedSequence(seed, spawn_key=key))
        self._memory = memory
        super().__init__(cloudpickle.loads(make), first, offset, owns_process=True)

    def attach_memory(self, env_spec: EnvSpec) -> None:
        """Use the shared memory, which is as large as the specification needs by now."""
        memory = mmap(self._memory.number, buffer_bytes(env_spec))
        os.close(self._memory.number)
        self.attach(SharedBuffers(env_spec, memory))
