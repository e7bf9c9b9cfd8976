"""Exported files answer like the networks they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from empo_core.errors import StorageError
from empo_core.types import Quantity
from empo_networks.network import Network
from empo_testing.value_network import QUANTITIES, disturb, every_question
from empo_testing.worlds import TinyWorld

Make = Callable[..., Network]


@pytest.mark.parametrize("kind", ["mlp", "grid-conv", "identity"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_runtime_without_torch_computes_the_same_values(
    make: Make, picture_world: TinyWorld, quantity: Quantity, kind: str, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    world = TinyWorld() if kind == "mlp" else picture_world
    network = make(kind, world.spec, quantity, hidden=16)
    if kind == "mlp" and quantity != "v_h_e":
        assert network.share(make("mlp", world.spec, "v_h_e", hidden=16))
    disturb(network, scale=0.1, seed=0)
    network.export_onnx(tmp_path / "value.onnx")
    session = runtime.InferenceSession(tmp_path / "value.onnx")
    query = every_question(world, quantity)
    features = world.spec.featurizer(query.states)
    known = {
        "states": query.states.long(), "steps_left": query.steps_left,
        "human": query.human, "goal": query.goal,
        "grid": features.grid, "globals": features.globals,
        "agents": features.agents, "objects": features.objects,
    }  # fmt: skip
    asked = {name: known[name].numpy() for name in network.onnx_inputs()}
    assert {entry.name for entry in session.get_inputs()} == set(asked)
    (values,) = session.run(["value"], asked)
    expected = network(query).detach()
    assert len({tuple(row) for row in expected.tolist()}) > 1, "all answers are alike"
    torch.testing.assert_close(torch.from_numpy(values), expected, rtol=1e-4, atol=1e-5)


def test_only_what_a_quantity_is_about_is_an_input(make: Make, picture_world: TinyWorld) -> None:
    inputs = make("mlp", picture_world.spec, "x_h").onnx_inputs()
    assert list(inputs) == ["grid", "globals", "agents", "objects", "steps_left", "human"]
    timeless = make("identity", TinyWorld(horizon=None).spec, "v_h_e")
    assert list(timeless.onnx_inputs()) == ["states", "goal"]


def test_a_file_that_cannot_be_written_is_named(make: Make, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    network = make("mlp", TinyWorld().spec, "v_r", hidden=4)
    with pytest.raises(StorageError, match="missing"):
        network.export_onnx(tmp_path / "missing" / "value.onnx")
