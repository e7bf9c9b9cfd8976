"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from empo_core import Component, Config, hookimpl

MOST_UNITS = 10**9
"""Units of a layer; RAM refuses most of it, with its bytes."""


class NetworkParams(Config):
    """Head of a network, and the space in which its errors are measured."""

    hidden: int = Field(128, ge=1, le=MOST_UNITS, description="Units of each hidden layer.")
    head_layers: int = Field(
        2,
        ge=1,
        le=1000,
        description="Hidden layers behind the encoders; the first joins what they say.",
    )
    activation: Literal["relu", "silu", "gelu", "tanh"] = Field(
        "relu", description="Activation after each hidden layer."
    )
    layer_norm: bool = Field(True, description="Normalise hidden layers before the activation.")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the head's units left out while it is fitted."
    )
    include_time: bool = Field(
        True, description="Whether values depend on the remaining steps, where episodes end."
    )
    space: Literal["value", "log", "z", "logit"] | None = Field(
        None,
        description="Errors are squared differences of values, of logarithms of their size, or of "
        "z = (-value)^(-1/z_exponent), or cross-entropies; null is 'logit' for v_h_e, 'value' for "
        "x_h, 'log' for the others.",
    )
    z_exponent: float = Field(
        1.0, gt=0, description="The exponent of space z: the product of eta and xi."
    )

    @model_validator(mode="after")
    def _needs_an_exponent(self) -> NetworkParams:
        if self.space != "z" and self.z_exponent != 1:
            raise ValueError("z_exponent has an effect in space 'z' only: set space, or drop it")
        return self


class IdentityParams(NetworkParams):
    """No encoders: the head reads the features themselves."""


class MlpParams(NetworkParams):
    """Encoders for states, humans and goals, that do not care where on a grid things are."""

    encoder_layers: int = Field(1, ge=1, le=1000, description="Hidden layers of the state encoder.")
    sharing: bool = Field(
        False, description="Whether the encoders of V_h^e are read too, where they fit."
    )


class GridConvParams(MlpParams):
    """Encoders for worlds on a grid."""

    hidden: int = Field(
        128,
        ge=8,
        le=MOST_UNITS,
        description="Units of each hidden layer; a fourth of it filters each picture.",
    )
    encoder_layers: int = Field(2, ge=1, le=1000, description="Convolutions, 3 by 3 cells each.")


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer three value networks."""
    yield Component(
        kind="value_network",
        name="mlp",
        params=MlpParams,
        target="empo_networks.network:mlp",
        api=1,
        summary="Fully connected encoders of all features, and a head; for small worlds.",
    )
    yield Component(
        kind="value_network",
        name="grid-conv",
        params=GridConvParams,
        target="empo_networks.network:grid_conv",
        api=1,
        summary="Convolutions over the grid beside agents, objects and globals, and a head.",
    )
    yield Component(
        kind="value_network",
        name="identity",
        params=IdentityParams,
        target="empo_networks.network:identity",
        api=1,
        summary="No encoders: a head on the features themselves; for tests and comparisons.",
    )
