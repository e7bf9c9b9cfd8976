"""Actors that fail on purpose, and a trivial learner; also a script that ends in many ways."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.config import ExecutorRef
from empo_core.protocols import Actor, ActorFactory, Weights
from empo_core.types import Experience

Fault = Literal["raise", "exit", "_exit", "sleep", "stop", "kill", "nothing"]
STEPS = 4
"""Environment steps per call of ``act``."""


@dataclass
class CountingActor:
    """Numbers what it does, and says which weights it acted with.

    Attributes:
        index: What the factory was called with.
        payload: Bytes in each experience.
        pause_s: What a step takes.
        fault: What happens in act number ``at``.
    """

    index: int
    payload: int = 100
    pause_s: float = 0.0
    fault: Fault = "nothing"
    at: int = 0
    count: int = 0
    version: int = 0
    weight: float = 0.0

    def load(self, weights: Weights, version: int) -> None:
        self.weight = float(weights["weight"][0])
        # All entries are equal; those of two policies mixed up would not be.
        assert bool((weights["weight"] == self.weight).all())
        self.version = version

    def act(self, training_step: int) -> Experience:
        self.count += 1
        if self.count == self.at:
            fail(self.fault)
        if self.pause_s:
            time.sleep(self.pause_s)
        data = np.random.default_rng((self.index, self.count)).bytes(self.payload)
        arrays = {
            "who": np.array([self.index, self.count, training_step]),
            "weight": np.array(self.weight),
            "data": np.frombuffer(data, np.uint8),
            "crc": np.array([zlib.crc32(data)], np.uint32),
        }
        return Experience(arrays, STEPS, version=self.version)

    def state_dict(self) -> dict[str, Any]:
        return {"index": self.index, "count": self.count, "tensor": torch.arange(3)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.index, self.count = state_dict["index"], state_dict["count"]


def fail(fault: Fault) -> None:
    """Do what actors should not do."""
    if fault == "raise":
        raise RuntimeError("the planted fault")
    if fault == "exit":
        sys.exit(0)
    if fault == "_exit":
        os._exit(0)
    if fault == "sleep":
        time.sleep(1e9)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def counting(**settings: Any) -> ActorFactory:
    """A factory of actors with these settings."""

    def make(index: int) -> Actor:
        return CountingActor(index, **settings)

    return make


def weights(value: float) -> dict[str, torch.Tensor]:
    """A policy that is one number throughout."""
    return {"weight": torch.full((20_000,), float(value))}


@dataclass
class Learner:
    """Keeps the newest experience and counts the rest; checks every piece."""

    collector: AsyncCollector
    capacity: int = 200
    publish_every: int = 5
    step: int = 0
    evicted: int = 0
    buffer: deque[Experience] = field(default_factory=deque)
    seen: dict[int, int] = field(default_factory=dict)
    """The last number of each actor that was ever built."""
    weight: dict[int, float] = field(default_factory=dict)
    """The weight published with each policy version."""
    wrong: list[str] = field(default_factory=list)

    def publish(self) -> None:
        """Publish a policy that says when it was made."""
        self.collector.publish(weights(self.step), self.step)
        version = int(self.collector.counters()["policy_version"])
        self.weight[version] = float(self.step)

    def learn(self) -> Sequence[Experience]:
        """One training step."""
        if self.step % self.publish_every == 0:
            self.publish()
        arrived = self.collector.collect(self.step)
        for experience in arrived:
            self.check(experience)
            self.buffer.append(experience)
        while len(self.buffer) > self.capacity:
            self.buffer.popleft()
            self.evicted += 1
        self.step += 1
        return arrived

    def check(self, experience: Experience) -> None:
        """Notice what was lost, came twice, was torn, or was made with a stale policy."""
        arrays = experience.arrays
        index, count, _ = arrays["who"].tolist()
        if count != self.seen.get(index, 0) + 1:
            self.wrong.append(f"{index}: {count} after {self.seen.get(index, 0)}")
        self.seen[index] = count
        if zlib.crc32(arrays["data"].tobytes()) != arrays["crc"][0]:
            self.wrong.append(f"{index}: {count} is torn")
        if float(arrays["weight"]) != self.weight.get(experience.version):
            self.wrong.append(f"{index}: {count} was made with a stale policy")

    def imbalance(self) -> list[str]:
        """Violations of the accounting identities, after the collector was stopped."""
        accounts = self.collector.incarnations()
        counters = self.collector.counters()
        accepted = sum(account.experiences for account in accounts)
        delivered = sum(account.delivered for account in accounts)
        queued = counters["queued_env_steps"] / STEPS
        equal = {
            "accepted = counted": (accepted, counters["accepted_frames"]),
            "accepted = delivered + queued": (accepted, delivered + queued),
            "delivered = in buffer + evicted": (delivered, len(self.buffer) + self.evicted),
            "delivered = seen": (delivered, sum(self.seen.values())),
            "steps": (counters["env_steps"], STEPS * accepted),
        }
        return [f"{name}: {a} != {b}" for name, (a, b) in equal.items() if a != b]


def kill_at_random(
    learner: Learner, kills: int, chance: random.Random, kill: Callable[[int], None]
) -> None:
    """Learn, and every now and then do something to an actor's process, once to each."""
    hit = set[int]()
    while len(hit) < kills:
        learner.learn()
        time.sleep(chance.uniform(0, 0.03))
        pids = [pid for pid in learner.collector.pids() if pid not in hit]
        if pids and chance.random() < 0.3:
            victim = chance.choice(pids)
            hit.add(victim)
            kill(victim)


def main(ending: str, start_method: str, channels: str) -> None:
    """Learn until the ending comes; print the processes of the actors first."""
    full = channels == "full"
    settings: dict[str, Any] = {"payload": 300_000} if full else {"pause_s": 0.05}
    if ending == "actor raises":
        settings |= {"fault": "raise", "at": 3}
    executor = {"name": "local", "params": {"start_method": start_method}}
    params = AsyncParams(
        actors=2, executor=ExecutorRef.model_validate(executor), min_env_steps=1, queue_size=80,
        max_restarts=1, max_env_steps_per_training_step=None,
    )  # fmt: skip
    collector = AsyncCollector(params)
    try:
        collector.start(counting(**settings))
        learner = Learner(collector)
        learner.learn()
        print(*collector.pids(), flush=True)
        if full:
            while collector.counters()["queued_env_steps"] < params.queue_size:
                if ending == "actor raises":
                    break
                time.sleep(0.01)
        print("now", flush=True)
        if ending == "learner raises":
            raise ValueError("the learner's own fault")
        while ending not in {"normal", "forgets to stop"}:
            if not full or ending == "actor raises":
                learner.learn()
            time.sleep(0.01)
    finally:
        if ending != "forgets to stop":
            collector.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(*sys.argv[1:])
