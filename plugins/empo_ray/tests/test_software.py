"""Software of nodes, as it is compared before they work."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from empo_ray.software import differences, software

OURS = {"Python": "3.11.7", "byte order": "little", "empo-core": "0.1.0", "empo-exact": "0.1.0",
        "numpy": "2.4.6", "torch": "2.13.0"}  # fmt: skip


def test_the_software_of_this_process_is_read_from_metadata() -> None:
    found = software()
    assert found["Python"] == platform.python_version()
    assert found["byte order"] == sys.byteorder
    assert found["torch"] == metadata.version("torch")
    assert found["empo-ray"] == metadata.version("empo-ray")


def test_a_node_may_have_other_patches_and_more_plugins() -> None:
    theirs = OURS | {"Python": "3.11.9", "numpy": "2.4.9", "empo-more": "3"}
    assert differences(OURS, OURS) == differences(OURS, theirs) == []


@pytest.mark.parametrize(
    ("name", "version"),
    [("Python", "3.12.7"), ("byte order", "big"), ("torch", "2.13.1"), ("numpy", "2.5.0"),
     ("empo-core", "0.2.0"), ("empo-exact", "0.1.1")],
)  # fmt: skip
def test_everything_else_is_a_difference(name: str, version: str) -> None:
    assert differences(OURS, OURS | {name: version}) == [
        f"{name} is {OURS[name]} here and {version} there"
    ]


def test_a_missing_plugin_is_one_too() -> None:
    theirs = {name: version for name, version in OURS.items() if name != "empo-exact"}
    assert differences(OURS, theirs) == ["empo-exact is 0.1.0 here and missing there"]
