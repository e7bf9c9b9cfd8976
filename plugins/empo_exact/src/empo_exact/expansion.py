"""Expanding blocks of states in order, on threads or in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int32, Int64, Shaped

from empo_core.components import build
from empo_core.config import ExecutorRef
from empo_core.errors import EmpoError
from empo_core.protocols import WorldModel
from empo_core.types import Expansion
from empo_worlds import contract
from empo_worlds.compilation import compiled

if TYPE_CHECKING:
    from empo_executors.supervised_process import StartMethod
    from empo_executors.worker_pool import WorkerPool

Block = Shaped[np.ndarray, "state word"]
Numbers = Int32[np.ndarray, " outcome"]
Expand = Callable[[Iterable[Block]], Iterator[Expansion]]
Answer: TypeAlias = Expansion | EmpoError
TOLERANCE = contract.SUM_TOLERANCE


@compiled
def is_sound(
    offsets: Int64[np.ndarray, " pair_plus_1"],
    index: Int64[np.ndarray, " item"],
    prob: Float64[np.ndarray, " outcome"],
) -> bool:
    """True if transitions are as their contract says; see ``contract.IsSound``."""
    for pair in range(len(offsets) - 1):
        if offsets[pair + 1] < offsets[pair] or offsets[pair + 1] > len(index):
            return False
        total = 0.0
        for item in range(offsets[pair], offsets[pair + 1]):
            outcome = index[item]
            if outcome < 0 or outcome >= len(prob) or not prob[outcome] > 0.0:
                return False
            total += prob[outcome]
        if offsets[pair + 1] > offsets[pair] and not abs(total - 1.0) <= TOLERANCE:
            return False
    return True


def expansion_of(world: WorldModel, block: Block) -> Expansion:
    """All successors of a block of state rows.

    Raises:
        BrokenWorldError: if the world breaks its contract.
    """
    return contract.expansion_of(world, torch.from_numpy(block), is_sound)


def _answer(world: WorldModel, block: Block) -> Answer:
    """The successors; or a refusal, so that it is the same error in every process."""
    try:
        return expansion_of(world, block)
    except EmpoError as error:
        return error


def _expansions(answers: Iterable[Answer]) -> Iterator[Expansion]:
    for answer in answers:
        if isinstance(answer, EmpoError):
            raise answer
        yield answer


@contextmanager
def expander(
    world: WorldModel, workers: int, start_method: StartMethod, executor: ExecutorRef | None = None
) -> Iterator[Expand]:
    """A function from blocks of state rows to all their successors, in order.

    Threads serve worlds that release Python's global lock; for all others worker processes
    do, each of which gets the world once; they start with the first call that has several blocks.
    An executor, where there is one, serves all worlds.
    """
    expand, answer = partial(expansion_of, world), partial(_answer, world)
    # Most runs have no worker processes, so that what starts them is imported here.
    if executor is not None:
        from empo_executors.worker_pool import executor_map

        with executor_map(build(executor), answer, workers) as apply:
            yield lambda blocks: _expansions(apply(blocks))
    elif workers == 1:
        yield lambda blocks: map(expand, blocks)
    elif world.spec.releases_gil:
        with ThreadPoolExecutor(workers) as threads:
            yield lambda blocks: _expanded_ahead(threads, expand, blocks, workers + 1)
    else:
        from empo_executors.worker_pool import WorkerPool

        with WorkerPool(answer, workers, start_method) as pool:
            yield partial(_expanded_by, pool, expand)


def _expanded_by(
    pool: WorkerPool[Block, Answer], expand: Callable[[Block], Expansion], blocks: Iterable[Block]
) -> Iterator[Expansion]:
    """Expansions by worker processes; a block that is alone would keep only one of them busy."""
    blocks = iter(blocks)
    first = list(islice(blocks, 2))
    if len(first) < 2:
        return map(expand, first)
    return _expansions(pool.map(chain(first, blocks)))


@contextmanager
def one_behind(
    function: Callable[[Expansion, Numbers], None], workers: int
) -> Iterator[Callable[[Expansion, Numbers], None]]:
    """The same function, which with several workers runs while its caller prepares the next call.

    Its calls stay in order; the last has returned when the context is left.
    """
    if workers == 1:
        yield function
        return
    with ThreadPoolExecutor(1) as thread:
        under_way: Future[None] | None = None

        def call(expansion: Expansion, numbers: Numbers) -> None:
            nonlocal under_way
            if under_way:
                under_way.result()
            under_way = thread.submit(function, expansion, numbers)

        yield call
        if under_way:
            under_way.result()


def _expanded_ahead(
    threads: ThreadPoolExecutor,
    expand: Callable[[Block], Expansion],
    blocks: Iterable[Block],
    depth: int,
) -> Iterator[Expansion]:
    """Results in order, with ``depth`` blocks under way while the caller uses one."""
    waiting: deque[Future[Expansion]] = deque()
    for block in blocks:
        waiting.append(threads.submit(expand, block))
        if len(waiting) >= depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
