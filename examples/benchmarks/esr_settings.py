"""Files of settings of the obstacle gridworld benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from empo_core import Config

HERE = Path(__file__).parent
SETTINGS = HERE / "esr_blocks.yaml"
LEARNED = HERE / "esr_learned.yaml"


class Quick(Config):
    """What ``--quick`` changes."""

    boxes: list[int]
    episodes: int


class Empo(Config):
    """The rows of EMPO: all humans times all beta_r."""

    theory: dict[str, float | str]
    beta_r: list[float]
    humans: list[str]
    preset: str = "paper"


class Ave(Config):
    """The exact variant of assistance via empowerment."""

    steps: int
    discount: float
    sweeps: int


class Settings(Config):
    """The file of settings."""

    size: int
    steps: int
    boxes: list[int]
    start: str
    episodes: int
    seed: int
    quick: Quick
    bootstrap: int
    empo: Empo
    primary: str
    robots: list[str]
    ave: Ave


class Learning(Config):
    """How robots learn from experience; the page says where the numbers come from."""

    environments: int
    kept_batches: int
    batch_size: int
    discount: float
    q_lr: float
    feature_lr: float
    target_rate: float
    entropy: float
    rollouts: int
    rollout_steps: int
    variance_floor: float


class EmpoLearned(Config):
    """EMPO with each value network, for worlds with so many starts beyond two boxes."""

    beta_r: float
    starts: int
    values: list[str]
    params: dict[str, Any]


class LearnedSettings(Config):
    """The file of robots that learn."""

    seeds: list[int]
    env_steps: dict[str, int]
    learning: Learning
    empo: EmpoLearned
