from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import ConfigError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.plan import SizeRequest, VecPlan, plan_vectorisation

SEED_EXAMPLE = {
    "agents": 128,
    "workers": 8,
    "async_factor": 2,
    "forward_pass_minibatch_target_size": 4096,
    "batch_size": 524_288,
    "bptt_horizon": 64,
    "minibatch_size": 16_384,
}

SMALL = st.integers(1, 40)
MAYBE = st.none() | SMALL
REQUESTS = st.fixed_dictionaries(
    {
        "agents": st.integers(1, 6),
        "bptt_horizon": st.integers(1, 9),
        "forward_pass_minibatch_target_size": st.integers(1, 200),
        "envs": MAYBE,
        "workers": st.none() | st.integers(1, 9),
        "async_factor": st.none() | st.integers(1, 4),
        "batch_size": st.none() | st.integers(1, 3000),
        "minibatch_size": st.integers(1, 3000),
        "max_minibatch_size": st.none() | st.integers(1, 500),
        "by_steps": st.booleans(),
        "processes": st.booleans(),
        "processors": st.integers(1, 16),
    }
)
examples = settings(max_examples=300)


def planned(**request: Any) -> VecPlan:
    return plan_vectorisation(SizeRequest(**request))


def as_request(plan: VecPlan, request: dict[str, Any]) -> dict[str, Any]:
    """The size request that exactly yields this plan."""
    return {
        "agents": plan.agents,
        "bptt_horizon": plan.horizon,
        "envs": plan.envs,
        "workers": plan.workers,
        "async_factor": plan.blocks,
        "batch_size": plan.batch_size,
        "minibatch_size": plan.minibatch_size,
        "max_minibatch_size": plan.minibatch_size // plan.accumulate,
        "by_steps": request["by_steps"],
        "processes": request["processes"],
    }


def refusal(**request: Any) -> str:
    with pytest.raises(ConfigError) as error:
        planned(**request, strict=True)
    return str(error.value)


def test_the_worked_example_of_the_loop_has_the_corrected_sizes() -> None:
    plan = planned(**SEED_EXAMPLE, strict=True)
    assert (plan.envs, plan.envs_per_block) == (64, 32)
    assert (plan.workers, plan.blocks) == (8, 2)
    assert (plan.num_agents, plan.block_agents) == (8192, 4096)
    assert (plan.segments, plan.batch_size) == (8192, 524_288)
    assert (plan.steps_per_agent, plan.arrivals) == (64, 128)
    assert (plan.minibatches, plan.minibatch_segments, plan.accumulate) == (32, 256, 1)
    assert plan.adjustments == ()
    assert plan.remarks == ()


def test_an_arena_of_24_agents_gets_whole_segments_for_every_block() -> None:
    plan = planned(**SEED_EXAMPLE | {"agents": 24})
    assert (plan.envs, plan.num_agents, plan.block_agents) == (336, 8064, 4032)
    assert plan.segments == 8064
    assert plan.arrivals == 128
    assert plan.adjustments[0].startswith("segments 8192 -> 8064 (")
    assert "516096" in plan.adjustments[0]
    assert "4032" in plan.remarks[0]


@examples
@given(REQUESTS)
def test_sizes_fit_each_other_whatever_is_asked_for(request: dict[str, Any]) -> None:
    plan = planned(**request)
    assert plan.envs == plan.envs_per_block * plan.blocks
    assert plan.envs % plan.workers == plan.workers % plan.blocks == 0
    assert plan.num_agents == plan.envs * plan.agents == plan.block_agents * plan.blocks
    assert plan.segments >= plan.num_agents
    assert plan.arrivals * plan.block_agents == plan.segments * plan.horizon == plan.batch_size
    assert plan.minibatches * plan.minibatch_size == plan.batch_size
    assert plan.minibatch_size % plan.accumulate == 0
    part = plan.minibatch_size // plan.accumulate
    if not request["by_steps"]:
        assert part % plan.horizon == 0
        assert plan.segments % plan.minibatch_segments == 0
    limit = request["max_minibatch_size"]
    if limit is not None:
        assert part <= max(limit, 1 if request["by_steps"] else plan.horizon)
    if not request["processes"]:
        assert (plan.workers, plan.blocks) == (1, 1)
    if request["envs"] is not None:
        assert plan.envs == request["envs"]


@examples
@given(REQUESTS)
def test_asking_for_what_was_planned_changes_nothing(request: dict[str, Any]) -> None:
    plan = planned(**request)
    again = planned(**as_request(plan, request), strict=True)
    assert again == replace(plan, adjustments=(), remarks=again.remarks)


@examples
@given(REQUESTS)
def test_strict_refuses_exactly_what_needs_adjustment(request: dict[str, Any]) -> None:
    plan = planned(**request)
    if plan.adjustments:
        lines = refusal(**request).splitlines()
        assert len(lines) == len(plan.adjustments)
        for line, adjustment in zip(lines, plan.adjustments, strict=True):
            name, given_size, _, fitting, *_ = adjustment.split()
            assert line.startswith(f"{name}: {given_size} does not fit, {fitting} does")
    else:
        assert planned(**request, strict=True) == plan


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"batch_size": 524_300},
            "batch_size: 524300 does not fit, 524288 does: must be whole segments of "
            "bptt_horizon 64",
        ),
        (
            {"envs": 64, "batch_size": 262_144},
            "segments: 4096 does not fit, 8192 does: each of 8192 agents needs one of 64 steps: "
            "batch_size 524288",
        ),
        (
            {"batch_size": 262_144},
            "forward_pass_minibatch_target_size: 4096 does not fit, 2048 does: 8192 agents need a "
            "segment each, batch_size has 4096",
        ),
        (
            {"agents": 24},
            "segments: 8192 does not fit, 8064 does: must be a multiple of the 4032 agents that "
            "arrive together: batch_size 516096",
        ),
        (
            {"minibatch_size": 16_400},
            "minibatch_size: 16400 does not fit, 16384 does: must be whole segments of "
            "bptt_horizon 64",
        ),
        (
            {"minibatch_size": 64 * 250},
            "minibatch_size: 16000 does not fit, 16384 does: must divide batch_size 524288",
        ),
        (
            {"minibatch_size": 20_000},
            "minibatch_size: 20000 does not fit, 16384 does: must be whole segments of "
            "bptt_horizon 64; must divide batch_size 524288",
        ),
        (
            {"minibatch_size": 1_048_576},
            "minibatch_size: 1048576 does not fit, 524288 does: must be within batch_size 524288",
        ),
        (
            {"max_minibatch_size": 5000},
            "max_minibatch_size: 5000 does not fit, 4096 does: must be whole segments of "
            "bptt_horizon 64 and divide minibatch_size 16384",
        ),
        (
            {"workers": 3},
            "workers: 3 does not fit, 2 does: must be a multiple of async_factor 2",
        ),
        (
            {"envs": 63},
            "async_factor: 2 does not fit, 1 does: must divide 63 environments",
        ),
        (
            {"processes": False, "workers": 1},
            "async_factor: 2 does not fit, 1 does: without worker processes, all agents arrive "
            "together",
        ),
    ],
)
def test_each_check_names_the_numbers_and_the_nearest_that_fits(
    changes: dict[str, Any], line: str
) -> None:
    assert line in refusal(**SEED_EXAMPLE | changes).splitlines()


def test_all_problems_are_told_at_once() -> None:
    request = SEED_EXAMPLE | {"agents": 24, "workers": 3, "minibatch_size": 16_400}
    named = [line.split(":")[0] for line in refusal(**request).splitlines()]
    assert named == ["workers", "segments", "minibatch_size"]


@pytest.mark.parametrize("name", ["agents", "bptt_horizon", "envs", "workers", "batch_size"])
def test_sizes_below_one_are_refused_even_where_sizes_are_adjusted(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .*, not 0$"):
        planned(**SEED_EXAMPLE | {name: 0})


def test_at_least_two_environments_arrive_together_where_agents_are_many() -> None:
    plan = planned(agents=9, bptt_horizon=4, forward_pass_minibatch_target_size=10, processes=False)
    assert plan.envs == 2
    assert "18 agents arrive together" in plan.remarks[0]


@pytest.mark.parametrize(
    ("batch_size", "fitting"), [(1, 64), (95, 64), (96, 64), (97, 128), (190, 192)]
)
def test_the_nearest_size_that_fits_is_taken(batch_size: int, fitting: int) -> None:
    plan = planned(agents=1, bptt_horizon=64, envs=1, processes=False, batch_size=batch_size)
    assert plan.batch_size == fitting


def test_defaults_just_work_on_small_problems() -> None:
    plan = planned(agents=1, bptt_horizon=64, envs=8, processes=False)
    assert plan.minibatch_size == plan.batch_size == 512
    assert plan.minibatches == 1


def test_minibatches_of_single_steps_need_not_be_whole_segments() -> None:
    plan = planned(
        agents=1, bptt_horizon=128, envs=4, processes=False, minibatch_size=32, by_steps=True,
        max_minibatch_size=16, strict=True,
    )  # fmt: skip
    assert (plan.minibatch_size, plan.minibatches, plan.accumulate) == (32, 16, 2)


def test_segments_of_a_prime_number_are_not_cut_into_single_ones() -> None:
    plan = planned(agents=1, bptt_horizon=64, envs=127, processes=False, minibatch_size=16 * 64)
    assert plan.minibatches == 1


def test_without_processes_agents_are_those_that_one_process_has() -> None:
    two_blocks = planned(**SEED_EXAMPLE)
    one = planned(**SEED_EXAMPLE | {"processes": False})
    assert one.num_agents == two_blocks.num_agents // 2 == one.block_agents


@pytest.mark.parametrize(
    ("processors", "envs", "team"), [(8, None, (8, 2)), (1, None, (2, 2)), (7, None, (6, 2)),
                                     (8, 12, (6, 2)), (8, 9, (3, 1)), (2, 64, (2, 2))],
)  # fmt: skip
def test_workers_follow_processors_as_far_as_they_divide(
    processors: int, envs: int | None, team: tuple[int, int]
) -> None:
    plan = planned(
        agents=1, bptt_horizon=4, envs=envs, processors=processors, minibatch_size=4, strict=True
    )
    assert (plan.workers, plan.blocks) == team


def test_agents_that_wait_in_rotation_are_remarked_on() -> None:
    request = {"agents": 1, "bptt_horizon": 4, "envs": 8, "workers": 2, "minibatch_size": 16}
    waiting = planned(**request, batch_size=4 * 12, strict=True)
    assert "4 of 8 agents wait" in waiting.remarks[0]
    assert "batch_size 32" in waiting.remarks[0]
    assert waiting.steps_per_agent == 8
    assert planned(**request, batch_size=4 * 16).remarks == ()
    assert planned(**request, batch_size=4 * 12, order="arrival").remarks == ()


def test_environments_that_were_built_otherwise_are_refused() -> None:
    plan = planned(agents=1, bptt_horizon=4, envs=8, workers=2)
    built = EnvSpec(ObservationSpec(3), ActionSpec((2,)), ("agent",), num_envs=8, num_blocks=2)
    plan.require(built)
    with pytest.raises(ConfigError, match=r"4 envs .*8, 1 blocks .*2"):
        plan.require(replace(built, num_envs=4, num_blocks=1))
