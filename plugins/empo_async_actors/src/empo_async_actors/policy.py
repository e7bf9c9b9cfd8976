"""Policies as bytes that an executor broadcasts."""

from __future__ import annotations

import torch
from safetensors.torch import load, save

from empo_core.protocols import Weights
from empo_learning.finite import check_finite


def encode_policy(weights: Weights, version: int) -> bytes:
    """The weights in the safetensors format.

    Raises:
        NonFiniteError: A weight is not finite.
    """
    check_finite(weights, f"policy {version}, which was to be published,")
    # Copies, for safetensors refuses tensors that share memory.
    return save({name: tensor.detach().cpu().clone() for name, tensor in weights.items()})


def decode_policy(blob: memoryview) -> dict[str, torch.Tensor]:
    """The weights that ``encode_policy`` was given."""
    return load(bytes(blob))


__all__ = ["decode_policy", "encode_policy"]
