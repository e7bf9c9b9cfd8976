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
        "minibatch_size": st.none() | st.integers(1, 3000),
        "max_minibatch_size": st.none() | st.integers(1, 500),
        "by_steps": st.booleans(),
        "processes": st.booleans(),
        "processors": st.integers(1, 16),
    }
)
examples = settings(max_examples=300)


def planned(**request: Any) -> VecPlan:
    return plan_vectorisation(SizeRequest(**request))


def refusal(**request: Any) -> str:
    with pytest.raises(ConfigError) as error:
        planned(**request)
    return str(error.value)


def test_the_worked_example_of_the_loop_has_the_corrected_sizes() -> None:
    plan = planned(**SEED_EXAMPLE)
    assert (plan.envs, plan.envs_per_block) == (64, 32)
    assert (plan.workers, plan.blocks) == (8, 2)
    assert (plan.num_agents, plan.block_agents) == (8192, 4096)
    assert (plan.segments, plan.batch_size) == (8192, 524_288)
    assert (plan.minibatches, plan.accumulate) == (32, 1)


@examples
@given(REQUESTS)
def test_sizes_fit_each_other_or_are_refused(request: dict[str, Any]) -> None:
    try:
        plan = planned(**request)
    except ConfigError as error:
        name, size, *_, fitting, _ = str(error).split(": it ")[0].replace(":", "").split()
        assert request[name.split(".")[-1]] == int(size) != int(fitting.rstrip(","))
        return
    assert plan.envs == plan.envs_per_block * plan.blocks
    assert plan.envs % plan.workers == plan.workers % plan.blocks == 0
    assert plan.num_agents == plan.envs * plan.agents == plan.block_agents * plan.blocks
    assert plan.segments >= plan.num_agents
    assert plan.segments % plan.block_agents == 0
    assert plan.segments * plan.horizon == plan.batch_size
    assert plan.minibatches * plan.minibatch_size == plan.batch_size
    if not request["by_steps"]:
        assert plan.minibatch_size % plan.horizon == 0
    if not request["processes"]:
        assert (plan.workers, plan.blocks) == (1, 1)
    for name, size in (
        ("envs", plan.envs),
        ("batch_size", plan.batch_size),
        ("minibatch_size", plan.minibatch_size),
    ):
        assert request[name] in (None, size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 524_300}, "batch_size: 524300 does not fit, 524288 does"),
        ({"envs": 64, "batch_size": 262_144}, "batch_size: 262144 does not fit, 524288 does"),
        ({"agents": 24}, "batch_size: 524288 does not fit, 516096 does"),
        ({"minibatch_size": 16_400}, "minibatch_size: 16400 does not fit, 16384 does"),
        ({"minibatch_size": 64 * 250}, "minibatch_size: 16000 does not fit, 16384 does"),
        ({"minibatch_size": 1_048_576}, "minibatch_size: 1048576 does not fit, 524288 does"),
        ({"workers": 3}, "workers: 3 does not fit, 2 does"),
        ({"envs": 63}, "async_factor: 2 does not fit, 1 does"),
    ],
)
def test_each_refusal_names_the_numbers_and_the_nearest_that_fits(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(**SEED_EXAMPLE | changes)


@pytest.mark.parametrize(("batch_size", "fitting"), [(1, 64), (95, 64), (97, 128), (190, 192)])
def test_the_nearest_size_that_fits_is_named(batch_size: int, fitting: int) -> None:
    with pytest.raises(ConfigError, match=rf"experience\.batch_size: {batch_size} .* {fitting} "):
        planned(agents=1, bptt_horizon=64, envs=1, processes=False, batch_size=batch_size)


def test_at_least_two_environments_arrive_together_where_agents_are_many() -> None:
    plan = planned(agents=9, bptt_horizon=4, forward_pass_minibatch_target_size=10, processes=False)
    assert plan.envs == 2


def test_minibatches_that_no_config_names_are_a_share_of_the_rollout() -> None:
    assert planned(agents=1, bptt_horizon=64, envs=8, processes=False).minibatches == 4
    assert planned(agents=1, bptt_horizon=64, envs=8192, processes=False).minibatches == 32
    few = planned(agents=1, bptt_horizon=64, envs=8, processes=False, by_steps=True)
    assert few.minibatch_size == 64


def test_minibatches_of_single_steps_need_not_be_whole_segments() -> None:
    plan = planned(
        agents=1, bptt_horizon=128, envs=4, processes=False, minibatch_size=32, by_steps=True,
        max_minibatch_size=16,
    )  # fmt: skip
    assert (plan.minibatch_size, plan.minibatches, plan.accumulate) == (32, 16, 2)


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
    plan = planned(agents=1, bptt_horizon=4, envs=envs, processors=processors, minibatch_size=4)
    assert (plan.workers, plan.blocks) == team


def test_environments_that_were_built_otherwise_are_refused() -> None:
    plan = planned(agents=1, bptt_horizon=4, envs=8, workers=2)
    built = EnvSpec(ObservationSpec(3), ActionSpec((2,)), ("agent",), num_envs=8, num_blocks=2)
    plan.require(built)
    with pytest.raises(ConfigError, match=r"4 envs .*8, 1 blocks .*2"):
        plan.require(replace(built, num_envs=4, num_blocks=1))
