"""Parameters of policy networks; importing is cheap."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from empo_core import Config
from empo_core.config import PolicyNetworkRef

MOST_UNITS = 10**9
"""Units of a layer; RAM refuses most of it, with its bytes."""
Units = Annotated[int, Field(ge=1, le=MOST_UNITS)]


class MlpParams(Config):
    """Dense layers."""

    hidden: list[Units] = Field(
        default_factory=lambda: [64, 64], max_length=1000, description="Units of each hidden layer."
    )
    activation: Literal["tanh", "relu", "silu", "gelu"] = Field(
        "tanh", description="Activation after each layer."
    )


class ConvParams(MlpParams):
    """Convolutions over the picture of an observation, then dense layers."""

    channels: list[Units] = Field(
        default_factory=lambda: [32, 32],
        min_length=1,
        max_length=1000,
        description="Filters of each convolution, 3 by 3; one that reads more than 16 rows or "
        "columns takes every other.",
    )


class LstmParams(Config):
    """A recurrent layer behind another network."""

    has_memory: ClassVar[bool] = True
    trunk: PolicyNetworkRef = Field(
        default_factory=lambda: PolicyNetworkRef.model_validate("mlp"),
        description="The network whose features the layer reads, e.g. mlp or conv.",
    )
    cell: Literal["lstm", "gru"] = Field("lstm", description="Kind of the recurrent layer.")
    units: Units = Field(64, description="Units of the recurrent layer.")
