"""Expanding blocks of states in order, on threads or in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from jaxtyping import Shaped

from empo_core.config import ExecutorRef
from empo_core.experiment import build
from empo_core.protocols import WorldModel
from empo_core.types import Successors
from empo_executors.supervised_process import StartMethod
from empo_executors.worker_pool import WorkerPool

Block = Shaped[np.ndarray, "state word"]
Expand = Callable[[Iterable[Block]], Iterator[Successors]]


def successors_of(world: WorldModel, block: Block) -> Successors:
    """All successors of a block of state rows."""
    return world.transitions(torch.from_numpy(block))


@contextmanager
def expander(
    world: WorldModel, workers: int, start_method: StartMethod, executor: ExecutorRef | None = None
) -> Iterator[Expand]:
    """A function from blocks of state rows to all their successors, in order.

    Threads serve worlds that release Python's global lock; for all others worker processes
    do, each of which gets the world once. An executor, where there is one, serves all worlds.
    """
    expand = partial(successors_of, world)
    if executor is not None:
        with WorkerPool(expand, workers, executor=build(executor)) as pool:
            yield pool.map
    elif workers == 1:
        yield lambda blocks: map(expand, blocks)
    elif world.spec.releases_gil:
        with ThreadPoolExecutor(workers) as threads:
            yield lambda blocks: _ahead(threads, expand, blocks, workers + 1)
    else:
        with WorkerPool(expand, workers, start_method) as pool:
            yield pool.map


def _ahead(
    threads: ThreadPoolExecutor,
    expand: Callable[[Block], Successors],
    blocks: Iterable[Block],
    depth: int,
) -> Iterator[Successors]:
    """Results in order, with ``depth`` blocks under way while the caller uses one."""
    waiting: deque[Future[Successors]] = deque()
    for block in blocks:
        waiting.append(threads.submit(expand, block))
        if len(waiting) >= depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
