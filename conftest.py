"""Check every jaxtyping shape at run time while tests run, and run kits inside tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import jaxtyping
import pytest

from empo_testing import shape_checks

pytest_plugins = ["pytester"]

# The same examples in every run, and no deadline: on a busy machine any example may be slow.
hypothesis.settings.register_profile("deterministic", deadline=None, derandomize=True)
hypothesis.settings.load_profile("deterministic")

# Before torch is imported, here and in processes that tests start: what they compute is small, and
# threads that wait for each other make it ten times slower on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# To draw the pictures of a run takes half of a second; tests that look at them take the fixture
# ``pictures``.
os.environ.setdefault("EMPO_BLOCK_PLUGINS", "empo-pictures")

# Files of tests are in memory where it has room: disks take milliseconds for each of thousands of
# files that are synchronised.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def _tensor_modules() -> list[str]:
    """Names of all modules that say shapes of tensors, the core's and the plugins'."""
    root = Path(__file__).parent
    sources = [(root, "empo_core/**/*.py")]
    sources += [(source, "**/*.py") for source in root.glob("plugins/*/src")]
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for source, pattern in sources
        for path in sorted(source.glob(pattern))
        if "jaxtyping" in path.read_text("utf-8")
    ]


shape_checks.install(_tensor_modules())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than processors, since many tests wait for processes that they start."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    of_gpus = [item for item in items if item.get_closest_marker("gpu")]
    if of_gpus:
        import torch

        reason = "there is no CUDA device; run by `nox -s gpu` where there is one"
        for item in of_gpus:
            item.add_marker(pytest.mark.skipif(not torch.cuda.is_available(), reason=reason))


def pytest_collection_finish() -> None:
    """Spare later searches for garbage what lives to the end: libraries and thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw the pictures of finished runs, as where no plugin is blocked."""
    from empo_core.config import installed

    monkeypatch.delenv("EMPO_BLOCK_PLUGINS")
    installed.cache_clear()
    yield
    installed.cache_clear()


@pytest.fixture
def no_shape_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave it to the tested code to refuse what has a wrong type or shape."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """Let SIGHUP end this process, which ignores it where tests run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class _Outcomes:
    """A pytest plugin that notes what passed and what failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.split("::")[-1].split("[")[0]
        if report.failed:
            self.failed.add(name)
        elif report.passed and report.when == "call":
            self.passed.add(name)


@pytest.fixture
def kit_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """A function that runs a kit's subclass in a pytest of its own and names what fails.

    It takes the class and, optionally, the names of the only tests to run. It stays in this
    process, where torch is imported already, and does without ``pytester``, which unloads
    what torch imports late; torch cannot import that a second time.
    """

    def run(tests: type, only: Sequence[str] = ()) -> set[str]:
        case = ModuleType("kit_case")
        case.TestCase = tests  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kit_case", case)
        path = tmp_path / "test_case.py"
        path.write_text("from kit_case import TestCase\n", encoding="utf-8")
        options = ["-q", "--tb=native", "--no-summary", "-Werror", "--import-mode=importlib"]
        options += ["-c", os.devnull, "--basetemp", str(tmp_path / "inner")]
        # The hypothesis plugin would have every run pay for importing hypothesis.
        options += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:timeout"]
        # Nor should each collect garbage ten times, or look through all folders above its own.
        options += ["-p", "no:unraisableexception", f"--confcutdir={tmp_path}"]
        if only:
            options += ["-k", " or ".join(only)]
        outcomes = _Outcomes()
        pytest.main([str(path), f"--rootdir={tmp_path}", *options], plugins=[outcomes])
        sys.modules.pop("test_case", None)
        assert outcomes.passed or outcomes.failed, "the kit ran no test"
        return outcomes.failed

    return run


@pytest.fixture
def edit_model() -> Callable[..., None]:
    """A function that changes a saved model and seals it again.

    It takes the file, what changes of the body by key (groups are merged), and, optionally, another
    version, or another dtype of the weights.
    """
    import json

    from safetensors import safe_open

    from empo_learning.saved_model import KEY, VERSION, model_bytes

    def edit(
        path: Path,
        change: dict[str, Any],
        *,
        version: int = VERSION,
        dtype: str | None = None,
    ) -> None:
        with safe_open(path, "pt") as file:
            body = json.loads(file.metadata()[KEY])["body"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if dtype is not None:
            tensors = {name: getattr(tensor, dtype)() for name, tensor in tensors.items()}
        for key, value in change.items():
            old = body.get(key)
            merges = isinstance(old, dict) and isinstance(value, dict)
            body[key] = {**old, **value} if merges else value
        path.write_bytes(model_bytes(body, tensors, version))

    return edit
