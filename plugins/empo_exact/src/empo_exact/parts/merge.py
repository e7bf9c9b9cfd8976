"""One graph, and the values of all times, from those of all parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Int32, Shaped

from empo_exact.game import Values, values_of
from empo_exact.graph import StateGraph
from empo_exact.parts.sweeps import Parts, values_kind
from empo_exact.values import ValueStore


class Merger:
    """States of all parts numbered by depth, then by key: the same for any number of parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        layers = np.stack([parts.graph(part).layers for part in parts.numbers])
        sizes = np.diff(layers, axis=1, prepend=0)
        self._slices = [list(pairwise([0, *ends])) for ends in layers.tolist()]
        # Where each part's states of a depth begin: layer by layer, and part by part in it.
        ends = np.cumsum(sizes.T.ravel()).reshape(sizes.T.shape).T
        self.layers = layers.sum(0)
        self._places = [
            np.concatenate(
                [np.arange(n) + end - n for n, end in zip(part_sizes, last, strict=True)]
            )
            for part_sizes, last in zip(sizes, ends, strict=True)
        ]
        for place, (part, number) in enumerate(parts.starts.tolist()):
            self._places[part][number] = place  # The first start is state 0, and so on.

    def graph(self) -> StateGraph:
        """The state graph in RAM."""
        parts = self._parts
        pieces = [parts.graph(part) for part in parts.numbers]
        joint = parts.world.spec.num_joint_actions
        states, counts, successor, code = [], [], [], []
        targets = [self._successors(part, piece) for part, piece in enumerate(pieces)]
        stretches = [(part, number, number + 1) for part, number in parts.starts.tolist()]
        for depth in range(1, len(self.layers)):
            stretches += [(part, *self._slices[part][depth]) for part in range(len(pieces))]
        for part, first, last in stretches:
            piece = pieces[part]
            states.append(piece.states[first:last])
            pairs = slice(
                min(first, piece.num_expanded) * joint, min(last, piece.num_expanded) * joint
            )
            offsets = piece.offsets[pairs.start : pairs.stop + 1].astype(np.int64)
            counts.append(np.diff(offsets))
            items = slice(int(offsets[0]), int(offsets[-1]))
            successor.append(targets[part][items])
            code.append(piece.code[items])
        ends = np.cumsum(np.concatenate([[0], *counts]))
        prob, duration = (np.ascontiguousarray(column) for column in parts.codes.T)
        return StateGraph(
            spec=parts.world.spec,
            states=np.concatenate(states),
            layers=self.layers,
            num_expanded=sum(piece.num_expanded for piece in pieces),
            offsets=ends.astype(np.uint32) if ends[-1] < 1 << 32 else ends,
            successor=np.concatenate(successor),
            code=np.concatenate(code),
            prob=prob,
            duration=duration,
        )

    def fill(self, store: ValueStore, done: int) -> None:
        """Keep the values of all times, where it took so many sweeps."""
        horizon = self._parts.world.spec.horizon
        for time in range(horizon or 1):
            store.put(time, self._values(done if horizon is None else horizon - time))

    def _values(self, done: int) -> Values:
        """The values after so many sweeps [state ...]."""
        parts = [
            values_of(self._parts.store.get(values_kind(done), part))
            for part in self._parts.numbers
        ]
        size = sum(len(values.v_r) for values in parts)
        whole = Values(*(np.empty((size, *array.shape[1:])) for array in parts[0]))
        for part, values in enumerate(parts):
            for array, rows in zip(whole, values, strict=True):
                array[self._places[part][: len(rows)]] = rows
        return whole

    def _successors(self, part: int, graph: StateGraph) -> Int32[np.ndarray, " transition"]:
        place: Shaped[np.ndarray, " state"] = np.empty(graph.num_states, np.int32)
        num_own = len(self._places[part])
        place[:num_own] = self._places[part]
        for source, (slots, numbers) in self._parts.links(part).items():
            place[num_own + slots] = self._places[source][numbers]
        successors: Int32[np.ndarray, " transition"] = place[graph.successor]
        return successors
