"""Freed memory stays with the process where the C library can be told so."""

import platform
import resource

import pytest
import torch

from empo_learning.allocator import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_large_tensors_get_the_pages_of_those_before_them() -> None:
    assert keep_freed_memory()
    faults = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        torch.ones(4_000_000)  # 16 MB are about 4,000 pages.
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    assert sum(faults[10:]) < 4000  # The first ones may still find no place that is large enough.


def test_asking_twice_changes_nothing() -> None:
    assert keep_freed_memory() == keep_freed_memory()
