"""The file of settings of the Disempower-Grid benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from empo_core import Config

SETTINGS = Path(__file__).with_name("disempower.yaml")


class Empo(Config):
    """Robots for which the power of both humans counts."""

    xi: list[float]
    beta_r: list[float]


class Fair(Config):
    """The same with preset fair."""

    rho: list[int]
    beta_r: list[float]


class Proxies(Config):
    """What the exact versions of the publication's robots look at."""

    steps: int
    rollouts: int
    discount: float


class Primary(Config):
    """The two robots that are compared."""

    proposal: str
    rival: str


class Layout(Config):
    """How a layout is played by exact occupancies."""

    steps: int
    humans: list[str]
    robots: list[str] | None = None
    """Solved robots; None means all."""


class Embodied(Config):
    """How layouts with keys are played."""

    layouts: list[str]
    plan: int
    steps: int
    episodes: int
    seed: int
    bootstrap: int
    robots: list[str]


class Settings(Config):
    """The file of settings."""

    theory: dict[str, float | str]
    humans: dict[str, dict[str, float | str]]
    user_only: list[float]
    empo: Empo
    fair: Fair
    proxies: Proxies
    primary: Primary
    canonical: dict[str, Layout]
    quick: dict[str, Layout]
    embodied: Embodied

    def solved_robots(self) -> dict[str, dict[str, Any]]:
        """Params of ``exact`` of each robot that is solved for, beside the humans."""
        robots: dict[str, dict[str, Any]] = {}
        for beta_r in self.user_only:
            theory = {**self.theory, "beta_r": beta_r}
            robots[f"user only beta_r {beta_r:g}"] = {"theory": theory, "counts": ["user"]}
        for beta_r in self.empo.beta_r:
            for xi in self.empo.xi:
                theory = {**self.theory, "xi": xi, "beta_r": beta_r}
                robots[f"EMPO xi {xi:g} beta_r {beta_r:g}"] = {"theory": theory}
        for beta_r in self.fair.beta_r:
            for rho in self.fair.rho:
                theory = {**self.theory, "beta_r": beta_r, "rho": rho}
                robots[f"fair rho {rho} beta_r {beta_r:g}"] = {"preset": "fair", "theory": theory}
        return robots
