"""Networks as ONNX files, for programs that have neither torch nor this package.

The file computes values from what a world's featurizer says, not from rows: what a featurizer
does is the world's own business. Where a world has none its rows are the features, and the file
reads them.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from empo_core.errors import ConfigError, StorageError
from empo_core.features import Features
from empo_core.types import ValueQuery
from empo_networks.network import ARGUMENTS, Network

OPSET = 17


def onnx_inputs(network: Network, questions: int = 2) -> dict[str, Tensor]:
    """Inputs of the exported file by name, with an example of each; the first axis is free.

    ``states`` are rows (int64) of a world without a featurizer; else ``grid``, ``globals``,
    ``agents`` and ``objects`` (float32) are the parts of ``Features`` that the world has.
    ``steps_left``, ``human`` and ``goal`` (int64) are there where the network reads them.
    """
    shape = network.scaler.featurizer.shape
    sizes = {
        "grid": (shape.channels, shape.height, shape.width),
        "globals": (shape.globals,),
        "agents": (shape.agents, shape.agent_features),
        "objects": (shape.objects, shape.object_features),
    }
    if network.scaler.is_row:
        inputs = {"states": torch.zeros(questions, shape.globals, dtype=torch.int64)}
    else:
        inputs = {
            part: torch.zeros(questions, *size) for part, size in sizes.items() if math.prod(size)
        }
    index = torch.zeros(questions, dtype=torch.int64)
    if network.scaler.horizon is not None:
        inputs["steps_left"] = index + 1
    if network.quantity == "x_h":
        inputs["human"] = index + network.humans[0]
    if "goal" in ARGUMENTS[network.quantity]:
        inputs["goal"] = index
    return inputs


def export_onnx(network: Network, path: str | Path) -> None:
    """Write a file whose output ``value`` is what ``network`` answers.

    Raises:
        ConfigError: if the package ``onnx`` is missing.
        StorageError: if the file cannot be written.
    """
    inputs = onnx_inputs(network)
    names = [*inputs, "value"]
    with torch.no_grad(), warnings.catch_warnings():
        # The older of torch's exporters needs no further package. It warns that it is old, and
        # of every length that it takes for a constant; the tests check that those are.
        warnings.simplefilter("ignore")
        torch.onnx.register_custom_op_symbolic("aten::asinh", _asinh, 9)  # type: ignore[attr-defined]
        try:
            torch.onnx.export(
                _Graph(network, tuple(inputs)), tuple(inputs.values()), path, dynamo=False,
                input_names=list(inputs), output_names=["value"], opset_version=OPSET,
                dynamic_axes={name: {0: "question"} for name in names},
            )  # fmt: skip
        except ImportError as error:
            raise ConfigError(
                "an export needs the package onnx: pip install 'empo-networks[onnx]'"
            ) from error
        except OSError as error:
            raise StorageError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _asinh(graph: Any, x: Any) -> Any:
    """The operator of that name, which ONNX has and torch's older exporter does not know."""
    return graph.op("Asinh", x)


class _Graph(nn.Module):
    """The network as a function of the inputs by position, one question per row."""

    def __init__(self, network: Network, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self._names = network, names

    def forward(self, *inputs: Shaped[Tensor, "query ..."]) -> Float[Tensor, "query output"]:
        """The value of each question."""
        named = dict(zip(self._names, inputs, strict=True))
        questions = inputs[0].shape[0]
        if "states" in named:
            named["globals"] = named["states"].to(torch.float32)
        features = Features(
            named.get("grid", torch.zeros(questions, 0, 0, 0)),
            named.get("globals", torch.zeros(questions, 0)),
            named.get("agents", torch.zeros(questions, 0, 0)),
            named.get("objects", torch.zeros(questions, 0, 0)),
        )
        steps_left = named.get("steps_left", torch.ones(questions, dtype=torch.int64))
        query = ValueQuery(
            named.get("states", steps_left[:, None]),
            steps_left,
            named.get("human"),
            named.get("goal"),
        )
        network = self.network
        raw = network.raw(query, network.scaler.scaled(features, steps_left))
        return network.scale.value(raw, network.unit(query))
