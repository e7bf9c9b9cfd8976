"""``empo warmup`` calls the kernels of all plugins, so that later runs only load them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.plugins.registry import KernelHook, Provider, Registry
from empo_worlds import warmup
from empo_worlds.compilation import is_loaded, kernels

WITHOUT_HORIZON = {
    "empo_exact.acyclic.count_predecessors",
    "empo_exact.acyclic.peel",
    "empo_exact.parts.sweeps.find_ready",
}
"""Kernels for worlds without a horizon, of which no plugin brings a small one."""


@pytest.mark.slow
def test_all_kernels_are_called_but_for_those_of_worlds_without_a_horizon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["warmup", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    names = {hook.provider.distribution for hook in installed().kernel_hooks}
    assert {plugin["distribution"] for plugin in told["plugins"]} == names
    assert names >= {"empo-exact", "empo-multigrid", "empo-worlds"}
    assert all(Path(folder).is_dir() for folder in told["folders"])
    assert told["folders"]
    assert list(tmp_path.iterdir()) == []
    ours = [kernel for kernel in kernels if kernel.__module__.startswith("empo_")]
    left = {f"{kernel.__module__}.{kernel.__name__}" for kernel in ours if not is_loaded(kernel)}
    assert left <= WITHOUT_HORIZON


def test_kernels_are_told_by_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    (ours,) = (h for h in installed().kernel_hooks if h.provider.distribution == "empo-worlds")
    registry = Registry([], [ours.provider], kernel_hooks=[ours])
    monkeypatch.setattr(warmup, "installed", lambda: registry)
    done = CliRunner().invoke(app, ["warmup", "--json"])
    assert done.exit_code == 0, done.output
    ((plugin,), folders) = json.loads(done.stdout).values()
    assert plugin["distribution"] == "empo-worlds"
    assert all(kernel.signatures for kernel in kernels if "row_table" in kernel.__module__)
    assert all(Path(folder).is_dir() for folder in folders)


def test_an_error_of_a_hook_names_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider("empo-broken", "1.0", "empo-broken")
    registry = Registry([], [provider], kernel_hooks=[KernelHook(provider, "json:loads")])
    monkeypatch.setattr(warmup, "installed", lambda: registry)
    done = CliRunner().invoke(app, ["warmup"])
    assert done.exit_code == 3
    assert "empo-broken" in done.stderr
    assert "TypeError" in done.stderr
