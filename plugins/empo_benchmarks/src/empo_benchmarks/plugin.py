"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer three world models, human priors for two, and environments made from two."""
    yield Component(
        kind="world_model",
        name="blocks",
        params="empo_benchmarks.blocks.params:BlocksParams",
        target="empo_benchmarks.blocks.world:load_world",
        api=1,
        summary="A robot without a body moves boxes that lock a human in, and may crush it.",
    )
    yield Component(
        kind="human_prior",
        name="greedy-distance",
        params="empo_benchmarks.blocks.params:GreedyDistanceParams",
        target="empo_benchmarks.blocks.prior:GreedyDistance",
        api=1,
        summary="Humans of a blocks world step to where they are nearest to their goal.",
    )
    yield Component(
        kind="human_prior",
        name="softmax-distance",
        params="empo_benchmarks.blocks.params:SoftmaxDistanceParams",
        target="empo_benchmarks.blocks.walkers:SoftmaxDistance",
        api=1,
        summary="Humans of a blocks world walk to their goal around boxes, softmax-rationally.",
    )
    yield Component(
        kind="world_model",
        name="overcooked",
        params="empo_benchmarks.overcooked.params:OvercookedParams",
        target="empo_benchmarks.overcooked.world:load_world",
        api=1,
        summary="A robot and a human cook onion soups in a kitchen where they get in each "
        "other's way.",
    )
    yield Component(
        kind="human_prior",
        name="kitchen-planner",
        params="empo_benchmarks.overcooked.params:KitchenPlannerParams",
        target="empo_benchmarks.overcooked.prior:KitchenPlanner",
        api=1,
        summary="Humans of a kitchen take the nearest of what their goal needs next.",
    )
    yield Component(
        kind="world_model",
        name="disempower",
        params="empo_benchmarks.disempower.params:DisempowerParams",
        target="empo_benchmarks.disempower.world:load_world",
        api=1,
        summary="An assistant moves boxes, which frees a user and may shut a bystander in.",
    )
    yield Component(
        kind="environment",
        name="overcooked",
        params="empo_benchmarks.overcooked.params:KitchenParams",
        target="empo_benchmarks.overcooked.environment:KitchenEnvironment",
        api=1,
        summary="Copies of the run's kitchen, paid for soups as in the game.",
    )
    yield Component(
        kind="environment",
        name="disempower",
        params="empo_benchmarks.disempower.params:BoardsParams",
        target="empo_benchmarks.disempower.environment:Boards",
        api=1,
        summary="Copies of the run's board: humans learn for their goals, or the assistant for "
        "where the user gets.",
    )


@hookimpl
def empo_kernels() -> str:
    """The function that compiles the kernels, by calling each for a board and a kitchen."""
    return "empo_benchmarks.warmup:compile_kernels"
