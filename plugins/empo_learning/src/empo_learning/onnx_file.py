"""Networks as ONNX files, for programs that have neither torch nor this project."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from empo_core.errors import ConfigError
from empo_core.runs.atomic import write_file

OPSET = 17


def write_onnx(
    graph: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    path: str | Path,
    *,
    row: str,
) -> None:
    """Write what a module computes, as a function of tensors with any number of rows.

    Args:
        graph: Takes the inputs by position, and returns a tensor, or a tuple of them.
        inputs: An example of each by name, of two rows or more.
        outputs: Names of what the module returns.
        path: The file; an older one is replaced at once or not at all.
        row: Name of the first axis.

    Raises:
        ConfigError: if the package ``onnx`` is missing.
        StorageError: if the file cannot be written.
    """
    buffer = io.BytesIO()
    names = [*inputs, *outputs]
    with torch.no_grad(), warnings.catch_warnings():
        # The older of torch's exporters needs no further package. It warns that it is old, and
        # of every length that it takes for a constant; the tests check that those are.
        warnings.simplefilter("ignore")
        torch.onnx.register_custom_op_symbolic("aten::asinh", _asinh, 9)  # type: ignore[attr-defined]
        try:
            torch.onnx.export(
                graph, tuple(inputs.values()), buffer, dynamo=False,  # type: ignore[arg-type]
                input_names=list(inputs), output_names=list(outputs), opset_version=OPSET,
                dynamic_axes={name: {0: row} for name in names},
            )  # fmt: skip
        except ImportError as error:
            raise ConfigError(
                "an export needs the package onnx: pip install 'empo-learning[onnx]'"
            ) from error
        shapes = [output.shape for output in _as_tuple(graph(*inputs.values()))]
    write_file(Path(path), _with_lengths(buffer.getvalue(), shapes))


def _as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _with_lengths(content: bytes, shapes: Sequence[torch.Size]) -> bytes:
    """A file whose outputs have their lengths in all axes but the first, where torch has names."""
    import onnx

    model = onnx.load_from_string(content)
    for output, shape in zip(model.graph.output, shapes, strict=True):
        for axis, length in list(zip(output.type.tensor_type.shape.dim, shape, strict=True))[1:]:
            axis.dim_value = length
    lengthened: bytes = model.SerializeToString()
    return lengthened


def signature(path: Path) -> dict[str, dict[str, str]]:
    """Inputs and outputs of an ONNX file by name, e.g. ``float [row, 4]``."""
    # Imported here because ONNX is an optional dependency.
    import onnx

    graph = onnx.load(path).graph
    return {
        part: {value.name: _described(value.type.tensor_type) for value in values}
        for part, values in (("inputs", graph.input), ("outputs", graph.output))
    }


def _described(tensor: Any) -> str:
    from onnx import TensorProto

    axes = [axis.dim_param or str(axis.dim_value) for axis in tensor.shape.dim]
    return f"{TensorProto.DataType.Name(tensor.elem_type).lower()} [{', '.join(axes)}]"


def _asinh(graph: Any, x: Any) -> Any:
    """The operator of that name, which ONNX has and torch's older exporter does not know."""
    return graph.op("Asinh", x)
