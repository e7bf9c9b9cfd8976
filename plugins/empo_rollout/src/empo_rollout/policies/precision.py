"""Precision of the networks' arithmetic."""

from __future__ import annotations

import contextlib

import torch

from empo_rollout.params import ComputeParams


def autocast(compute: ComputeParams) -> contextlib.AbstractContextManager[object]:
    """Context in which networks compute, for acting and learning alike."""
    if compute.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(compute.device).type, torch.bfloat16)
