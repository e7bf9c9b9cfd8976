"""Runs of Weights & Biases without a network, read back from their files."""

from __future__ import annotations

import json
import logging
import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.config import installed
from empo_core.errors import ConfigError, PluginLoadError
from empo_core.protocols import Tracker
from empo_core.tracker_group import TrackerGroup
from empo_core.types import Histogram
from empo_testing.tracker import TrackerTests
from empo_trackers.episodes import EpisodicHistogram
from empo_trackers.plugin import EpisodicHistogramParams, WandbParams
from empo_trackers.weights_and_biases import WandbTracker

OFFLINE = WandbParams(mode="offline", project="worlds", group="pairs", tags=["a", "b"])


@pytest.fixture
def wandb() -> Any:
    return pytest.importorskip("wandb", reason="wandb is not installed")


@pytest.mark.slow  # Every run starts a process of its own.
@pytest.mark.usefixtures("wandb")
class TestWandbTracker(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return WandbTracker(OFFLINE)


def chunks(data: bytes) -> Iterator[bytes]:
    """Records of a log as LevelDB writes it: blocks of 32 KiB, with records cut at their ends."""
    at, whole = 7, b""  # W&B begins with its name and a version.
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def records(directory: Path) -> list[Any]:
    """Everything in the files of a run, in the order of its parts."""
    from wandb.proto import wandb_internal_pb2

    paths = sorted((directory / "wandb").glob("offline-run-*/*.wandb"))
    data = [chunk for path in paths for chunk in chunks(path.read_bytes())]
    return [wandb_internal_pb2.Record.FromString(chunk) for chunk in data]


def history(directory: Path) -> list[dict[str, Any]]:
    """The points that were logged, without what W&B adds to them."""
    points = []
    for record in records(directory):
        if record.WhichOneof("record_type") == "history":
            point: dict[str, Any] = {}
            for item in record.history.item:
                *path, last = item.nested_key or [item.key]
                place = point
                for name in path:
                    place = place.setdefault(name, {})
                place[last] = json.loads(item.value_json)
            points.append({key: v for key, v in point.items() if not key.startswith("_")})
    return points


def test_a_run_can_be_read_back_without_a_network(wandb: Any, tmp_path: Path) -> None:
    environment = dict(os.environ)
    run = WandbTracker(OFFLINE)
    follower = EpisodicHistogram(EpisodicHistogramParams(alpha=1.0, reward_bins=[0, 1, 5]))
    trackers = TrackerGroup([run, follower])
    trackers.start(tmp_path, {"seed": 3, "algorithm": {"name": "rollout"}})
    trackers.start_episodes(2, ["won"])
    trackers.step_episodes(
        torch.tensor([0.5, 2.0]), torch.ones(2, dtype=torch.bool), torch.tensor([0, 0])
    )
    trackers.log(5, {"loss": math.nan})
    run.log(3, {"late": 1.0, "wide": Histogram(edges=[-math.inf, 0.0, 1.0], counts=[7, 8])})
    many = Histogram(edges=[float(edge) for edge in range(1202)], counts=[1] * 1201)
    run.log(4, {"many": many})
    trackers.finish("finished")

    first, second, third = history(tmp_path)
    assert (first["step"], second["step"], third["step"]) == (5, 3, 4)
    assert math.isnan(float(first["loss"]))
    assert (first["episodes/reward_ema"], first["episodes/completed"]) == (1.25, 2)
    assert first["episodes/termination_won_prob"] == 1.0
    rewards = first["histograms/reward"]
    assert rewards["_type"] == "histogram"
    assert (rewards["values"], rewards["bins"]) == ([1, 1], [0.0, 1.0, 5.0])
    assert second["late"] == 1.0
    assert (second["wide"]["values"], second["wide"]["bins"]) == ([7, 8], [0.0, 0.0, 1.0])
    assert third["many"]["values"] == [3] * 400 + [1]
    assert third["many"]["bins"][-2:] == [1200.0, 1201.0]

    (about,) = [r.run for r in records(tmp_path) if r.WhichOneof("record_type") == "run"]
    assert (about.project, about.run_group, list(about.tags)) == ("worlds", "pairs", ["a", "b"])
    assert about.display_name == tmp_path.name
    config = {item.key: json.loads(item.value_json) for item in about.config.update}
    assert config["algorithm"] == {"name": "rollout"}
    metrics = [r.metric for r in records(tmp_path) if r.WhichOneof("record_type") == "metric"]
    assert [(metric.glob_name, metric.step_metric) for metric in metrics] == [("*", "step")]
    assert dict(os.environ) == environment
    assert wandb.run is None


def test_a_resumed_run_is_the_same_run(wandb: Any, tmp_path: Path) -> None:
    for step, status in ((1, "interrupted"), (2, "finished")):
        run = WandbTracker(OFFLINE)
        run.start(tmp_path, {})
        run.log(step, {"x": float(step)})
        run.finish(status)  # type: ignore[arg-type]
    assert history(tmp_path) == [{"step": 1, "x": 1.0}, {"step": 2, "x": 2.0}]
    runs = [r.run.run_id for r in records(tmp_path) if r.WhichOneof("record_type") == "run"]
    assert len(runs) == 2
    assert len(set(runs)) == 1
    ends = [r.exit for r in records(tmp_path) if r.WhichOneof("record_type") == "exit"]
    assert [end.exit_code for end in ends] == [1, 0]


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    component = installed().get("tracker", "wandb")
    with pytest.raises(PluginLoadError, match=r"pip install 'empo-trackers\[wandb\]'"):
        component.load()(component.params())


def test_misuse_is_refused(wandb: Any) -> None:
    run = WandbTracker(OFFLINE)
    with pytest.raises(ValueError, match=r"call start\b"):
        run.log(0, {"x": 1.0})
    run.finish("finished")


@pytest.mark.usefixtures("wandb")
def test_who_is_not_logged_in_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ConfigError, match=r"wandb login.*offline"):
        WandbTracker(WandbParams()).start(tmp_path, {})


@pytest.mark.slow
@pytest.mark.usefixtures("wandb")
@pytest.mark.parametrize(("level", "is_heard"), [(logging.INFO, True), (logging.ERROR, False)])
def test_it_says_nothing_where_only_errors_are_shown(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    level: int,
    is_heard: bool,
) -> None:
    handler = logging.StreamHandler()
    handler.setLevel(level)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    tracker = WandbTracker(OFFLINE)
    tracker.start(tmp_path, {})
    tracker.log(1, {"a": 1.0})
    tracker.finish("finished")
    assert ("wandb:" in capfd.readouterr().err) == is_heard
