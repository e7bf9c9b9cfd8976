"""A tenth of the config fuzzing, and a check that it would notice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    path = Path(__file__).with_name("fuzz_configs.py")
    specification = importlib.util.spec_from_file_location("fuzz_configs", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz_configs"] = module  # Pydantic looks annotations up there.
    specification.loader.exec_module(module)
    return module


def test_mutated_configs_are_accepted_or_refused_with_a_place(
    fuzzer: ModuleType, tmp_path: Path
) -> None:
    tally, failures, _ = fuzzer.fuzz(1_000, 1, tmp_path)
    assert not failures, "\n".join(failures[:5])
    assert tally["accepted"] > 10
    assert tally["refused"] > 500


def test_the_fuzzer_notices_what_it_should(fuzzer: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    good = f"{path}:1:2: a: bad\ncommand line: seed: bad\n2 errors; nothing was run"
    assert fuzzer.complaint(good, path) == ""
    assert "no place" in fuzzer.complaint(f"{path}: bad\n1 error; nothing was run", path)
    assert "no place" in fuzzer.complaint("bad\n1 error; nothing was run", path)
    assert "wrong count" in fuzzer.complaint(good.replace("2 errors", "3 errors"), path)
    assert "wrong count" in fuzzer.complaint("nothing", path)
    path.write_text("algorithm: solve\n")
    assert fuzzer.verdict(path, [], fuzzer.registry()) == "accepted"
    assert "a bug: " in fuzzer.verdict(path, [], "no registry")
