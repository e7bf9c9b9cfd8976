"""Parameters of policies by what differs between tests: layers, pictures, memory."""

from __future__ import annotations

from typing import Any


def policy_params(
    *,
    network: str = "mlp",
    memory: str = "none",
    memory_size: int = 4,
    hidden: list[int] | None = None,
    activation: str = "tanh",
    channels: list[int] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """``policy`` of a config; with a ``memory``, its network is the trunk of ``lstm``."""
    params: dict[str, Any] = {"hidden": [6] if hidden is None else hidden, "activation": activation}
    if network == "conv":
        params["channels"] = [3] if channels is None else channels
    named: dict[str, Any] = {"name": network, "params": params}
    if memory != "none":
        named = {"name": "lstm", "params": {"cell": memory, "units": memory_size, "trunk": named}}
    return {"network": named, **others}
