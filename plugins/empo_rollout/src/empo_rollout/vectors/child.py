"""What runs in a worker process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from mmap import mmap
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import CollectError
from empo_core.parallel import die_with_parent
from empo_rollout.vectors.board import Board, board_bytes
from empo_rollout.vectors.group import Group

STEP = b"s"
"""The request to step; all others are pickled names and arguments."""
DONE, RAISED = b"+", b"!"
"""How answers begin."""


def run_worker(pipe: Connection[Any, Any], first: int) -> None:
    """Make environments and step them until the pipe ends.

    Args:
        pipe: The only connection to the learner. First come the makers of the environments, then
            the interface and the shared memory, then requests, each answered once.
        first: Number of the first environment.
    """
    threading.Thread(target=die_with_parent, daemon=True).start()
    # Ctrl-C reaches the whole process group; the learner decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    group = None
    try:
        import torch

        torch.set_num_threads(1)
        group = Group(cloudpickle.loads(pipe.recv_bytes()), first)
        _serve(pipe, group)
    except (EOFError, OSError):
        pass  # The learner is gone, or has closed the pipe. What environments raise is wrapped.
    except BaseException as error:
        _tell(pipe, error)
    if group is not None:
        group.close()


def _serve(pipe: Connection[Any, Any], group: Group) -> None:
    pipe.send_bytes(DONE + cloudpickle.dumps(group.descriptions()))
    interface = cloudpickle.loads(pipe.recv_bytes())
    descriptor = recv_handle(pipe)
    group.attach(Board(interface, mmap(descriptor, board_bytes(interface))))
    os.close(descriptor)
    pipe.send_bytes(DONE)
    while True:
        message = pipe.recv_bytes()
        if message == STEP:
            group.step()
            pipe.send_bytes(DONE)
        else:
            name, arguments = cloudpickle.loads(message)
            result = getattr(group, name)(*arguments)
            pipe.send_bytes(DONE + cloudpickle.dumps(result))


def _tell(pipe: Connection[Any, Any], error: BaseException) -> None:
    """Send the learner what went wrong, and of what kind it is."""
    kind, text = type(error), str(error)
    # Others may not be known where the learner is.
    if not kind.__module__.startswith(("empo_core.", "empo_rollout.")):
        kind, text = CollectError, traceback.format_exc()
    with contextlib.suppress(OSError):
        pipe.send_bytes(RAISED + cloudpickle.dumps((kind, text)))


__all__ = ["DONE", "RAISED", "STEP", "run_worker"]
