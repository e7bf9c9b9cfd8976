"""The layers of a solved world: where robots work, and where they have failed for good."""

from __future__ import annotations

import numpy as np

from empo_exact.defunct import chances_to_fail
from empo_exact.diagnostics.sweep import Behaving, Behaviour, Layer, acting
from empo_exact.result import ExactResult
from empo_exact.solution import Solution


def layers_of(result: ExactResult, *, robots: ExactResult | None = None) -> list[Layer]:
    """The layers of a solved world, that of working robots first.

    Args:
        result: The solved world.
        robots: Robots act as in this one, which has the same states; None: as in the result.
    """
    graph, rate = result.graph, result.params.defunct.rate
    fails = chances_to_fail(graph.duration, rate)
    acts = acting(result) if robots is None else with_robots(acting(result), robots)
    layers = [Layer(graph, result.problem.game, acts, fails)]
    if result.failed is not None:  # They have one action there, whatever they know.
        failed = result.failed
        never = np.zeros_like(failed.graph.duration)
        layers.append(Layer(failed.graph, failed.problem.game, acting(failed), never))
    return layers


def with_robots(acts: Behaving, robots: Solution) -> Behaving:
    """The same humans, with the robots of another solution of the same states."""
    others = acting(robots)

    def behaviour(states: np.ndarray, time: int) -> Behaviour:
        by_others = others(states, time)
        return acts(states, time)._replace(pi_r=by_others.pi_r, robots_may=by_others.robots_may)

    return behaviour
