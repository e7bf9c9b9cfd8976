"""The table of environment packages is what the packages register, and what the docs say."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from empo_environments.registries import FAMILIES, PACKAGES, PETTINGZOO, package_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "environments" / "other_packages.md"
IDS = {
    "flappy_bird_gymnasium": "FlappyBird-v0",
    "gym_aloha": "gym_aloha/AlohaInsertion-v0 gym_aloha/AlohaTransferCube-v0",
    "gym_pusht": "gym_pusht/PushT-v0",
    "gymnasium_robotics": "AdroitHandDoor-v1 AntMaze_Large-v4 FetchPickAndPlace-v4 "
    "FrankaKitchen-v1 HandManipulateEgg-v1 HandReach-v2 PointMaze_UMaze-v3",
    "highway_env": "exit-v0 highway-fast-v0 intersection-multi-agent-v0 lane-keeping-v0 merge-v0 "
    "merge-generic-v0 parking-ActionRepeat-v0 racetrack-oval-v0 roundabout-v0 two-way-v0 u-turn-v0",
    "metaworld": "Meta-World/MT1 Meta-World/ML1-train",
    "miniworld": "MiniWorld-Hallway-v0 MiniWorld-YMazeRight-v0",
    "mo_gymnasium": "breakable-bottles-v0 deep-sea-treasure-v0 fishwood-v0 four-room-v0 "
    "fruit-tree-v0 minecart-v0 mo-hopper-2obj-v5 resource-gathering-v0 water-reservoir-v0",
    "panda_gym": "PandaReach-v3 PandaStackDense-v3",
    "shimmy": "bsuite/catch-v0 dm_control/acrobot-swingup-v0",
}
"""Ids of packages that need not be installed: flappy-bird-gymnasium 0.4.0, gym-aloha 0.1.5,
gym-pusht 0.1.8, gymnasium-robotics 1.4.2, highway-env 1.12.1, metaworld 3.1.1, miniworld 2.1.0,
mo-gymnasium 1.3.2, panda-gym 3.0.7, shimmy 2.0.1."""
REGISTERED = """
import importlib, json, sys
import gymnasium
before = set(gymnasium.registry)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(gymnasium.registry) - before)))
"""


@pytest.mark.parametrize("package", IDS)
def test_ids_lead_to_their_package(package: str) -> None:
    ids = IDS[package].split()
    assert {package_of(name) for name in ids} == {package}
    prefixes = [prefix for prefix, owner in PACKAGES.items() if owner == package]
    unused = [p for p in prefixes if not any(name.startswith(p) for name in ids)]
    assert not unused, "prefixes that no id has"


@pytest.mark.parametrize("package", sorted(set(PACKAGES.values())))
def test_whatever_an_installed_package_registers_leads_to_it(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-c", REGISTERED, package]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    ids = json.loads(done.stdout.splitlines()[-1])
    assert ids
    assert {package_of(name) for name in ids} == {package}


def test_the_families_are_those_of_the_packages() -> None:
    for family in FAMILIES:
        package = PETTINGZOO.get(family, f"pettingzoo.{family}")
        assert importlib.util.find_spec(package) is not None, package


def test_the_docs_have_the_same_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`[^`]+`(?:, )?)+) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {prefix: owner for owner, cell in rows for prefix in re.findall(r"`([^`]+)`", cell)}
    assert listed == PACKAGES
