"""Sizes of the entries of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayShape:
    """Sizes of one transition and one state of a replay.

    Attributes:
        words: Length of a state row.
        dtype: Type of a state row.
        slots: Number of goal slots.
        robot_actions: Number of joint actions of the robots.
        human_slots: Slots whose humans' policies are recorded: all or none.
        human_actions: Length of those policies; any number where there are none.
        humans: Number of humans.
        behaviour_actions: Joint robot actions whose chances in the behaviour policy are recorded:
            all or none.
        profiles: Joint actions of the humans that successors are recorded for.
    """

    words: int
    dtype: torch.dtype
    slots: int
    robot_actions: int
    human_slots: int
    human_actions: int
    humans: int
    profiles: int
    behaviour_actions: int = 0

    @property
    def pairs(self) -> int:
        """Number of (profile, robot action) pairs of a transition."""
        return self.profiles * self.robot_actions
