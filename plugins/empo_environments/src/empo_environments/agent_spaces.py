"""Spaces of agents that differ, as rows of one format: the shorter ones are padded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from jaxtyping import Bool, Int, Shaped

from empo_core.errors import ConfigError
from empo_core.protocols.environments import ActionSpec, ObservationSpec
from empo_environments.pictures import PictureResizer
from empo_environments.spaces import Bind, Decode, Write, acting, observing, without_mask
from empo_environments.types import Space, Value


@dataclass(frozen=True, slots=True)
class AgentSpaces:
    """One agent's observations and actions, and where they lie in rows of the common format.

    Attributes:
        observations: Format of the agent's own observations.
        actions: Format of the agent's own actions.
        bind: Binds the words of a row that the agent's observations have.
        decode: The action that the numbers of a row stand for which the agent has.
        shows_mask: Whether a part ``action_mask`` of the observation masks actions.
    """

    observations: ObservationSpec
    actions: ActionSpec
    bind: Bind
    decode: Decode
    shows_mask: bool

    @classmethod
    def of(cls, observed: Space, acted: Space, picture_size: int | None = None) -> AgentSpaces:
        """The format of an agent with these spaces.

        Args:
            observed: Space of observations.
            acted: Space of actions.
            picture_size: Height and width that the picture is resized to; None: as it comes.

        Raises:
            ConfigError: if there are no such rows; the message names the space.
        """
        actions, decode = acting(acted)
        space, shows_mask = without_mask(observed, actions)
        resize: Callable[[Value], Value] | None = None
        if picture_size is not None:
            resize = PictureResizer(space, picture_size)
            space = resize.space
        observations, bind = observing(space)

        def bind_resized(row: Shaped[np.ndarray, " word"]) -> Write:
            write = bind(row)
            return lambda value: write(resize(value))  # type: ignore[misc]

        return cls(
            observations, actions, bind if resize is None else bind_resized, decode, shows_mask
        )

    def writer(self, row: Shaped[np.ndarray, " word"]) -> Write:
        """Writes observations to the first words of a row; those behind are 0."""
        row[self.observations.words :] = 0
        return self.bind(row[: self.observations.words])

    def action(self, row: Shaped[np.ndarray, " number"]) -> Value:
        """The action that a row stands for; numbers behind the agent's own mean nothing."""
        return self.decode(row[: self.actions.size])

    def option_positions(self, common: ActionSpec) -> Int[np.ndarray, " option"]:
        """Positions of the agent's own options among those of the common format."""
        pairs = zip(self.actions.choices, first_options(common), strict=False)
        return np.concatenate([first + np.arange(count) for count, first in pairs])

    def padding_options(self, common: ActionSpec) -> Bool[np.ndarray, " option"]:
        """The first option of each choice that the agent has not: there has to be one."""
        mask = np.zeros(sum(common.choices), np.bool_)
        mask[first_options(common)[len(self.actions.choices) :]] = True
        return mask


def first_options(actions: ActionSpec) -> Int[np.ndarray, " choice"]:
    """Position of the first option of each choice."""
    return np.cumsum((0, *actions.choices))[:-1]


def common_observations(
    names: Sequence[Hashable], spaces: Sequence[AgentSpaces]
) -> ObservationSpec:
    """The format of all agents' observations, as long as the longest.

    Raises:
        ConfigError: if the observations differ and one is a picture.
    """
    first = spaces[0].observations
    for name, other in zip(names, spaces, strict=True):
        if other.observations != first and (first.grid or other.observations.grid):
            raise ConfigError(
                f"agent {str(names[0])!r} observes {first}, and {str(name)!r} observes "
                f"{other.observations}: pictures cannot be padded to one another; make them equal "
                "by picture_size, or wrap the environment"
            )
    words = max(agent.observations.words for agent in spaces)
    if words != first.words:
        return ObservationSpec(words)
    share_bounds = all(agent.observations.bounds == first.bounds for agent in spaces)
    return first if share_bounds else replace(first, bounds=())


def common_actions(names: Sequence[Hashable], spaces: Sequence[AgentSpaces]) -> ActionSpec:
    """The format of all agents' actions: the greatest number of options, or the widest bounds.

    Raises:
        ConfigError: if some agents choose options and others numbers.
    """
    first = spaces[0].actions
    for name, other in zip(names, spaces, strict=True):
        if other.actions.is_discrete != first.is_discrete:
            raise ConfigError(
                f"agent {str(names[0])!r} acts by {_kind(first)}, and {str(name)!r} by "
                f"{_kind(other.actions)}; wrap the environment so that all agents act by one of "
                "them"
            )
    actions = [agent.actions for agent in spaces]
    return ActionSpec(
        choices=tuple(max(c) for c in zip_longest(*(a.choices for a in actions), fillvalue=1)),
        low=tuple(min(b) for b in zip_longest(*(a.low for a in actions), fillvalue=np.inf)),
        high=tuple(max(b) for b in zip_longest(*(a.high for a in actions), fillvalue=-np.inf)),
    )


def _kind(actions: ActionSpec) -> str:
    return "options" if actions.is_discrete else "numbers"
