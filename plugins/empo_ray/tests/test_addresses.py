"""Addresses of clusters: refused unless they are allowed and something answers there."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from empo_core.errors import ConfigError, WorkerError
from empo_core.protocols import Needs
from empo_testing.echo_worker import EchoWorker

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from empo_core.config.files import load_config
from empo_ray.addresses import allowed_address
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams

CONFIG = """
world_model: multigrid/trivial
algorithm:
  name: phase2
  params:
    human_prior: exact
    values: {q_r: lookup, v_h_e: lookup}
    collector: {name: async, params: {executor: {name: ray, params: {address: auto}}}}
"""
PARAMS = "algorithm.params.collector.params.executor.params"


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_cluster_of_this_machine_needs_no_permission() -> None:
    assert allowed_address("local", []) == "local"


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:6379", "localhost:6379", "ray://a:1"])
def test_every_other_address_does(address: str) -> None:
    with pytest.raises(WorkerError, match=re.escape(repr(address)) + r" .*allow_addresses"):
        allowed_address(address, ["127.0.0.2:6379"])


def test_an_address_of_the_environment_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.7:6379")
    with pytest.raises(WorkerError, match=r"'192\.0\.2\.7:6379' \.of RAY_ADDRESS"):
        allowed_address("auto", ["auto"])
    assert allowed_address("local", []) == "local"


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "nowhere", ":1", "127.0.0.1:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(WorkerError, match="HOST:PORT"):
        allowed_address(address, [address])


def test_an_address_without_a_cluster_is_refused_in_one_line() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Not listening.
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(WorkerError, match=rf"{address}:.*refused"):
            allowed_address(address, [address])


def test_permission_cannot_be_given_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError, match="allow_addresses"):
        load_config(path, [f"{PARAMS}.allow_addresses=[auto]"])
    assert load_config(path, [f"{PARAMS}.place_timeout_s=1"])


def test_nothing_is_connected_to_without_permission(tmp_path: Path) -> None:
    executor = RayExecutor(RayParams(address="auto"))
    with pytest.raises(WorkerError, match=r"write allow_addresses: \.'auto'"):
        executor.start(EchoWorker, 1, Needs(), tmp_path, 0)
    assert not list(tmp_path.iterdir())
