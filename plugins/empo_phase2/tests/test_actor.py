"""Actors record what the world and the prior say, and never what exploration would."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import cloudpickle
import pytest
import torch
from doors import DoorWorld, EagerHumans
from torch import Tensor
from walks import Even, favours_first, schedule

from empo_core.errors import SolveError
from empo_core.protocols import Actor, WorldModel
from empo_core.types import AgentSpec, Goal, InitialStates, Successors
from empo_learning.state_tree import flatten, unflatten
from empo_phase2.actor import ActorSettings, Phase2Actor, Phase2ActorFactory
from empo_phase2.cached_prior import CachedPrior
from empo_phase2.experience import Block
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Exploration, Phase2Params
from empo_phase2.state_recorder import StateRecorder, learner_spec
from empo_phase2.successors import JointActionOrder
from empo_phase2.world_checks import check_world
from empo_testing.exploration import as_mappings, joint_actions
from empo_testing.worlds import Street, TinyWorld
from empo_worlds.ensemble import EnsemblePrior, EnsembleWorld

AT_RANDOM = {"name": "epsilon-greedy", "params": {"start": 1.0, "end": 1.0}}
RND: dict[str, Any] = {"name": "rnd", "params": {"feature_dim": 4, "hidden_dim": 8}}


def actor_in(
    world: WorldModel, explorers: Any = (), *, index: int = 0, **settings: Any
) -> Phase2Actor:
    chosen = ActorSettings(**({"environments": 6, "goal_resample_prob": 0.1} | settings))
    exploration = Exploration.model_validate({"robot": [*explorers], "human": [*explorers]})
    prior = (
        EnsemblePrior(world, favours_first)
        if isinstance(world, EnsembleWorld)
        else favours_first(world)
    )
    explorers = ExplorerSet(exploration, learner_spec(world, chosen.store))
    return Phase2Actor(world, prior, Even(), explorers, schedule(), chosen, index)  # type: ignore[arg-type]


def play(actor: Phase2Actor, steps: int = 25) -> list[Block]:
    return [Block.from_arrays(actor.act(step).arrays) for step in range(steps)]


def successors_of(block: Block) -> list[dict[tuple[int, ...], float]]:
    """For each pair, the probability of each successor row."""
    moves = block.transitions
    found = Successors(moves.offsets, block.states.rows[moves.successor], moves.prob)
    return [{row: p for row, (p, _) in pair.items()} for pair in as_mappings(found)]


def close_to(pairs: list[dict[Any, tuple[float, float]]]) -> list[dict[Any, Any]]:
    return [{row: pytest.approx(p, abs=1e-6) for row, (p, _) in pair.items()} for pair in pairs]


def ordered(world: WorldModel) -> tuple[Tensor, Tensor]:
    """All joint actions, humans first and robots within, and their number of robot actions."""
    spec = world.spec
    joint = joint_actions(spec)
    robots, humans, stride = torch.zeros(len(joint)), torch.zeros(len(joint)), 1
    for robot in spec.robots:
        robots += joint[:, robot] * stride
        stride *= spec.num_actions[robot]
    count, stride = torch.tensor(stride), 1
    for human in spec.humans:
        humans += joint[:, human] * stride
        stride *= spec.num_actions[human]
    return joint[(humans * count + robots).argsort()], count


WORLDS = {
    "doors": lambda: DoorWorld(4),
    "endless doors": lambda: TinyWorld(None),
    "two robots": lambda: Street(2),
    "ensemble": lambda: EnsembleWorld([TinyWorld(4), DoorWorld(4)]),
}


@pytest.fixture(name="world", params=WORLDS)
def _world(request: pytest.FixtureRequest) -> WorldModel:
    world: WorldModel = WORLDS[request.param]()
    return world


class TwoStarts(DoorWorld):
    """Episodes begin in the first state, or in the second, which is three times as likely."""

    def initial_states(self) -> InitialStates:
        rows = torch.tensor([[0, 0], [1, 0]], dtype=self.spec.state_dtype)
        return InitialStates(rows, torch.tensor([0.25, 0.75]))


@pytest.mark.parametrize("several", [False, True])
def test_episodes_begin_in_initial_states_by_chance(several: bool) -> None:
    two = TwoStarts(4)
    world = EnsembleWorld([DoorWorld(4), two]) if several else two
    begun = []
    for block in play(actor_in(world, environments=200), 9):
        rows = block.states.rows[block.transitions.state[block.first]]
        begun.append(rows[rows[:, 0] == 1, 1:] if several else rows)
    assert len(torch.cat(begun)) > 200
    assert abs(float(torch.cat(begun)[:, 0].double().mean()) - 0.75) < 0.1


def test_it_fits_the_protocol(world: WorldModel) -> None:
    assert isinstance(actor_in(world), Actor)


def test_all_pairs_have_the_successors_that_the_world_gives(world: WorldModel) -> None:
    order, _ = ordered(world)
    for block in play(actor_in(world, [AT_RANDOM])):
        rows = block.states.rows[block.transitions.state]
        actions = order.repeat(len(rows), 1)
        expected = as_mappings(world.transitions(rows.repeat_interleave(len(order), 0), actions))
        assert successors_of(block) == close_to(expected)


def test_policies_of_all_slots_are_those_of_the_prior(world: WorldModel) -> None:
    actor = actor_in(world, [AT_RANDOM])
    members = world.worlds if isinstance(world, EnsembleWorld) else ()
    slots = GoalIndex.of(world.spec, [member.spec for member in members])
    for block in play(actor):
        moves = block.transitions
        layout = block.states.layout[moves.state]
        rows = block.states.rows[moves.state]
        for i, row in enumerate(rows):
            steps, goal = int(moves.steps_left[i]), slots.goal[layout[i]]
            prior = EnsemblePrior(world, favours_first) if members else favours_first(world)
            policy = prior.policy(row[None], torch.tensor([steps]))[0, goal].float()
            expected = policy * (goal >= 0)[:, None]
            torch.testing.assert_close(moves.human_policy[i], expected)


def test_states_say_what_the_world_says_of_them(world: WorldModel) -> None:
    members = world.worlds if isinstance(world, EnsembleWorld) else ()
    slots = GoalIndex.of(world.spec, [member.spec for member in members])
    spec = world.spec
    for block in play(actor_in(world)):
        states = block.states
        assert len(states.rows.unique(dim=0)) == len(states.rows)
        available = world.available(states.rows)
        assert torch.equal(states.terminal, ~available.flatten(1).any(1))
        for i, row in enumerate(states.rows):
            layout = int(row[0]) if members else 0
            assert states.layout[i] == layout
            achieved = world.achieved(row[None])[0]
            expected = [g >= 0 and bool(achieved[g]) for g in slots.goal[layout].tolist()]
            assert states.achieved[i].tolist() == expected
            joint = [True]
            for robot in spec.robots:
                own = available[i, robot, : spec.num_actions[robot]].tolist()
                joint = [a and b for b in own for a in joint]
            assert states.available[i].tolist() == joint


@pytest.mark.parametrize("explorers", [[], [AT_RANDOM]])
def test_what_follows_can_follow_and_episodes_end_as_they_should(
    world: WorldModel, explorers: list[Any]
) -> None:
    horizon = world.spec.horizon
    before: Block | None = None
    ended = 0
    for block in play(actor_in(world, explorers), 60):
        moves, states = block.transitions, block.states
        assert not states.terminal[moves.state].any()
        assert bool(states.available[moves.state, moves.action].all())
        real = [(int(row), int(a)) for row, a in enumerate(moves.action)]
        profile = torch.zeros(len(moves), dtype=torch.int64)
        stride = 1
        for k, human in enumerate(world.spec.humans):
            profile += block.human_choice[:, k] * stride
            stride *= world.spec.num_actions[human]
        robots = world.spec.num_robot_actions
        for row, action in real:
            pair = (row * stride + int(profile[row])) * robots + action
            items = range(int(moves.offsets[pair]), int(moves.offsets[pair + 1]))
            assert int(block.following[row]) in {int(moves.successor[item]) for item in items}
        if before is not None:
            for row in range(len(moves)):
                came = before.transitions
                left = int(came.steps_left[row]) - 1
                over = bool(before.states.terminal[before.following[row]])
                over = over or (horizon is not None and left == 0)
                ended += over
                assert bool(block.first[row]) == over
                if not over:
                    assert torch.equal(
                        states.rows[moves.state[row]], before.states.rows[before.following[row]]
                    )
                assert int(moves.steps_left[row]) == (
                    1 if horizon is None else horizon if over else left
                )
        before = block
    assert ended > 5


def test_robots_can_do_jointly_what_each_of_them_can_do() -> None:
    class Narrow(Street):
        def available(self, states: Tensor) -> Tensor:
            found = super().available(states)
            found[:, 1, 3], found[:, 2, 0] = states[:, 2] > 2, states[:, 4] > 2
            return found

    world = Narrow(2)
    recorder = StateRecorder(world, GoalIndex.of(world.spec), JointActionOrder(world.spec), "rows")
    recorder.number(world.initial_state()[None])
    first, second = [True, True, True, False], [False, True, True, True]
    expected = [a and b for b in second for a in first]
    assert recorder.states().available[0].tolist() == expected


def test_explorers_learn_from_what_humans_really_did() -> None:
    block = play(actor_in(Street(), all_profiles=False), 1)[0]
    block = replace(block, human_choice=torch.full_like(block.human_choice, 2))
    rnd = {"name": "rnd", "params": RND["params"] | {"weight_decay": 0.0}}
    explorers = ExplorerSet(Exploration.model_validate({"human": [rnd]}), Street().spec)
    name = "explorers.human_0.0.predictor.6.bias"
    before = explorers.weights()[name].clone()
    numbers = explorers.learn(block)
    changed = (explorers.weights()[name] != before).view(4, -1).any(1)
    assert changed.tolist() == [False, False, True, False]
    assert numbers["policy/explorers/human_0/0/loss"] > 0


def test_a_cut_episode_leaves_no_mark_in_what_was_recorded() -> None:
    blocks = play(actor_in(Street(1, horizon=6), steps_per_episode=2), 9)
    assert [block.first.tolist() for block in blocks] == [[i % 2 == 0] * 6 for i in range(9)]
    assert [set(block.transitions.steps_left.tolist()) for block in blocks] == [
        {6 - i % 2} for i in range(9)
    ]
    assert not any(block.states.terminal.any() for block in blocks)


def chances_of_recorded(block: Block, world: WorldModel) -> tuple[Tensor, Tensor]:
    """Chance of each recorded human action [env human slot] for each goal of its human.

    The second is True where the profile was recorded as a sample for the slot.
    """
    moves, slots = block.transitions, GoalIndex.of(world.spec)
    prior, chances = favours_first(world), []
    for i, state in enumerate(moves.state):
        policy = prior.policy(
            block.states.rows[state][None], torch.tensor([int(moves.steps_left[i])])
        )[0]
        own = block.recorded[i, slots.human]
        chances.append(policy[slots.goal[0]].gather(1, own[:, None])[:, 0])
    return torch.stack(chances), moves.acts_for


class Decided:
    """Humans that always do the last available thing."""

    def __init__(self, world: WorldModel) -> None:
        self._world = world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        spec = self._world.spec
        owners = [goal.human for goal in spec.goals]
        available = self._world.available(states)[:, owners]
        last = available.shape[2] - 1 - available.flip(2).int().argmax(2)
        return torch.nn.functional.one_hot(last, available.shape[2]).double()


def decided(world: WorldModel, explorers: Any, **settings: Any) -> Phase2Actor:
    exploration = Exploration.model_validate({"human": [*explorers], "robot": [*explorers]})
    explorers = ExplorerSet(exploration, world.spec)
    chosen = ActorSettings(environments=8, **settings)
    return Phase2Actor(world, Decided(world), Even(), explorers, schedule(), chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("model_based", [True, False])
def test_exploration_never_leaks_into_what_humans_are_said_to_do(model_based: bool) -> None:
    world = DoorWorld(4)
    order, robots = ordered(world)
    differed = 0
    actor = decided(world, [AT_RANDOM], all_profiles=False, model_based=model_based)
    for block in play(actor, 40):
        moves = block.transitions
        assert moves.human_policy.shape == (8, 0, 3)
        rows = block.states.rows[moves.state]
        available = world.available(rows)
        expected = 2 - available.flip(2).int().argmax(2)[:, [0, 2]]
        assert torch.equal(block.recorded, expected)
        explored = (block.human_choice != expected).any(1)
        differed += int(explored.sum())
        actions = order[: int(robots)].repeat(len(rows), 1)
        actions[:, [0, 2]] = expected.repeat_interleave(int(robots), 0)
        may = as_mappings(world.transitions(rows.repeat_interleave(int(robots), 0), actions))
        found = successors_of(block)
        if model_based:
            assert found == close_to(may)
            continue
        for pair, successors in enumerate(found):
            row, action = divmod(pair, int(robots))
            if action != int(moves.action[row]):
                assert successors == {}
                continue
            ((one, prob),) = successors.items()
            assert prob == 1
            assert one in may[pair]
            if torch.equal(block.human_choice[row], block.recorded[row]):
                assert one == tuple(block.states.rows[block.following[row]].tolist())
    assert differed > 20


@pytest.mark.parametrize("mode", [{"all_profiles": False}, {"model_based": False}])
def test_the_environment_moves_as_the_humans_really_act(mode: dict[str, bool]) -> None:
    world = Street(1)
    settings = {"all_profiles": False} | mode
    for block in play(decided(world, [AT_RANDOM], **settings), 20):
        moves = block.transitions
        actions = torch.stack([block.human_choice[:, 0], moves.action], 1)
        after = world.transitions(block.states.rows[moves.state], actions).states
        assert torch.equal(block.states.rows[block.following], after)


@pytest.mark.parametrize("explorers", [[], [AT_RANDOM]])
@pytest.mark.parametrize("model_based", [True, False])
def test_recorded_humans_act_for_a_goal_drawn_anew_in_each_state(
    explorers: list[Any], model_based: bool
) -> None:
    """Whatever goals they pursue: on average over goals, and for each goal that is named."""
    world = Street(1, horizon=1)
    actor = actor_in(
        world, explorers, all_profiles=False, model_based=model_based, environments=400,
        goal_resample_prob=0.0,
    )  # fmt: skip
    blocks = play(actor, 60)
    prior = favours_first(world).policy(world.initial_state()[None], torch.tensor([1]))[0]
    weight = torch.tensor([goal.weight for goal in world.spec.goals], dtype=torch.float64)
    mean = (weight[:, None] * prior).sum(0) / weight.sum()
    action = torch.cat([block.recorded[:, 0] for block in blocks])
    acts_for = torch.cat([block.transitions.acts_for for block in blocks])
    # Four standard errors of shares of at most 24,000 samples.
    found = action.bincount(minlength=4) / len(action)
    torch.testing.assert_close(found.double(), mean, rtol=0, atol=0.013)
    for slot, policy in enumerate(prior):
        own = action[acts_for[:, slot]]
        # A goal is named at least as often as it is drawn.
        assert len(own) / len(action) > float(weight[slot] / weight.sum()) - 0.013
        found = own.bincount(minlength=4) / len(own)
        torch.testing.assert_close(found.double(), policy, rtol=0, atol=2 / len(own) ** 0.5)


def test_recorded_profiles_of_several_humans_are_possible() -> None:
    for block in play(actor_in(DoorWorld(4), all_profiles=False)):
        chances, acts_for = chances_of_recorded(block, DoorWorld(4))
        assert float(chances[acts_for].min()) > 0


@pytest.mark.parametrize("explorers", [[], [AT_RANDOM], ["count-bonus"]])
def test_the_behaviour_policy_is_recorded_without_a_model(explorers: list[Any]) -> None:
    world = Street(1)
    actor = actor_in(world, explorers, all_profiles=False, model_based=False)
    for block in play(actor):
        moves = block.transitions
        torch.testing.assert_close(moves.behaviour.sum(1), torch.ones(len(moves)))
        assert bool((moves.behaviour.gather(1, moves.action[:, None]) > 0).all())
    assert play(actor_in(world, all_profiles=False))[0].transitions.behaviour.shape == (6, 0)


def pursuing(actor: Phase2Actor, steps: int) -> list[tuple[Block, Tensor]]:
    """Blocks, and the goal that each human pursued in each environment."""
    found = []
    for step in range(steps):
        goal = actor._episodes.goal.clone()
        found.append((Block.from_arrays(actor.act(step).arrays), goal))
    return found


def test_goals_are_drawn_by_weight_and_kept_until_they_are_achieved() -> None:
    world = Street(1)
    blocks = pursuing(actor_in(world, environments=400, goal_resample_prob=0.0), 30)
    drawn = torch.cat([goal[block.first] for block, goal in blocks])
    shares = drawn.flatten().bincount(minlength=3) / len(drawn)
    torch.testing.assert_close(shares, torch.tensor([1, 3, 5]) / 9, rtol=0, atol=0.03)
    changed_without_reason = kept_although_achieved = achieved_at_all = 0
    for (before, was), (block, now) in pairwise(blocks):
        old, new = was[:, 0], now[:, 0]
        reached = before.states.achieved[before.following].gather(1, old[:, None])[:, 0]
        same_episode = ~block.first
        changed_without_reason += int((same_episode & ~reached & (old != new)).sum())
        achieved_at_all += int((same_episode & reached).sum())
        kept_although_achieved += int((same_episode & reached & (old == new)).sum())
    assert changed_without_reason == 0
    # A new goal is drawn, which may be the old one again.
    assert 0.05 < kept_although_achieved / achieved_at_all < 0.7


def test_humans_change_their_minds_as_often_as_asked() -> None:
    world = Street(1, horizon=None)
    blocks = pursuing(actor_in(world, environments=300, goal_resample_prob=0.3), 10)
    changed = possible = 0
    for (before, was), (_, now) in pairwise(blocks):
        old, new = was[:, 0], now[:, 0]
        reached = before.states.achieved[before.following].gather(1, old[:, None])[:, 0]
        far = ~reached & (old == 0)
        changed, possible = changed + int((new != old)[far].sum()), possible + int(far.sum())
    assert changed / possible == pytest.approx(0.3 * 8 / 9, abs=0.05)


def test_worlds_of_an_ensemble_are_played_in_turn() -> None:
    world = EnsembleWorld([Street(1, 2), Street(1, 2), Street(1, 2)])
    blocks = play(actor_in(world, environments=4, index=2, episodes_per_world=2), 13)
    layouts = torch.stack([b.states.layout[b.transitions.state] for b in blocks])
    expected = (torch.arange(13)[:, None] // 4 + 2 + torch.arange(4)) % 3
    assert torch.equal(layouts, expected)


def test_compact_rows_are_recorded_where_they_are_asked_for() -> None:
    class Compact(Street):
        compact_features = Street().spec.featurizer

        def compact(self, states: Tensor) -> Tensor:
            return torch.cat([states * 10, states], 1).to(torch.int32)

    plain = play(actor_in(Street(), ["count-bonus"]))
    compact = play(actor_in(Compact(), ["count-bonus"], store="compact"))
    for one, other in zip(plain, compact, strict=True):
        assert other.states.rows.dtype == torch.int32
        assert torch.equal(other.states.rows, Compact().compact(one.states.rows))
        assert torch.equal(one.transitions.successor, other.transitions.successor)


def test_explorers_see_what_robots_can_bring_about() -> None:
    blocks = play(actor_in(Street(2), ["count-bonus", "action-sequences", RND]), 20)
    seen = torch.cat([block.states.rows[block.following] for block in blocks])
    assert len(seen.unique(dim=0)) > 50


EXPLORERS = [AT_RANDOM, "count-bonus", RND]
MODES = [{}, {"all_profiles": False}, {"all_profiles": False, "model_based": False}]


@pytest.mark.parametrize("mode", MODES)
def test_a_restored_actor_goes_on_bit_for_bit(world: WorldModel, mode: dict[str, bool]) -> None:
    explorers = EXPLORERS
    if isinstance(world, Street):
        explorers = [*EXPLORERS, "action-sequences"]
    actor = actor_in(world, explorers, **mode)
    weights = {name: 2 * tensor for name, tensor in actor._explorers.weights().items()}
    actor.load(weights, 3)
    for step in range(7):
        actor.act(step)
    data, tensors = flatten(actor.state_dict())
    stored = unflatten(data, {name: tensor.clone() for name, tensor in tensors.items()})
    goes_on = [actor.act(step) for step in range(7, 20)]
    other = actor_in(world, explorers, **mode)
    other.load_state_dict(stored)
    restored = [other.act(step) for step in range(7, 20)]
    for one, same in zip(goes_on, restored, strict=True):
        assert one.version == same.version == 3
        assert one.arrays.keys() == same.arrays.keys()
        assert all((one.arrays[name] == same.arrays[name]).all() for name in one.arrays)


def test_actors_with_other_numbers_or_seeds_do_other_things() -> None:
    def actions(**settings: Any) -> list[int]:
        blocks = play(actor_in(Street(), **settings), 5)
        return torch.cat([block.transitions.action for block in blocks]).tolist()

    assert actions() == actions()
    assert actions() != actions(index=1)
    assert actions() != actions(seed=1)


def test_experience_names_its_actor_and_the_weights_it_acted_with() -> None:
    actor = actor_in(Street(), index=4)
    first = actor.act(0)
    assert (first.actor, first.version, first.env_steps) == (4, 0, 6)
    weights = {"q_r.weight": torch.ones(2)}
    actor.load(weights, 7)
    weights["q_r.weight"].zero_()
    assert actor.act(1).version == 7
    # What a publisher writes into its tensors later must not matter.
    assert actor._behaviour.weights["q_r.weight"].tolist() == [1, 1]  # type: ignore[attr-defined]


def test_the_prior_is_asked_once_about_each_state_and_time() -> None:
    world, asked = DoorWorld(4), []

    class Counting(EagerHumans):
        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            asked.extend((*row, steps_left) for row in states.tolist())
            return super().policy(states, steps_left)

    slots = GoalIndex.of(world.spec)
    prior = CachedPrior(Counting(world), world)
    small = CachedPrior(EagerHumans(world), world, max_bytes=1)
    rows = torch.tensor([[0, 0], [1, 0], [0, 0]], dtype=torch.int16)
    for left in ([4, 4, 4], [4, 3, 1], [3, 3, 1], [4, 4, 4]):
        steps_left = torch.tensor(left)
        found = prior(rows, steps_left)
        for row, steps, policy in zip(rows, left, found, strict=True):
            expected = (
                EagerHumans(world)
                .policy(row[None], torch.tensor([steps]))[0, slots.goal[0]]
                .float()
            )
            assert torch.equal(policy, expected)
        assert torch.equal(small(rows, steps_left), found)
    assert len(asked) == len(set(asked)) == 5


class Slow(Street):
    """A street on which steps take time."""

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = super().transitions(states, actions)
        return replace(found, duration=torch.full_like(found.prob, 2.5))


@pytest.mark.parametrize("mode", MODES)
def test_steps_of_other_lengths_are_refused(mode: dict[str, bool]) -> None:
    with pytest.raises(SolveError, match=r"2\.5 steps"):
        actor_in(Slow(), **mode).act(0)


def test_a_world_that_is_over_when_it_begins_is_refused() -> None:
    class Over(Street):
        def available(self, states: Tensor) -> Tensor:
            return torch.zeros_like(super().available(states))

    with pytest.raises(SolveError, match="terminal"):
        actor_in(Over())


SPEC = Street().spec
HUMAN, ROBOT = SPEC.agents


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": (ROBOT, ROBOT)}, r"'street' .*human \(robot 0: robot"),
        ({"agents": (HUMAN, HUMAN)}, "'street'.* no robot"),
        (
            {"agents": (*SPEC.agents, AgentSpec(name="cat", role="other", actions=("purr",)))},
            r"cat \(agent 2\) of 'street'",
        ),
        ({"goals": ()}, r"human \(agent 0\) of 'street'.* no goals"),
        ({"goals": (Goal(human=0, name="idle", weight=0.0),)}, "weight 0"),
    ],
)
def test_a_world_without_anything_to_learn_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(SolveError, match=message):
        check_world(replace(SPEC, **changes))


def params(**groups: Any) -> Phase2Params:
    """The params of a run with the components of this folder."""
    usual = {
        "human_prior": "test-eager",
        "values": {"q_r": "test-flat", "v_h_e": "test-flat"},
        "aggregator": "test-adding",
    }
    return Phase2Params.model_validate(usual | groups)


@pytest.mark.usefixtures("components")
def test_settings_follow_the_config() -> None:
    world = DoorWorld(4)  # Twelve joint actions.
    assert ActorSettings.of(params(), world, 5) == ActorSettings(
        environments=64, frontier_prob=0.5, seed=5
    )
    groups = {
        "targets": {"max_pairs": 11},
        "num_envs": 3,
        "exploration": {"steps_per_episode": 9, "goal_resample_prob": 0.5},
        "ensemble": {"episodes_per_world": 4},
        "replay": {"store": "compact"},
    }
    assert ActorSettings.of(params(**groups), world, 5) == ActorSettings(
        environments=3,
        steps_per_episode=9,
        goal_resample_prob=0.5,
        episodes_per_world=4,
        frontier_prob=0.5,
        all_profiles=False,
        store="compact",
        seed=5,
    )
    modest = ActorSettings.of(params(targets={"model_based": False}), world, 0)
    assert (modest.all_profiles, modest.model_based, modest.frontier_prob) == (False, False, 0)
    exact = params(targets={"max_pairs": 12})
    assert ActorSettings.of(exact, world, 0).all_profiles


@pytest.mark.usefixtures("components")
def test_a_factory_survives_the_way_to_another_process() -> None:
    exploration = {"robot": [AT_RANDOM], "human": ["count-bonus"]}
    factory = Phase2ActorFactory(
        worlds=(lambda: DoorWorld(4), lambda: DoorWorld(4)),
        params=params(exploration=exploration, num_envs=4),
        seed=3,
    )
    copied = cloudpickle.loads(cloudpickle.dumps(factory))
    one, other = factory(1), copied(1)
    for step in range(5):
        first, second = one.act(step), other.act(step)
        assert (first.arrays["transitions.action"] == second.arrays["transitions.action"]).all()
        assert (first.arrays["states.rows"] == second.arrays["states.rows"]).all()
    assert isinstance(factory.world(), EnsembleWorld)


def test_a_search_comes_to_every_timed_state_before_it_comes_to_any_twice() -> None:
    actor = actor_in(Street(horizon=3), environments=1, frontier_prob=1.0)
    seen = []
    for block in play(actor, 200):
        row = block.states.rows[block.transitions.state[0]]
        seen.append((*row.tolist(), int(block.transitions.steps_left[0])))
    count = len(set(seen))
    assert 50 < count < 150
    assert len(set(seen[:count])) == count
