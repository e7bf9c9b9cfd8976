"""A process of a group is killed, and another says so; torchrun and whole runs are tested apart."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys

import pytest

from empo_learning.distributed import RankLostError, join


@pytest.mark.slow
def test_a_process_that_is_killed_is_named_by_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in (common | {"RANK": "0", "LOCAL_RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    own = os.environ | common | {"RANK": "1", "LOCAL_RANK": "1"}
    with subprocess.Popen([sys.executable, __file__], env=own) as other, join() as group:
        assert group.gathered(group.rank) == [0, 1]
        named = rf"rank 1 \(process {other.pid} on {platform.node()}\)"
        with pytest.raises(RankLostError, match=named):
            group.sum(1)
        assert (group.size, group.sum(1), group.gathered("alone")) == (1, 1, ["alone"])
    assert other.returncode == -signal.SIGKILL


if __name__ == "__main__":
    with join() as second:
        second.gathered(second.rank)
        os.kill(os.getpid(), signal.SIGKILL)
