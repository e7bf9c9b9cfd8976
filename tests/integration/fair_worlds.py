"""The worlds and reference numbers of the fair objective, from ``tests/golden``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from empo_exact.plugin import Compute, ExactParams
from empo_tabular.table import Table
from empo_tabular.world import world_of
from empo_worlds.enumeration import EnumeratedWorld

GOLDEN = Path(__file__).parents[1] / "golden"


@cache
def reference_data() -> dict[str, Any]:
    """Parameter sets, values and diagnostics that were computed with 40 digits elsewhere."""
    data: dict[str, Any] = json.loads((GOLDEN / "fair_reference.json").read_text())
    return data


@cache
def fair_world(name: str) -> EnumeratedWorld:
    """One of the six worlds."""
    tables = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (table,) = (Table.model_validate(table) for table in tables if table["name"] == name)
    return world_of(table)


def fair_params(set_name: str, **more: Any) -> ExactParams:
    """The parameters of one of the seven sets: preset ``fair`` with some keys changed."""
    changes = dict(reference_data()["sets"][set_name])
    rate = changes.pop("delta", 0.0)
    return ExactParams.model_validate(
        {
            "preset": "fair",
            "theory": changes,
            "defunct": {"rate": rate},
            "compute": Compute(workers=1),
            **more,
        }
    )
