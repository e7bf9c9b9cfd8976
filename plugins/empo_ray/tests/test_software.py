"""Software of nodes, as it is compared before they work."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from other_software import other_software

from empo_ray.software import differences, software

REPORT = "import json; from empo_ray.software import software; print(json.dumps(software()))"


def report(path: str) -> dict[str, str]:
    """The software of a process that finds other distributions first."""
    command = [sys.executable, "-c", REPORT]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_software_of_this_process_is_read_from_metadata() -> None:
    found = software()
    assert found["Python"] == platform.python_version()
    assert found["byte order"] == sys.byteorder
    assert found["torch"] == metadata.version("torch")
    assert found["empo-ray"] == metadata.version("empo-ray")


PATCH = ".".join([*platform.python_version_tuple()[:2], "99"])


@pytest.mark.parametrize(
    ("name", "version", "is_other"),
    [
        ("Python", "3.99.1", True),
        ("Python", PATCH, False),
        ("torch", metadata.version("torch") + ".1", True),
        ("numpy", "99.0.0", True),
        ("numpy", metadata.version("numpy").rpartition(".")[0] + ".99", False),
        ("empo-core", "9.9.0", True),
        ("empo-ray", "9.9.0", True),
        ("empo-executors", metadata.version("empo-executors") + ".1", True),
        ("empo-that-is-only-there", "1.0", False),
    ],
)
def test_a_process_with_other_software_reports_it(
    name: str, version: str, is_other: bool, tmp_path: Path
) -> None:
    ours, theirs = software(), report(other_software(tmp_path, {name: version}))
    assert theirs[name] == version
    said = [f"{name} is {ours.get(name)} here and {version} there"] if is_other else []
    assert differences(ours, theirs) == said


@pytest.mark.parametrize("name", ["empo-ray", "torch"])
def test_what_is_missing_there_is_a_difference(name: str) -> None:
    ours = software()
    theirs = {each: version for each, version in ours.items() if each != name}
    assert differences(ours, theirs) == [f"{name} is {ours[name]} here and missing there"]
    assert differences(theirs, ours) == []


def test_another_byte_order_is_a_difference() -> None:
    ours = software()
    other = {"little": "big", "big": "little"}[sys.byteorder]
    assert differences(ours, ours | {"byte order": other}) == [
        f"byte order is {sys.byteorder} here and {other} there"
    ]
