"""Roles of the agents of a world, and what humans need: checks before anything is computed."""

from __future__ import annotations

from empo_core.errors import UnsuitableWorldError
from empo_core.types import WorldSpec


def check_roles(spec: WorldSpec) -> None:
    """Refuse a world with an agent of role ``other``: no policy, prior or value is defined for it.

    Raises:
        UnsuitableWorldError: if an agent is neither human nor robot.
    """
    for index, agent in enumerate(spec.agents):
        if agent.role == "other":
            raise UnsuitableWorldError(
                f"{agent.name} (agent {index}) of {spec.name!r} is neither human nor robot, so "
                "nothing says how it acts. Give it a role in the world."
            )


def check_humans(spec: WorldSpec) -> None:
    """Refuse a world in which human power is undefined.

    Raises:
        UnsuitableWorldError: if there is no human, a human has no goals, or an agent has no role.
    """
    if not spec.humans:
        roles = ", ".join(f"{agent.name}: {agent.role}" for agent in spec.agents)
        raise UnsuitableWorldError(
            f"{spec.name!r} has no human ({roles}), so there is no human power to maximise. "
            "Give an agent the role 'human' in the world."
        )
    check_roles(spec)
    for human in spec.humans:
        if not spec.goals_of(human):
            raise UnsuitableWorldError(
                f"{spec.agents[human].name} (agent {human}) of {spec.name!r} has no goals, so its "
                "power is undefined. Add goals to the world."
            )
