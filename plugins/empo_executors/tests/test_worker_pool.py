"""Worker processes: same results everywhere, and never a hang."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.errors import WorkerError
from empo_core.plugins import imports
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_executors.supervised_process import StartMethod
from empo_executors.worker_pool import WorkerPool, executor_map, worker_processes

Pool = WorkerPool[int, tuple[int, int]]


@pytest.fixture(scope="module")
def squares() -> Iterator[Pool]:
    offset = np.arange(300_000)  # Captured state travels with the closure.
    with WorkerPool(lambda n: (n * n + int(offset[-1]), os.getpid()), workers=2) as pool:
        yield pool


def is_gone(pid: int) -> bool:
    # Nobody may reap the orphan in a container, so a zombie counts as gone.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_results_come_in_the_order_of_the_items(squares: Pool) -> None:
    got = list(squares.map(range(200)))
    assert [value for value, _ in got] == [n * n + 299_999 for n in range(200)]
    assert os.getpid() not in {pid for _, pid in got}


def test_a_map_may_be_abandoned_and_the_pool_used_again(squares: Pool) -> None:
    iterator = squares.map(range(1000))
    next(iterator)
    iterator.close()
    assert len(list(squares.map(range(5)))) == 5


def test_an_empty_map_yields_nothing(squares: Pool) -> None:
    assert list(squares.map([])) == []


def test_items_are_taken_only_a_few_ahead_of_the_results(squares: Pool) -> None:
    taken = []
    iterator = squares.map(taken.append(n) or n for n in range(1000))
    next(iterator)
    assert len(taken) <= 8
    iterator.close()


@pytest.mark.parametrize(
    ("workers", "method"),
    [(1, "forkserver"), (3, "forkserver"), pytest.param(2, "spawn", marks=pytest.mark.slow)],
)
def test_results_do_not_depend_on_workers_or_start_method(
    workers: int, method: StartMethod
) -> None:
    weights = torch.linspace(0, 1, 1000, dtype=torch.float64)
    with WorkerPool(lambda n: (weights * n).sum().item(), workers, method) as pool:
        assert list(pool.map(range(20))) == [(weights * n).sum().item() for n in range(20)]


@pytest.mark.slow
def test_workers_run_under_another_hash_seed() -> None:
    script = """
        from empo_executors.worker_pool import WorkerPool
        if __name__ == "__main__":
            with WorkerPool(lambda words: sorted(set(words)), 2) as pool:
                print(list(pool.map([("b", "a"), ("d", "c", "d")])))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[['a', 'b'], ['c', 'd']]\n"


def test_torch_uses_one_thread_in_a_worker_after_parallel_work_in_the_parent() -> None:
    torch.randn(500, 500) @ torch.randn(500, 500)

    def work(n: int) -> int:
        (torch.ones(500, 500) @ torch.ones(500, 500)).sort()
        return torch.get_num_threads()

    with WorkerPool(work, 2) as pool:
        assert list(pool.map(range(4))) == [1] * 4


def test_the_first_failing_item_is_reported_with_its_traceback_and_the_pool_lives_on() -> None:
    def picky(n: int) -> int:
        if n % 4 == 3:
            time.sleep(0.2 if n == 3 else 0)
            raise KeyError(f"no {n}")
        return n

    with WorkerPool(picky, 3) as pool:
        with pytest.raises(WorkerError, match=r"(?s)item 3: KeyError: 'no 3'.*in picky"):
            list(pool.map(range(20)))
        assert list(pool.map([4, 5, 6])) == [4, 5, 6]


@pytest.mark.parametrize("call", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_leaving_the_interpreter_is_reported_like_any_exception(call: str) -> None:
    def leave(n: int, call: str = call) -> None:
        import sys  # noqa: F401

        exec(call)

    with WorkerPool(leave, 1) as pool, pytest.raises(WorkerError, match="on item 0"):
        list(pool.map([0]))


def test_a_result_that_cannot_be_sent_back_is_reported() -> None:
    with (
        WorkerPool(lambda n: (i for i in range(n)), 1) as pool,
        pytest.raises(WorkerError, match=r"item 0: TypeError: .*generator"),
    ):
        list(pool.map([3]))


def test_a_function_or_item_that_cannot_be_sent_is_reported_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(WorkerError, match=r"function .*pickle"):
        WorkerPool(lambda n: lock, 1)
    with WorkerPool(str, 1) as pool, pytest.raises(WorkerError, match=r"item 1 .*pickle"):
        list(pool.map([0, lock]))


def test_a_function_that_does_not_load_in_the_worker_is_reported() -> None:
    class Fragile:
        def __reduce__(self) -> Any:
            return exec, ("raise RuntimeError('will not load')",)

        def __call__(self, n: int) -> int:
            return n

    with (
        WorkerPool(Fragile(), 2) as pool,
        pytest.raises(WorkerError, match=r"(?s)the function.*not load"),
    ):
        list(pool.map(range(3)))


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_killed_worker_is_an_error_and_never_a_hang(method: StartMethod) -> None:
    def suicidal(n: int) -> bytes:
        if n == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(20_000)

    with WorkerPool(suicidal, 2, method) as pool:
        with pytest.raises(WorkerError, match="ended"):
            list(pool.map(range(50)))
        with pytest.raises(WorkerError, match="closed"):
            list(pool.map([1]))


def test_a_worker_killed_with_its_pipe_held_open_by_a_grandchild_is_noticed() -> None:
    def leave_a_child(n: int) -> None:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    with WorkerPool(leave_a_child, 1) as pool, pytest.raises(WorkerError, match="process ended"):
        list(pool.map([0]))


def test_closing_is_bounded_even_when_a_worker_is_busy(tmp_path: Path) -> None:
    def dawdle(n: int) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(600)

    pool = WorkerPool(dawdle, 1)
    results = pool.map([0])

    def collect() -> None:
        with pytest.raises(WorkerError):
            next(results)

    thread = threading.Thread(target=collect)
    thread.start()
    assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    started = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - started < 6
    thread.join(5)
    assert not thread.is_alive()
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_end_when_their_parent_is_killed(method: StartMethod, tmp_path: Path) -> None:
    script = f"""
        import os, pathlib, time
        from empo_executors.worker_pool import WorkerPool

        def announce(n):
            pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
            time.sleep(600)

        if __name__ == "__main__":
            list(WorkerPool(announce, 2, {method!r}).map([0, 1]))
    """
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    parent = subprocess.Popen([sys.executable, str(path)])
    try:
        pids = lambda: [int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()]  # noqa: E731
        assert wait_until(lambda: len(pids()) == 2, 60)
    finally:
        parent.kill()
        parent.wait()
    assert wait_until(lambda: all(map(is_gone, pids())))


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "from empo_executors.worker_pool import WorkerPool\n"
        "with WorkerPool(str, 1) as pool:\n    print(list(pool.map([1])))\n"
    )
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "__name__ == '__main__'" in done.stderr


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        WorkerPool(str, 0)
    with pytest.raises(ValueError, match="'fork'"):
        WorkerPool(str, 1, "fork")


@pytest.mark.parametrize("deaths", [1, 2])
def test_an_item_whose_worker_was_lost_is_tried_again(deaths: int, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def fragile(n: int) -> int:
        died = len(list(marks.iterdir()))
        if n == 3 and died < deaths:
            (marks / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return n * n

    with executor_map(LocalExecutor(LocalParams()), fragile, 2) as apply:
        if deaths == 1:
            assert list(apply(range(12))) == [n * n for n in range(12)]
        else:
            with pytest.raises(WorkerError, match=r"signal 9 .*item 3"):
                list(apply(range(12)))


def test_a_map_on_an_executor_reports_errors_and_may_be_abandoned() -> None:
    with executor_map(LocalExecutor(LocalParams()), lambda n: 12 // n, 2) as apply:
        with pytest.raises(WorkerError, match=r"item 1: ZeroDivisionError"):
            list(apply([1, 0]))
        assert next(apply(range(1, 1000))) == 12
        assert list(apply([4, 3])) == [3, 4]


def test_an_open_map_serves_several_passes() -> None:
    with worker_processes(2)(lambda n: n + 1) as apply:
        assert list(apply(range(5))) == [1, 2, 3, 4, 5]
        assert list(apply([7])) == [8]


def test_packages_of_the_command_line_are_imported_in_workers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_on_the_command_line.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "_imported", [])
    imports.import_extra(["named_on_the_command_line"])
    with WorkerPool(lambda name: name in sys.modules, workers=1) as pool:
        assert list(pool.map(["named_on_the_command_line", "another"])) == [True, False]
    sys.modules.pop("named_on_the_command_line")
