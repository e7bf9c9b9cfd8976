"""Roles of the agents of a world: a check that every agent has one."""

from __future__ import annotations

from empo_core.errors import EmpoError, SolveError
from empo_core.types import WorldSpec


def check_roles(spec: WorldSpec, error: type[EmpoError] = SolveError) -> None:
    """Refuse a world with an agent of role ``other``: no policy, prior or value is defined for it.

    Args:
        spec: The world.
        error: Class of the error to raise.

    Raises:
        EmpoError: Some agent is neither human nor robot; an instance of ``error``.
    """
    for index, agent in enumerate(spec.agents):
        if agent.role == "other":
            raise error(
                f"{agent.name} (agent {index}) of {spec.name!r} is neither human nor robot, so "
                "nothing says how it acts. Give it a role in the world."
            )
