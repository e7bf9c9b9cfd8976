"""Files of settings of the obstacle gridworld benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from empo_benchmarks.blocks.params import GoalInferenceParams
from empo_core import Config
from empo_core.config import HumanPriorRef

Start = Literal["corner", "corner_hard", "center", "random"]
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


class GoalList(Config):
    """The goals that an inferring robot holds possible: so many, with the human's or without."""

    goals: int = Field(ge=1)
    has_true: bool


class Inferring(Config):
    """Robots that infer the goal: all models of the human times all lists of goals."""

    humans: dict[str, HumanPriorRef]
    lists: list[GoalList]
    params: GoalInferenceParams


class Settings(Config):
    """The file of settings."""

    size: int
    steps: int
    boxes: list[int]
    start: Start | list[Start]
    episodes: int
    seed: int
    quick: Quick
    bootstrap: int
    empo: Empo
    primary: str
    robots: list[str]
    ave: Ave
    inferring: Inferring | None = None

    @model_validator(mode="after")
    def _lists_fit(self) -> Settings:
        for at, goals in enumerate(self.inferring.lists if self.inferring else []):
            others = self.size**2 - 1
            if goals.goals - goals.has_true > others:
                raise ValueError(
                    f"inferring.lists[{at}]: {goals.goals} goals are too many; beside the true one "
                    f"there are {others}"
                )
        return self

    @property
    def starts(self) -> list[Start]:
        """All kinds of starts."""
        return self.start if isinstance(self.start, list) else [self.start]


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
    features: dict[str, int] = Field(default_factory=lambda: {"contrastive": 32})
    """Sizes of the features of robots that are contrastive, by name."""
    reward_unit: Literal["product", "logit"] = "product"
    """The inner product of features, or that divided by their number, as in the loss."""


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
