"""Main function of a worker process: make environments, then step them."""

from __future__ import annotations

import contextlib
import os
import traceback
from mmap import mmap
from multiprocessing.reduction import recv_handle

import cloudpickle  # type: ignore[import-untyped]
from numpy.random import SeedSequence

from empo_core.errors import CollectError
from empo_core.random_streams import seed_globals
from empo_environments.env_group import EnvGroup
from empo_environments.shared_buffers import SharedBuffers, buffer_bytes
from empo_executors.supervised_process import Pipe

STEP, REQUEST = b"s", b"r"
"""First bytes of messages to a worker; the name of a method and its arguments follow a request."""
DONE, RESULT, RAISED = b".", b"+", b"!"
"""First bytes of answers; a result, or an error's class and text, follow the latter two."""


def run_worker(pipe: Pipe, first: int, offset: int, globals_seed: tuple[int, ...]) -> None:
    """Make environments and step them until the pipe ends.

    Args:
        pipe: The only connection to the learner. First come the makers of the environments, then
            the env_spec and the shared memory, then requests, each answered once.
        first: Place of the first environment in the vector.
        offset: Number of the vector's first environment.
        globals_seed: Seed of the process-wide generators, and the key of their stream: those of
            no two workers may agree, nor those of a worker and its successor.
    """
    group = None
    seed, *key = globals_seed
    seed_globals(SeedSequence(seed, spawn_key=key))
    try:
        group = EnvGroup(cloudpickle.loads(pipe.recv_bytes()), first, offset, owns_process=True)
        _serve(pipe, group)
    except (EOFError, OSError):
        pass  # The learner is gone, or has closed the pipe. What environments raise is wrapped.
    except BaseException as error:
        _tell(pipe, error)
    if group is not None:
        group.close()


def _serve(pipe: Pipe, group: EnvGroup) -> None:
    _answer(pipe, RESULT, group.specs())
    env_spec = cloudpickle.loads(pipe.recv_bytes())
    descriptor = recv_handle(pipe)
    group.attach(SharedBuffers(env_spec, mmap(descriptor, buffer_bytes(env_spec))))
    os.close(descriptor)
    _answer(pipe, RESULT, None)
    file = pipe.fileno()
    while kind := os.read(file, 1):
        if kind == STEP:
            group.step()
            os.write(file, DONE)
        else:
            name, arguments = cloudpickle.loads(pipe.recv_bytes())
            _answer(pipe, RESULT, getattr(group, name)(*arguments))


def _answer(pipe: Pipe, kind: bytes, content: object) -> None:
    os.write(pipe.fileno(), kind)
    pipe.send_bytes(cloudpickle.dumps(content))


def _tell(pipe: Pipe, error: BaseException) -> None:
    """Send the learner what went wrong, and of what kind it is."""
    kind, text = type(error), str(error)
    # Others may not be known where the learner is.
    if not kind.__module__.startswith(("empo_core.", "empo_environments.")):
        kind, text = CollectError, traceback.format_exc()
    with contextlib.suppress(OSError):
        _answer(pipe, RAISED, (kind, text))
