"""Checks of policies: probabilities that sum to 1, over available actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols.worlds import HumanPrior, RobotPolicy, WorldModel
from empo_core.types import WorldSpec
from empo_worlds.contract import available_in, state_text

SUM_TOLERANCE = 1e-5
"""Tolerance of the sum of a human's probabilities around 1: they may be in single precision."""
ROBOTS_TOLERANCE = 1e-4
"""The same for robots, whose probabilities are rescaled by whoever asks: joint actions are many."""
UNAVAILABLE_TOLERANCE = 1e-9
"""Probability of an action that is not available that is taken for rounding, and for 0."""

PRIOR = "the human prior"
ROBOTS = "the robots' policy"


def human_policy(
    world: WorldModel,
    prior: HumanPrior,
    states: Int[Tensor, "state word"],
    steps_left: int | Int[Tensor, " state"],
    of: str = PRIOR,
) -> Float[Tensor, "state goal action"]:
    """Probabilities by ``prior.policy``, checked; see ``checked_human_policy``."""
    policy = prior.policy(states, _per_state(states, steps_left))
    return checked_human_policy(world, states, policy, of)


def robot_policy(
    world: WorldModel,
    robots: RobotPolicy,
    states: Int[Tensor, "state word"],
    steps_left: int | Int[Tensor, " state"],
) -> Float[Tensor, "state robot_action"]:
    """Probabilities by ``robots.policy``, checked; see ``checked_robot_policy``."""
    policy = robots.policy(states, _per_state(states, steps_left))
    return checked_robot_policy(world, states, policy)


def _per_state(states: Tensor, steps_left: int | Tensor) -> Tensor:
    """Steps left of each state, of which an int is the same for all."""
    return torch.full((len(states),), steps_left) if isinstance(steps_left, int) else steps_left


def checked_robot_policy(
    world: WorldModel, states: Int[Tensor, "state word"], answer: Tensor
) -> Float[Tensor, "state robot_action"]:
    """Probability of each joint robot action, on the CPU in float64; unavailable ones have 0.

    Args:
        world: The world.
        states: Non-terminal states.
        answer: The policy's answer in them, as ``RobotPolicy.policy`` gives it.

    Raises:
        SolveError: if the answer is no distribution over available actions; the message names the
            state.
    """
    spec = world.spec
    chances = _numbers(answer, (len(states), spec.num_robot_actions), ROBOTS)
    _refuse_improper(world, states, chances[:, None], ROBOTS, [""], ROBOTS_TOLERANCE)
    may = available_in(world, states)[:, list(spec.robots)]
    forbidden = (chances != 0) & ~_joint_available(spec, may)
    wrong = forbidden & (chances > UNAVAILABLE_TOLERANCE)
    if bool(wrong.any()):
        state, action = wrong.nonzero()[0].tolist()
        description = f"{float(chances[state, action]):g} to {spec.robot_action_names[action]!r}"
        raise _unavailable(world, ROBOTS, description, states[state])
    return chances.masked_fill(forbidden, 0.0)


def checked_human_policy(
    world: WorldModel, states: Int[Tensor, "state word"], answer: Tensor, of: str = PRIOR
) -> Float[Tensor, "state goal action"]:
    """Action probabilities of each goal's human, on the CPU in float64; unavailable ones are 0.

    Args:
        world: The world.
        states: Non-terminal states.
        answer: The policy's answer in them, as ``HumanPrior.policy`` gives it.
        of: The policy, for the message.

    Raises:
        SolveError: if the answer is no distribution over actions that are available to the goal's
            human; the message names the state, the human and the action.
    """
    spec = world.spec
    chances = _numbers(answer, (len(states), len(spec.goals), None), of)
    subjects = [
        f" of {spec.agents[goal.human].name} (agent {goal.human}) for goal {goal.name!r}"
        for goal in spec.goals
    ]
    _refuse_improper(world, states, chances, of, subjects)
    humans = [goal.human for goal in spec.goals]
    may = torch.zeros(chances.shape, dtype=torch.bool)
    width = min(chances.shape[2], max(spec.num_actions))
    may[:, :, :width] = available_in(world, states)[:, humans, :width]
    forbidden = (chances != 0) & ~may
    wrong = forbidden & (chances > UNAVAILABLE_TOLERANCE)
    if bool(wrong.any()):
        state, goal, action = wrong.nonzero()[0].tolist()
        agent, number = spec.agents[humans[goal]], spec.num_actions[humans[goal]]
        if action >= number:
            raise SolveError(
                f"{of} knows more actions of {agent.name} than the {number} that it has; it was "
                "made for another world"
            )
        description = (
            f"{float(chances[state, goal, action]):g} to {agent.actions[action]!r}{subjects[goal]}"
        )
        raise _unavailable(world, of, description, states[state])
    return chances.masked_fill(forbidden, 0.0)


def refuse_wrong_choice(
    chances: Float[Tensor, "state choice"],
    available: Bool[Tensor, "state choice"],
    states: Int[Tensor, "state word"],
    of: str,
) -> None:
    """Refuse numbers that are no probabilities over the given available choices.

    Raises:
        SolveError: if the probabilities are no distribution over available choices; the message
            names the state and the choice.
    """
    wrong = (chances > UNAVAILABLE_TOLERANCE) & ~available
    improper = _is_improper(chances, SUM_TOLERANCE)
    if bool(improper.any()):
        state = int(improper.int().argmax())
        raise SolveError(
            f"{of} is no probability distribution, e.g. {chances[state].tolist()} in the state "
            f"{states[state].tolist()}"
        )
    if bool(wrong.any()):
        state, choice = wrong.nonzero()[0].tolist()
        raise SolveError(
            f"{of} acts in a way that is not available: it gives probability "
            f"{float(chances[state, choice]):g} to choice {choice} in the state "
            f"{states[state].tolist()}"
        )


def _numbers(answer: object, shape: tuple[int | None, ...], of: str) -> Tensor:
    """The answer of a policy on the CPU, in double precision."""
    if not isinstance(answer, Tensor):
        raise SolveError(f"{of} must return a tensor, not {type(answer).__name__}")
    expected = [
        actual if size is None else size for actual, size in zip(answer.shape, shape, strict=False)
    ]
    if answer.ndim != len(shape) or list(answer.shape) != expected:
        required = [size if size is not None else "action" for size in shape]
        raise SolveError(
            f"{of} must return shape {required}, not {list(answer.shape)}; it was made for another "
            "world"
        )
    return answer.detach().cpu().double()


def _is_improper(
    chances: Float[Tensor, "*batch action"], tolerance: float
) -> Bool[Tensor, "*batch"]:
    """Where probabilities over the last axis are negative, NaN, or do not sum to 1."""
    return ~((chances.sum(-1) - 1).abs() <= tolerance) | (chances < 0).any(-1)


def _refuse_improper(
    world: WorldModel,
    states: Tensor,
    chances: Tensor,
    of: str,
    subjects: Sequence[str],
    tolerance: float = SUM_TOLERANCE,
) -> None:
    """Refuse numbers [state, subject, action] that are negative, NaN, or do not sum to 1."""
    wrong = _is_improper(chances, tolerance)
    if bool(wrong.any()):
        state, place = wrong.nonzero()[0].tolist()
        raise SolveError(
            f"{of} is no probability distribution in {int(wrong.sum())} of {wrong.numel()} cases, "
            f"e.g. {chances[state, place].tolist()}{subjects[place]}; {of} must return "
            "probabilities that are at least 0 and sum to 1 over actions. "
            f"{state_text(world, states[state])}"
        )


def _unavailable(world: WorldModel, of: str, description: str, state: Tensor) -> SolveError:
    return SolveError(
        f"{of} acts in a way that is not available in a state of {world.spec.name!r}: it gives "
        f"probability {description}. An action that is not available must have probability 0: "
        f"correct the policy, unless it was made for another world. {state_text(world, state)}"
    )


def _joint_available(
    spec: WorldSpec, may: Bool[Tensor, "state robot action"]
) -> Bool[Tensor, "state robot_action"]:
    """Which joint robot actions are available; the first robot counts fastest."""
    joint = torch.arange(spec.num_robot_actions)
    available, stride = torch.ones(len(may), len(joint), dtype=torch.bool), 1
    for position, robot in enumerate(spec.robots):
        available &= may[:, position, joint // stride % spec.num_actions[robot]]
        stride *= spec.num_actions[robot]
    return available
