"""Scaled features of states, times and goals; nothing here is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_core.features import Features, FeatureShape, RowFeatures
from empo_core.types import ValueQuery, WorldSpec
from empo_learning.state_cache import StateCache

ONE_HOT = 32
"""Remaining steps up to this, and coordinates below it, are told apart exactly."""

DIGIT = 16
"""Words of rows are written with two digits of this base: a byte is told apart exactly."""

MOST = 2**25
"""Bytes of features that are kept for states that come again."""


def symlog(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """sign(x) log(1 + |x|): moderate however large ``x`` is."""
    return x.sign() * x.abs().log1p()


def one_hot(x: Float[Tensor, "*batch feature"], count: int) -> Float[Tensor, "*batch flat"]:
    """One-hot code of each number; all 0 where it is not in 0, 1, ..., ``count - 1``."""
    return (x[..., None] == torch.arange(count, device=x.device)).flatten(-2).to(x.dtype)


@dataclass(frozen=True)
class ScaledFeatures:
    """Input of encoders.

    Attributes:
        parts: The numbers of each state: grid, globals and time, agents, objects.
    """

    parts: Features

    @cached_property
    def flat(self) -> Float[Tensor, "state flat"]:
        """All of them in a row."""
        return self.parts.flat()

    @cached_property
    def nonzero(self) -> NonzeroColumns:
        """The columns of ``flat``, which is not made for it, in which some number is not 0."""
        values, columns, before = [], [], 0
        for whole in (self.parts.grid, self.parts.globals, self.parts.agents, self.parts.objects):
            part = whole.flatten(1)
            chosen = nonzero_columns(part)
            values.append(part.index_select(1, chosen))
            columns.append(chosen + before)
            before += part.shape[1]
        return NonzeroColumns(torch.cat(values, 1), torch.cat(columns))


@dataclass(frozen=True)
class NonzeroColumns:
    """Columns of features in which some number is not 0.

    Attributes:
        values: These columns.
        columns: Their positions, in rising order.
    """

    values: Float[Tensor, "state nonzero"]
    columns: Int[Tensor, " nonzero"]


def nonzero_columns(x: Float[Tensor, "batch column ..."]) -> Int[Tensor, " nonzero"]:
    """Positions along the second axis at which some number is not 0, on a CPU."""
    others = (0, *range(2, x.ndim))
    return torch.from_numpy(np.flatnonzero(x.detach().numpy().any(others)))


class FeatureScaler(nn.Module):
    """Features of states from the featurizer of their world, brought to scale.

    Time is one of the globals: its fraction of the horizon, and which step it is as long as
    there are few left. Coordinates of agents are one-hot too where there is a grid. The words of
    rows that no featurizer reads, which mean anything, are written digit by digit.

    Attributes:
        shape: Sizes of the scaled features.
        input_key: Key of the features: equal for instances that compute the same.
    """

    _exact_steps: Tensor

    def __init__(self, spec: WorldSpec, *, include_time: bool) -> None:
        super().__init__()
        self.featurizer = spec.featurizer
        self.is_row = isinstance(spec.featurizer, RowFeatures)
        self.horizon = spec.horizon if include_time else None
        exact_steps = torch.arange(1, min(self.horizon or 0, ONE_HOT) + 1)
        self.register_buffer("_exact_steps", exact_steps, persistent=False)
        time = 1 + len(exact_steps) if self.horizon else 0
        raw = self.featurizer.shape
        self._side = min(max(raw.height, raw.width), ONE_HOT)
        self.shape: FeatureShape = replace(
            raw,
            globals=raw.globals * (1 + 2 * DIGIT if self.is_row else 1) + time,
            agent_features=raw.agent_features * (1 + self._side),
        )
        self._timeless_sizes = (
            (raw.channels, raw.height, raw.width),
            (self.shape.globals - time,),
            (raw.agents, self.shape.agent_features),
            (raw.objects, raw.object_features),
        )
        self.input_key = (self.shape, raw, self.is_row, self.horizon)
        self._dtype = spec.state_dtype
        # To look features up takes a tenth of the time of drawing and scaling them.
        self._cache = StateCache(
            lambda states, _: self._of(states).flat(),
            spec.state_words,
            dtype=spec.state_dtype,
            timeless=True,
            max_bytes=MOST,
        )

    @property
    def active(self) -> int:
        """About how many of the numbers are not 0, which says how large weights should start.

        Of the channels of a cell, and of the digits of a number, one is.
        """
        raw = self.featurizer.shape
        grid, agents = raw.height * raw.width, raw.agents * raw.agent_features
        numbers = raw.globals * (3 if self.is_row else 1) + (2 if self.horizon else 0)
        active = grid + numbers + agents * (2 if self._side else 1)
        return max(active + raw.objects * raw.object_features, 1)

    @torch.no_grad()
    def forward(self, query: ValueQuery) -> ScaledFeatures:
        """Scaled features of the states of a query.

        The query's memo keeps them for networks with equal inputs, and a cache those of states
        that come again on a CPU.
        """
        states, memo = query.states, {} if query.memo is None else query.memo
        key = (type(self), self.input_key)
        features = memo.get(key)
        if isinstance(features, ScaledFeatures):
            return features
        is_usual = states.is_cpu and states.dtype == self._dtype
        if len(states) and is_usual and self._cache.is_caching:
            timeless = self._split(self._cache(states, query.steps_left))
        else:
            timeless = self._of(states)
        features = self._timed(timeless, query.steps_left)
        memo[key] = features
        return features

    @torch.no_grad()
    def scaled(self, features: Features, steps_left: Int[Tensor, " state"]) -> ScaledFeatures:
        """Scaled features from those that a featurizer read."""
        return self._timed(self._timeless(features), steps_left)

    def _of(self, states: Int[Tensor, "state word"]) -> Features:
        """Scaled features of states, but for the time."""
        return self._timeless(self.featurizer(states))

    def _split(self, flat: Float[Tensor, "state flat"]) -> Features:
        """Features from all their numbers in a row, in the same memory."""
        sizes = self._timeless_sizes
        parts = torch.split(flat, [math.prod(size) for size in sizes], 1)
        return Features(
            *(part.view(len(flat), *size) for part, size in zip(parts, sizes, strict=True))
        )

    def _timeless(self, features: Features) -> Features:
        """Scaled features, but for the time."""
        numbers = [symlog(features.globals)] if self.featurizer.shape.globals else []
        if self.is_row:
            words = features.globals
            numbers += [
                one_hot(words.remainder(DIGIT), DIGIT),
                one_hot(words.div(DIGIT).floor().remainder(DIGIT), DIGIT),
            ]
        agents = features.agents
        if self._side:
            agents = torch.cat([symlog(agents), one_hot(agents, self._side)], -1)
        scaled = torch.cat(numbers, 1) if numbers else features.globals
        return Features(features.grid, scaled, agents, symlog(features.objects))

    def _timed(self, timeless: Features, steps_left: Int[Tensor, " state"]) -> ScaledFeatures:
        """Scaled features, with the time behind the globals."""
        if self.horizon is None:
            return ScaledFeatures(timeless)
        steps = steps_left[:, None].to(timeless.globals)
        time = (steps / self.horizon, (steps == self._exact_steps).to(steps))
        return ScaledFeatures(replace(timeless, globals=torch.cat([timeless.globals, *time], 1)))


def goal_numbers(spec: WorldSpec) -> Float[Tensor, "goal feature"]:
    """Features of each goal, scaled and one-hot."""
    shape = spec.featurizer.shape
    raw = torch.tensor([goal.features for goal in spec.goals]).reshape(len(spec.goals), -1)
    side = min(max(shape.height, shape.width), ONE_HOT) or DIGIT
    return torch.cat([symlog(raw), one_hot(raw, side)], 1)
