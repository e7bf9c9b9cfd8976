"""A tenth of the world fuzzing; ``fuzz_worlds.py`` runs all of it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def fuzz_worlds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script beside this file, as a module."""
    path = Path(__file__).with_name("fuzz_worlds.py")
    spec = importlib.util.spec_from_file_location("fuzz_worlds", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz_worlds", module)  # Dataclasses look it up.
    spec.loader.exec_module(module)
    return module


def test_five_hundred_mutated_worlds_load_or_are_refused_where_they_are_wrong(
    fuzz_worlds: ModuleType,
) -> None:
    tally = fuzz_worlds.fuzz(500, seed=1)
    assert tally.failures == []
    assert tally.accepted > 25
    assert tally.refused > 250
    assert len(tally.reasons) > 30
