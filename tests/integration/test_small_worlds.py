"""The exact solver and plain backward induction agree on every small world that is shipped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from empo_core.config import WorldModelRef, installed
from empo_theory.equations import Accrual
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference

solver = pytest.importorskip("empo_exact.solve")
plugin = pytest.importorskip("empo_exact.plugin")

TABLES = [
    *("belief", "coma_pill", "commitment", "confirmation"),
    *("menu_size", "pause_destroy", "resource_split"),
]
WORLDS = [
    *(f"table/{name}" for name in TABLES),
    "bushworld/thicket",
    "bushworld/two_humans_one_robot",
]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    "accrual", ["discrete", pytest.param("continuous", marks=pytest.mark.slow)]
)
def test_the_exact_solver_agrees_with_plain_induction(name: str, accrual: Accrual) -> None:
    component = installed().get("world_model", name.partition("/")[0])
    params = WorldModelRef.model_validate(name).params
    steps = {"table/coma_pill": 12, "table/pause_destroy": 12}
    if name in steps:
        params = params.model_copy(update={"max_steps": steps[name]})
    world = component.load()(params)
    theory = CompleteTheory(
        beta_h=3.0, gamma_h=0.9, gamma_r=0.9, beta_r=4.0, zeta=1.5, xi=1.2, eta=1.1,
        x_agg="sum", u_agg="sum", accrual=accrual,
    )  # fmt: skip
    exact = solver.solve(world, plugin.ExactParams(theory=theory))
    root = exact.at(world.initial_state(), 0)
    values = Reference(world, theory).at(
        tuple(world.initial_state().tolist()), world.spec.horizon or 0
    )
    assert math.isclose(root.V_r, values.v_r, rel_tol=1e-12)
    assert root.V_e.tolist() == pytest.approx(list(values.v_e.values()), rel=1e-12, abs=1e-14)
    assert root.V_m.tolist() == pytest.approx(list(values.v_m.values()), rel=1e-12, abs=1e-14)
    policy = root.pi_r[np.nan_to_num(root.pi_r) > 0]
    assert policy.tolist() == pytest.approx(list(values.pi_r.values()), rel=1e-11)
