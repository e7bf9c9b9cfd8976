"""Groups of parameters that each loss reaches, and a check of the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from empo_core.errors import EmpoError
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams


class GradientContractError(EmpoError, RuntimeError):
    """A loss gave gradients to networks that it must leave alone, or none to its own."""


@dataclass(frozen=True, slots=True)
class GradientReach:
    """Groups of parameters that a loss reaches; all others get no gradients.

    Attributes:
        must: They get gradients in any case.
        may: They can get some. At first, for one, heads whose last layer is 0 pass none on.
    """

    must: frozenset[str]
    may: frozenset[str] = frozenset()

    def __or__(self, other: GradientReach) -> GradientReach:
        """The reach of the sum of two losses."""
        return GradientReach(self.must | other.must, self.may | other.may)

    def without(self, *groups: str) -> GradientReach:
        """The same, but these are left alone."""
        return GradientReach(self.must.difference(groups), self.may.difference(groups))


def _reach(must: str, may: str = "") -> GradientReach:
    return GradientReach(frozenset(must.split()), frozenset(may.split()))


CONTRACT: Mapping[str, GradientReach] = MappingProxyType(
    {
        "consistency": _reach("dynamics encoder", "task"),
        "encoder_consistency": _reach("encoder", "task"),
        "reward": _reach("reward", "dynamics encoder task"),
        "termination": _reach("termination", "dynamics encoder task"),
        "value": _reach("value", "dynamics encoder task"),
        "auxiliary": _reach("auxiliary", "encoder task"),
        "policy": _reach("policy"),
        "optimistic": _reach("optimistic"),
    }
)
"""The reach of each loss where options do not narrow it down; see ``contract``."""

_WORLD = ("consistency", "encoder_consistency", "reward", "termination")
SUMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"world": _WORLD, "model": (*_WORLD, "value", "auxiliary")}
)
"""Losses that are added up before they are differentiated."""


def contract(loss: str, params: LatentParams) -> GradientReach:
    """The reach of a loss (a key of ``CONTRACT``), or of a sum of losses (of ``SUMS``).

    It depends on where rewards and values are predicted, which says what learns from them.

    Raises:
        ValueError: if there is no such loss.
    """
    if loss in SUMS:
        reach = GradientReach(frozenset())
        for part in SUMS[loss]:
            reach |= contract(part, params)
        return reach
    if loss not in CONTRACT:
        names = ", ".join([*CONTRACT, *SUMS])
        raise ValueError(f"no loss named {loss!r}; there are {names}")
    reach = CONTRACT[loss]
    if loss in {"reward", "termination"} and params.reward.predict_from == "encoding":
        return reach.without("dynamics")
    if loss == "value" and params.value.gradient == "encoder":
        return reach.without("dynamics")
    if loss == "value" and params.value.gradient == "none":
        return reach.without("dynamics", "encoder")
    return reach


def check_gradients(
    model: LatentModel, loss: str, params: LatentParams, *, may_be_idle: bool = False
) -> None:
    """Look after a backward pass whether it reached what it should and nothing else.

    All gradients of the model must have been removed before that pass, those of other losses
    too. It waits for the device. With ``may_be_idle`` there may have been nothing to learn from.

    Raises:
        GradientContractError: if the gradient reached something else, or not all that it should;
            the message names the loss and the parameter.
    """
    reach = contract(loss, params)
    groups = model.groups()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    group_of = {id(parameter): group for group, members in groups.items() for parameter in members}
    allowed = reach.must | reach.may
    for parameter in model.parameters():
        group = group_of.get(id(parameter))
        if group in allowed or not _has_gradient(parameter):
            continue
        assert parameter.grad is not None
        where = f"group '{group}'" if group else "no group: nothing should ever train it"
        raise GradientContractError(
            f"loss '{loss}' gave parameter '{names[id(parameter)]}' ({where}) a gradient of norm "
            f"{parameter.grad.norm().item():.3g}, but it may only reach "
            f"{', '.join(sorted(allowed & groups.keys()))}: detach what leads there, and remove "
            "the gradients of other losses before its backward pass"
        )
    for group in () if may_be_idle else sorted(reach.must & groups.keys()):
        if not any(_has_gradient(parameter) for parameter in groups[group]):
            first = names[id(groups[group][0])]
            raise GradientContractError(
                f"loss '{loss}' gave no gradient to group '{group}' ('{first}' and the rest), "
                "which it should teach: look for a detach, a no_grad or weights that are all 0 "
                "on the way there"
            )


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.count_nonzero())
