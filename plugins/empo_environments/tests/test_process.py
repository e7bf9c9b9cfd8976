"""Environments in worker processes, and workers that die."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import ObservationSpec, TimeStep
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.process import OnCrash, ProcessVectorEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.single_env import MakeEnv
from empo_testing.environment import MakeVector, Player, VectorEnvTests

GRACE_S = 20.0
"""Time limit in seconds for operations that finish at once on an idle machine."""


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Worker processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Obedient(gymnasium.Env[np.ndarray, np.int64]):
    """Shows its process, its episode's random number and its steps; does what it is told."""

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.luck = 0, self.np_random.random()
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        (lambda: None, end_worker, fail, hang, leave, lambda: None)[action]()
        reward = np.nan if action == 5 else 1.0
        return self.seen(), reward, False, self.steps == 50, {}

    def seen(self) -> np.ndarray:
        return np.array([os.getpid(), self.luck, self.steps], np.float32)


GO, DIE, FAIL, HANG, LEAVE, NAN = range(6)


def end_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> NoReturn:
    raise RuntimeError("out of cheese")


def hang() -> None:
    time.sleep(600)


def leave() -> NoReturn:
    os._exit(7)


def obedient() -> GymnasiumEnv:
    return GymnasiumEnv(Obedient())


def cartpole() -> GymnasiumEnv:
    return GymnasiumEnv(gymnasium.make("CartPole-v1", disable_env_checker=True))


Build = Callable[..., ProcessVectorEnv]


@pytest.fixture
def build() -> Iterator[Build]:
    """Builds vectors of four environments in two workers, and closes them in the end."""
    built: list[ProcessVectorEnv] = []

    def build_one(make: MakeEnv = obedient, **kwargs: Any) -> ProcessVectorEnv:
        settings = {"workers": 2, "blocks": 2, "order": "rotation", "on_crash": "stop", **kwargs}
        built.append(ProcessVectorEnv([make] * 4, **settings))
        return built[-1]

    yield build_one
    for vector in built:
        vector.close()


def act(vector: ProcessVectorEnv, block: int, *options: int) -> None:
    vector.send(block, np.array(options)[:, None])


def recv_block(vector: ProcessVectorEnv, block: int) -> TimeStep:
    arrival = vector.recv()
    assert arrival.block == block
    return arrival


def recv_all(vector: ProcessVectorEnv) -> None:
    """Receive both blocks; which of them a failure comes ahead of is chance."""
    vector.recv()
    vector.recv()


def workers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE and process.num_threads() > 1
    ]


class TestProcess(VectorEnvTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: ProcessVectorEnv(
            [cartpole] * 4, workers=2, blocks=2, order="rotation", on_crash="stop"
        )


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (2, 1), (4, 2)])
def test_who_steps_them_makes_no_difference(build: Build, count: int, blocks: int) -> None:
    serial = SerialVectorEnv([cartpole] * 4, blocks=blocks, order="rotation")
    logs = []
    for vector in (serial, build(cartpole, workers=count, blocks=blocks)):
        vector.start(1)
        player = Player(vector)
        player.play(40)
        logs.append(np.concatenate([arrival.observation for arrival in player.log[0]]))
    np.testing.assert_array_equal(*logs)


def test_pictures_and_masks_reach_the_learner(build: Build) -> None:
    class Paints(Obedient):
        observation_space = spaces.Box(0, 255, (4, 5, 3), np.uint8)

        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], {"action_mask": np.array([1, 0, 0, 0, 0, 0])}

        def step(self, action: Any) -> Any:
            mask = {"action_mask": np.arange(6) % 5 == 0}
            return (*super().step(GO)[:4], mask)

        def seen(self) -> np.ndarray:
            return np.full((4, 5, 3), self.steps, np.uint8)

    vector = build(lambda: GymnasiumEnv(Paints()))
    vector.start(0)
    assert vector.spec.masks
    assert vector.spec.observations.grid == (3, 4, 5)
    first = recv_block(vector, 0)
    assert first.mask is not None
    assert first.mask.tolist() == [[True, *[False] * 5]] * 2
    act(vector, 0, GO, GO)
    recv_block(vector, 1)
    arrival = recv_block(vector, 0)
    assert arrival.observation.dtype == np.uint8
    assert (arrival.observation == 1).all()
    assert arrival.mask is not None
    assert arrival.mask.sum(1).tolist() == [2, 2]


def test_a_state_of_serial_environments_goes_on_in_workers(build: Build) -> None:
    serial = SerialVectorEnv([cartpole] * 4, blocks=2, order="rotation")
    serial.start(1)
    player = Player(serial)
    player.play(10)
    later = build(cartpole, workers=4)
    assert later.load_state_dict(serial.state_dict())
    heir = player.succeed(later)
    player.play(20)
    heir.play(20)
    for one, other in zip(player.log, heir.log, strict=True):
        for a, b in zip(one[10:], other, strict=True):
            np.testing.assert_array_equal(a.observation, b.observation)


def test_blocks_that_are_ready_first_arrive_first(build: Build) -> None:
    vector = build(order="arrival")
    vector.start(0)
    first = vector.recv()
    second = vector.recv()
    # The worker of one block is stopped, so that only the other can be ready.
    slow = psutil.Process(int(first.observation[0, 0]))
    slow.suspend()
    act(vector, first.block, GO, GO)
    act(vector, second.block, GO, GO)
    assert vector.recv().block == second.block
    act(vector, second.block, GO, GO)
    assert vector.recv().block == second.block
    slow.resume()
    assert vector.recv().block == first.block


def test_environments_live_in_workers_with_one_thread_of_torch(build: Build) -> None:
    class Threads(Obedient):
        def seen(self) -> np.ndarray:
            import torch

            return np.array([os.getpid(), torch.get_num_threads(), 0], np.float32)

    vector = build(lambda: GymnasiumEnv(Threads()))
    vector.start(0)
    seen = np.concatenate([vector.recv().observation, vector.recv().observation])
    assert (seen[:, 1] == 1).all()
    assert len(set(seen[:, 0])) == 2
    assert os.getpid() not in seen[:, 0]


@pytest.mark.parametrize(("order", "complaint"), [
    (DIE, r"worker 1 .*killed by signal 9.*memory"),
    (LEAVE, r"worker 1 .*exited with code 7"),
    (FAIL, r"(?s)worker 1 .*environment 3 .*step 2: RuntimeError.*Traceback.*fail"),
    (NAN, r"worker 1 .*environment 3 .*step 2.*observation.*reward nan"),
])  # fmt: skip
def test_a_worker_that_fails_is_reported_and_nothing_hangs(
    build: Build, order: int, complaint: str
) -> None:
    vector = build()
    vector.start(0)
    for _ in range(2):
        for block in range(2):
            recv_block(vector, block)
            act(vector, block, GO, order if block and vector._steps[1] else GO)
    for _ in range(2):  # It stays so.
        with pytest.raises(CollectError, match=complaint):
            recv_all(vector)


def test_a_worker_that_dies_in_its_sleep_is_noticed_when_it_is_needed(build: Build) -> None:
    vector = build()
    vector.start(0)
    first = recv_block(vector, 0)
    psutil.Process(int(first.observation[0, 0])).kill()
    recv_block(vector, 1)
    act(vector, 1, GO, GO)
    act(vector, 0, GO, GO)
    with pytest.raises(CollectError, match=r"worker 0 .*signal 9"):
        recv_all(vector)


@pytest.mark.parametrize("order", [DIE, FAIL, LEAVE])
def test_a_worker_that_is_started_anew_begins_new_episodes(
    build: Build, order: int, caplog: pytest.LogCaptureFixture
) -> None:
    vector = build(on_crash="restart")
    vector.start(0)
    before = [recv_block(vector, block).observation.copy() for block in range(2)]
    act(vector, 0, GO, GO)
    act(vector, 1, order, GO)
    recv_block(vector, 0)
    with caplog.at_level(logging.WARNING):
        lost = recv_block(vector, 1)
    assert "worker 1 is started anew (time 1 of 3" in caplog.text
    assert lost.truncated.all()
    assert lost.starts.all()
    assert lost.acts.all()
    assert not lost.terminated.any()
    assert not lost.reward.any()
    assert not len(lost.final_row)
    assert (lost.observation[:, 0] != before[1][:, 0]).all(), "another process"
    assert (lost.observation[:, 1] != before[1][:, 1]).all(), "other episodes"
    act(vector, 1, GO, GO)
    act(vector, 0, GO, GO)
    recv_block(vector, 1)
    arrival = recv_block(vector, 0)
    assert arrival.observation[:, 2].tolist() == [2, 2], "the others went on"


def test_a_worker_that_died_in_its_sleep_is_started_anew_too(build: Build) -> None:
    vector = build(on_crash="restart")
    vector.start(0)
    first = recv_block(vector, 0)
    psutil.Process(int(first.observation[0, 0])).kill()
    act(vector, 0, GO, GO)
    recv_block(vector, 1)
    lost = recv_block(vector, 0)
    assert lost.truncated.all()
    assert lost.starts.all()


def test_the_state_is_known_even_if_a_worker_died_before_it_was_asked_for(build: Build) -> None:
    class Nameless(Obedient):
        def seen(self) -> np.ndarray:
            return np.array([0, self.luck, self.steps], np.float32)

    vector = build(lambda: GymnasiumEnv(Nameless()), on_crash="restart")
    vector.start(0)
    held = [recv_block(vector, block).observation.copy() for block in range(2)]
    psutil.Process(vector._workers[0].pid).kill()
    state = vector.state_dict()
    # What it would do now is about observations of episodes that are lost.
    act(vector, 0, GO, GO)
    act(vector, 1, GO, GO)
    lost = recv_block(vector, 0)
    assert lost.truncated.all()
    assert lost.starts.all()
    assert lost.observation[:, 2].tolist() == [0, 0]
    assert (lost.observation[:, 1] != held[0][:, 1]).all()
    later = build(lambda: GymnasiumEnv(Nameless()))
    assert later.load_state_dict(state)
    np.testing.assert_array_equal(later.recv().observation, lost.observation)


def test_a_worker_that_keeps_failing_ends_it(build: Build) -> None:
    vector = build(on_crash="restart")
    vector.start(0)
    recv_block(vector, 0)
    for _ in range(3):
        act(vector, 0, FAIL, GO)
        recv_block(vector, 1)
        act(vector, 1, GO, GO)
        recv_block(vector, 0)
    act(vector, 0, FAIL, GO)
    with pytest.raises(CollectError, match=r"(?s)4 times within 10,000 steps.*RuntimeError"):
        recv_all(vector)


def test_what_must_not_be_returned_is_no_crash_to_start_anew_after(build: Build) -> None:
    vector = build(on_crash="restart")
    vector.start(0)
    recv_block(vector, 0)
    act(vector, 0, NAN, GO)
    with pytest.raises(CollectError, match=r"environment 0 .*reward nan"):
        recv_all(vector)


def test_environments_that_cannot_be_made_are_reported(build: Build) -> None:
    def make() -> NoReturn:
        raise RuntimeError("no display")

    with pytest.raises(CollectError, match=r"(?s)environment \d .*made: RuntimeError: no display"):
        build(make)
    with pytest.raises(CollectError, match="code 7"):
        build(leave)


def test_spaces_that_do_not_fit_are_a_mistake_in_the_config(build: Build) -> None:
    class Talks(Obedient):
        observation_space = spaces.Text(3)

    with pytest.raises(ConfigError, match=r"environment 0 .*Text"):
        build(lambda: GymnasiumEnv(Talks()))


def test_what_cannot_be_sent_to_workers_is_refused(build: Build, tmp_path: Path) -> None:
    file = (tmp_path / "file").open("w")
    with file, pytest.raises(ConfigError, match=r"sent.*serial"):
        build(lambda: file)


@pytest.mark.parametrize(("count", "blocks"), [(3, 1), (4, 3), (0, 1), (2, 0), (2, 4)])
def test_sizes_that_do_not_divide_are_refused(build: Build, count: int, blocks: int) -> None:
    with pytest.raises(ConfigError, match=f"4 environments, {count} workers and {blocks} blocks"):
        build(workers=count, blocks=blocks)


def test_more_memory_than_the_machine_has_is_refused(build: Build) -> None:
    class Huge(GymnasiumEnv):
        def __init__(self) -> None:
            super().__init__(Obedient())
            self.observations = ObservationSpec(words=10**14)

    with pytest.raises(ConfigError, match=r"shared memory"):
        build(Huge)


def test_closing_takes_seconds_whatever_the_workers_are_doing(build: Build) -> None:
    vector = build()
    vector.start(0)
    stopped, _ = recv_block(vector, 0), recv_block(vector, 1)
    act(vector, 1, HANG, GO)
    psutil.Process(int(stopped.observation[0, 0])).suspend()
    begin = time.monotonic()
    vector.close()
    assert time.monotonic() - begin < GRACE_S
    assert not workers()


class Hanging(Obedient):
    """Never ends a step in which it is told to die."""

    def step(self, action: Any) -> Any:
        if action == DIE:
            threading.Event().wait()
        return super().step(action)


def hanging() -> GymnasiumEnv:
    return GymnasiumEnv(Hanging())


def test_an_environment_that_hangs_ends_the_run_with_its_worker_named(build: Build) -> None:
    vector = build(hanging, answer_limit_s=1.0)
    vector.start(0)
    recv_block(vector, 0)
    act(vector, 0, DIE, GO)
    with pytest.raises(CollectError, match=r"^worker 0 .* hangs.*answer_limit_s: 1\)"):
        recv_all(vector)


def test_an_environment_that_hangs_is_started_anew_where_that_is_asked_for(build: Build) -> None:
    vector = build(hanging, answer_limit_s=4.0, on_crash="restart")
    vector.start(0)
    recv_block(vector, 0)
    act(vector, 0, DIE, GO)
    assert recv_block(vector, 1).starts.all()
    act(vector, 1, GO, GO)
    assert recv_block(vector, 0).starts.all()


def test_time_in_which_nobody_waits_takes_no_worker_for_hanging(build: Build) -> None:
    vector = build(answer_limit_s=4.0)
    vector.start(0)
    first, second = vector.recv().block, vector.recv().block
    stopped = vector._workers[1].pid
    os.kill(stopped, signal.SIGSTOP)  # As Ctrl-Z does, which stops the learner, too.
    act(vector, first, GO, GO)
    act(vector, second, GO, GO)
    time.sleep(5)
    threading.Timer(0.3, os.kill, (stopped, signal.SIGCONT)).start()
    assert {vector.recv().block, vector.recv().block} == {0, 1}


def test_nothing_is_left_behind() -> None:
    def left() -> tuple[set[str], int]:
        gc.collect()  # Errors keep the frames in which they were raised.
        return set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))

    def use(on_crash: OnCrash) -> None:
        vector = ProcessVectorEnv(
            [obedient] * 4, workers=2, blocks=2, order="rotation", on_crash=on_crash
        )
        vector.start(0)
        recv_block(vector, 0)
        act(vector, 0, DIE, GO)
        with contextlib.nullcontext() if on_crash == "restart" else pytest.raises(CollectError):
            recv_all(vector)
        assert workers()
        vector.close()

    use("stop")
    before = left()
    use("stop")
    use("restart")
    with pytest.raises(CollectError):
        ProcessVectorEnv([fail] * 2, workers=2, blocks=1, order="rotation", on_crash="stop")
    assert not workers()
    assert left() == before


def test_workers_end_when_nobody_has_the_vector_any_more() -> None:
    vector = ProcessVectorEnv(
        [obedient] * 4, workers=2, blocks=2, order="rotation", on_crash="stop"
    )
    vector.start(0)
    assert workers()
    del vector
    gc.collect()
    assert not workers()


def test_closed_environments_say_so(build: Build) -> None:
    vector = build()
    vector.start(0)
    vector.close()
    with pytest.raises(CollectError, match="closed"):
        vector.recv()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_that_reach_everybody_leave_workers_alone(build: Build, name: str) -> None:
    vector = build()
    vector.start(0)
    arrival = recv_block(vector, 0)
    worker = int(arrival.observation[0, 0])
    os.kill(worker, signal.Signals[name])
    server = psutil.Process(worker).ppid()
    assert server != os.getpid()
    os.kill(server, signal.Signals[name])
    act(vector, 0, GO, GO)
    recv_block(vector, 1)
    assert recv_block(vector, 0).observation[:, 2].tolist() == [1, 1]


SCRIPT = """
import gymnasium, sys
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.process import ProcessVectorEnv

def make():
    return GymnasiumEnv(gymnasium.make("CartPole-v1"))

if __name__ == "__main__":
    vector = ProcessVectorEnv([make] * 2, workers=2, blocks=1, order="rotation", on_crash="stop")
    vector.start(0)
    vector.recv()
    print(*[worker.pid for worker in vector._workers], flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "left"])
def test_workers_end_with_the_learner_however_it_ends(tmp_path: Path, how: str) -> None:
    script = tmp_path / "learner.py"
    script.write_text(SCRIPT, encoding="utf-8")
    learner = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert learner.stdout is not None
    assert learner.stdin is not None
    running = [psutil.Process(int(pid)) for pid in learner.stdout.readline().split()]
    assert len(running) == 2
    if how == "killed":
        learner.kill()
    else:
        learner.stdin.close()
    learner.wait(GRACE_S)
    assert not psutil.wait_procs(running, GRACE_S)[1]
    learner.stdout.close()
    learner.stdin.close()
