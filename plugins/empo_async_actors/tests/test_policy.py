"""Policies reach the actors whole, or not at all."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from empo_async_actors.policy import Publisher, policy_path, read_policy
from empo_core.errors import NonFiniteError, StorageError, WorkerError

WEIGHTS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(5),
    "empty": torch.zeros(0, 2),
}


def test_what_is_read_is_what_was_published(tmp_path: Path) -> None:
    Publisher(tmp_path).publish(WEIGHTS, 3)
    found = read_policy(tmp_path, 3)
    assert set(found) == set(WEIGHTS)
    for name, tensor in WEIGHTS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_tensors_may_share_memory_and_need_gradients(tmp_path: Path) -> None:
    one = torch.zeros(3, requires_grad=True)
    Publisher(tmp_path).publish({"one": one, "same": one, "part": one[1:]}, 1)
    assert {name: len(tensor) for name, tensor in read_policy(tmp_path, 1).items()} == {
        "one": 3, "same": 3, "part": 2,
    }  # fmt: skip


def test_a_torn_file_is_refused_wherever_it_was_torn(tmp_path: Path) -> None:
    Publisher(tmp_path).publish(WEIGHTS, 1)
    path = policy_path(tmp_path, 1)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(WorkerError, match=r"policy 1 is damaged"):
            read_policy(tmp_path, 1)
        path.write_bytes(whole[:length] + bytes([whole[length] ^ 1]) + whole[length + 1 :])
        with pytest.raises(WorkerError, match=r"policy 1 is damaged"):
            read_policy(tmp_path, 1)


def test_one_version_is_never_taken_for_another(tmp_path: Path) -> None:
    Publisher(tmp_path).publish(WEIGHTS, 1)
    policy_path(tmp_path, 1).rename(policy_path(tmp_path, 2))
    with pytest.raises(WorkerError, match=r"policy 2 is damaged"):
        read_policy(tmp_path, 2)


def test_a_learner_killed_while_it_publishes_leaves_no_policy(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish(WEIGHTS, 1)
    # What such a learner leaves is a file without its name.
    policy_path(tmp_path, 2).with_suffix(".new").write_bytes(b"EMP1 half of")
    with pytest.raises(FileNotFoundError):
        read_policy(tmp_path, 2)
    publisher.publish(WEIGHTS, 2)
    assert torch.equal(read_policy(tmp_path, 2)["a"], WEIGHTS["a"])


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    for version in range(1, 6):
        publisher.publish(WEIGHTS, version)
    assert set(tmp_path.iterdir()) == {policy_path(tmp_path, 4), policy_path(tmp_path, 5)}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_never_published(tmp_path: Path, value: float) -> None:
    bad = torch.zeros(4)
    bad[2] = value
    with pytest.raises(NonFiniteError, match=r"policy 1, .* is not finite: layer\.weight"):
        Publisher(tmp_path).publish(WEIGHTS | {"layer.weight": bad}, 1)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError, match=r"policy 1 \(.* bytes\) cannot be given.*\(runs\)"):
            Publisher(tmp_path).publish({"big": torch.zeros(100_000)}, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
