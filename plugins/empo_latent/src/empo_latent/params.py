"""The parameters of algorithm ``latent``, in groups of what belongs together.

No combination of them is without meaning: those that are refused are refused here, with their keys,
but for the demands of policy losses, which ``algorithm.py`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from empo_core import Config
from empo_core.config import EnvironmentRef, PolicyLossRef, merged
from empo_latent.presets import PRESETS, SIZES, Preset, Size
from empo_learning.extension import InitialModel
from empo_learning.params import MOST_LR, Compute, Optimiser, Replay, ScoredReporting

Units = Annotated[int, Field(ge=1, le=10**9)]
"""Units of a layer; RAM refuses most of it, with its bytes."""
Layers = Annotated[int, Field(ge=1, le=1000)]
NumHeads = Annotated[int, Field(ge=1, le=10**6)]
Plans = Annotated[int, Field(ge=0, le=10**6)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, le=1)]
"""Rate of a running average, or the weight of each thing relative to the one before."""
Discount = Annotated[float, Field(gt=0, lt=1)]

Heads = Literal["mean", "min", "max"]
"""The reduction of estimates of several heads to one."""
Actor = Literal["planner", "policy"]
"""The choice of actions: by the planner, or by the policy alone."""
SMALLEST_PICTURE = 39
"""Least side of a picture that leaves anything for the encoder's last convolution."""


def _require_order(params: Config, low: str, high: str) -> None:
    """Refuse a number that exceeds another one.

    Raises:
        ValueError: if the first exceeds the second.
    """
    less, more = getattr(params, low), getattr(params, high)
    if less > more:
        raise ValueError(f"{low} ({less:g}) must not exceed {high} ({more:g})")


class EncoderParams(Config):
    """From observations to latents."""

    layers: Layers = Field(2, description="Layers, the one to the latent included.")
    width: Units = Field(256, description="Units of each hidden layer.")
    channels: Units = Field(32, description="Filters of each convolution, for pictures.")
    shift: int = Field(
        3, ge=0, le=1000, description="Pixels by which pictures are shifted at random in training."
    )
    average_rate: Rate | None = Field(
        None,
        description="Rate of a running average of the encoder, whose latents dynamics should "
        "predict; null: those of the encoder itself.",
    )


class LatentSpaceParams(Config):
    """Latents and the dynamics models."""

    size: int = Field(512, ge=2, le=10**9, description="Numbers of a latent.")
    group: int = Field(
        8, ge=2, le=10**9, description="Numbers that share a softmax; divides the size."
    )
    width: Units = Field(512, description="Units of each hidden layer of all heads.")
    layers: Layers = Field(2, description="Hidden layers of all heads.")
    heads: NumHeads = Field(1, description="Dynamics models.")
    consistency_coef: Positive = Field(20.0, description="Factor of the prediction loss.")
    task_size: Units = Field(96, description="Numbers that stand for a task, of several.")

    @model_validator(mode="after")
    def _groups_fit(self) -> LatentSpaceParams:
        if self.size % self.group:
            raise ValueError(
                f"latents of {self.size} numbers cannot be divided into groups of {self.group}: "
                "choose a size that is a multiple of the group"
            )
        return self


class BinsParams(Config):
    """Bins in symlog space, over which rewards and values are distributions."""

    number: int = Field(101, ge=2, le=10**9, description="Bins.")
    low: float = Field(-10.0, description="Least symlog.")
    high: float = Field(10.0, description="Greatest symlog.")

    @model_validator(mode="after")
    def _ascends(self) -> BinsParams:
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, and {self.low:g} is not")
        return self


class RewardParams(Config):
    """Reward heads and the termination head."""

    heads: NumHeads = Field(1, description="Reward models.")
    coef: Positive = Field(0.1, description="Factor of the reward loss.")
    episodic: bool = Field(
        False,
        description="Whether a head learns from the beginning where episodes terminate; false: "
        "from the first one on that does.",
    )
    termination_coef: Positive = Field(1.0, description="Factor of the termination loss.")


class ValueParams(Config):
    """Value heads, of states or of actions in them."""

    critic: Literal["v", "q"] = Field(
        "v",
        description="'v' values states and learns from imagined steps; 'q' values actions and "
        "learns from those that were taken.",
    )
    heads: NumHeads = Field(5, description="Value models.")
    dropout: float = Field(0.01, ge=0, lt=1, description="Share of the first layer left out.")
    target_rate: Rate = Field(0.01, description="Rate at which target networks follow.")
    coef: Positive = Field(0.1, description="Factor of the value loss.")
    bootstrap: Literal["local", "pair"] = Field(
        "local",
        description="Which heads a head learns from: itself, or the least of two drawn at random.",
    )
    dynamics: Heads = Field(
        "mean", description="Reduction of targets of candidates over dynamics and reward heads."
    )
    average: Literal["target", "cross_entropy"] = Field(
        "target",
        description="Quantity averaged over candidates: targets, which learns their mean, or "
        "losses, which learns the mean of symlogs. Critic 'q' has no candidates.",
    )
    gradient: Literal["rollout", "encoder"] = Field(
        "rollout",
        description="Latents at which values are predicted, and what learns from them besides the "
        "value heads: dynamics and encoder (rolled-out latents), or the encoder (encodings).",
    )


class AuxiliaryParams(Config):
    """Values under further discounts, which only shape the latents."""

    discounts: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        min_length=1, max_length=6, description="The discounts, each of a value head of its own."
    )
    coef: Positive = Field(0.01, description="Factor of their loss.")


class PolicyParams(Config):
    """The policy network; what it learns from is ``policy_loss``."""

    min_log_std: float = Field(-3.0, description="Least log standard deviation.")
    max_log_std: float = Field(1.0, description="Greatest log standard deviation.")
    average_rate: Rate | None = Field(
        None,
        description="Rate of a running average of the policy that proposes candidates, which a "
        "trust region needs in order to bind; null: the policy itself proposes.",
    )

    @model_validator(mode="after")
    def _ascends(self) -> PolicyParams:
        _require_order(self, "min_log_std", "max_log_std")
        return self


class ImaginationParams(Config):
    """Steps that are imagined, to learn values and the policy from."""

    candidates: int | None = Field(
        None, ge=1, description="Actions tried at each state; null: as many as the loss likes."
    )
    start: Literal["encoding", "rollout"] = Field(
        "encoding", description="Whether to start at encodings, or at predicted latents."
    )
    rho: Rate = Field(
        0.5,
        description="Weight of each start relative to the one before, in losses of values and "
        "policies.",
    )
    critic: Literal["target", "online"] = Field(
        "target",
        description="Value networks that say how good candidates are, for values and policies; "
        "gradients in actions are the online networks'.",
    )
    value_heads: NumHeads | None = Field(
        None,
        description="Number of value heads, drawn at random for each update, that judge actions "
        "for the policy loss; null: all.",
    )


class DiscountParams(Config):
    """Discounts of tasks by the length of their episodes: ``1 - denominator / length``, bounded."""

    denominator: Positive = Field(
        5.0, description="Length of an episode over the time constant of the discount."
    )
    minimum: Discount = Field(0.95, description="Smallest discount.")
    maximum: Discount = Field(0.995, description="Largest discount.")

    @model_validator(mode="after")
    def _ascends(self) -> DiscountParams:
        _require_order(self, "minimum", "maximum")
        return self


class LearningParams(Config):
    """Sequences, temporal weights and the frequency of updates."""

    horizon: int = Field(3, ge=1, le=1000, description="Steps of a sequence, and of a plan.")
    rho: Rate = Field(0.5, description="Weight of each recorded step relative to the one before.")
    updates_per_step: Positive = Field(
        1.0, description="Updates per step of the environments (update-to-data ratio)."
    )


class OptimiserParams(Optimiser):
    """Parameters of the optimiser (Adam)."""

    lr: float = Field(3e-4, gt=0, le=MOST_LR, description="Learning rate.")
    encoder_lr_scale: Positive = Field(0.3, description="Its factor for the encoder.")
    policy_eps: Positive = Field(1e-5, description="Adam's epsilon for the policies.")
    weight_decay: float = Field(0.0, ge=0, description="Decay of the weights (AdamW).")
    max_grad_norm: Positive | None = Field(
        20.0,
        description="Longer gradients are cut to this, models and each policy apart; null: none.",
    )


class PlannerParams(Config):
    """Model predictive path integral control, with proposals of the policy."""

    iterations: int | None = Field(
        None, ge=1, description="Rounds; null: 6, and 8 from 20 numbers per action on."
    )
    samples: Plans = Field(512, ge=2, description="Plans that are tried each round.")
    elites: Plans = Field(64, ge=1, description="Number of best plans that form the next round.")
    policy_plans: Plans = Field(24, description="Number of samples that the policy proposes.")
    min_std: float = Field(0.05, ge=0, description="Least standard deviation.")
    max_std: Positive = Field(2.0, description="Greatest, and that of the first round.")
    temperature: Positive = Field(
        0.5, description="Factor of scores in elites' weights: higher favours the best."
    )
    exploration: float = Field(
        1.0, ge=0, description="Factor of the noise on the chosen action, in training."
    )
    heads: Heads = Field("mean", description="Reduction over heads.")
    value_heads: NumHeads | None = Field(
        None, description="Number of value heads that judge plans, drawn anew for each; null: all."
    )
    disagreement: float = Field(
        0.0, description="Factor of the heads' disagreement on the value, in training."
    )

    @model_validator(mode="after")
    def _ascends(self) -> PlannerParams:
        _require_order(self, "elites", "samples")
        _require_order(self, "policy_plans", "samples")
        _require_order(self, "min_std", "max_std")
        return self


class CollectionParams(Config):
    """Collection of experience; a step is one decision, whatever the action repeat."""

    seed_steps: int | None = Field(
        None,
        ge=1,
        description="Steps with random actions before learning; null: five episodes of every "
        "task, at least 1000.",
    )
    seed_updates: int | None = Field(
        None, ge=0, description="Updates made at once after them; null: one per step of them."
    )
    acting: Actor = Field(
        "planner", description="Actor in training: the planner, or the policy alone."
    )


class ComputeParams(Compute):
    """Parameters of the computation: device, threads, compilation."""

    compile: bool = Field(False, description="Compile updates and plans; needs a C++ compiler.")


class ReportingParams(ScoredReporting):
    """Parameters of logs, checkpoints and evaluations; intervals are in steps, 0: never."""

    log_interval: int = Field(200, ge=1, description="Steps between two lines of metrics.")
    keep_replay: bool = Field(
        True, description="Put what is remembered into checkpoints, to go on exactly so."
    )
    evaluation_interval: int = Field(10_000, ge=0, description="Steps between evaluations.")
    evaluate: list[Actor] = Field(
        default_factory=lambda: list[Actor](("planner", "policy")),
        min_length=1,
        description="Actors in evaluations.",
    )
    videos: int = Field(1, ge=0, description="Episodes of the last evaluation that are filmed.")

    @model_validator(mode="after")
    def _names_once(self) -> ReportingParams:
        if len(set(self.evaluate)) < len(self.evaluate):
            raise ValueError("evaluate: name each actor once")
        return self


class LatentParams(Config):
    """A latent world model, learned from experience, and policies learned in it."""

    synonyms: ClassVar = {
        "buffer_size": "replay.capacity",
        "learning_rate": "optimiser.lr",
        "n_envs": "num_envs",
        "total_timesteps": "total_steps",
    }
    """Names that other libraries have for keys, for errors."""

    preset: Preset = Field(
        "awr",
        description="Agent, i.e. what all parameters are where none are given: with the policy "
        "loss awr or svg, TD-MPC2 as published, or seed, the choices of the first design.",
    )
    size: Size = Field(
        "1M", description="Sizes where none are given; the defaults that are listed are of 5M."
    )
    total_steps: int = Field(ge=1, description="Steps of all environments together.")
    num_envs: int = Field(
        1, ge=1, description="Environments that act at once, shared by the tasks."
    )
    gamma: Discount | None = Field(
        None,
        description="Discount per step; null: by the length of episodes, see discount.",
    )
    discount: DiscountParams = DiscountParams()
    tasks: list[EnvironmentRef] = Field(
        default_factory=list,
        description="Environments to learn in, e.g. [gymnasium/Pendulum-v1, "
        "dmc/cartpole-swingup]; several share all networks. Empty where a function of the Python "
        "API makes the only one.",
    )
    policy_loss: PolicyLossRef = Field(
        default_factory=lambda: PolicyLossRef.model_validate("awr"),
        description="Loss of the policy, e.g. awr or svg; where none is given, the preset's.",
    )
    optimistic_loss: PolicyLossRef | None = Field(
        None,
        description="Loss of a second, optimistic policy, whose proposals the planner takes in "
        "training; null: there is none.",
    )
    initial: InitialModel | None = Field(
        None,
        description="A run directory, or its results/model.safetensors, whose networks are the "
        "first ones; null: random weights.",
    )
    collection: CollectionParams = CollectionParams()
    replay: Replay = Replay()
    encoder: EncoderParams = EncoderParams()
    latents: LatentSpaceParams = LatentSpaceParams()
    bins: BinsParams = BinsParams()
    reward: RewardParams = RewardParams()
    value: ValueParams = ValueParams()
    auxiliary: AuxiliaryParams | None = Field(
        None,
        description="Values under further discounts, which only shape the latents; null: there "
        "are none.",
    )
    policy: PolicyParams = PolicyParams()
    imagination: ImaginationParams = ImaginationParams()
    learning: LearningParams = LearningParams()
    optimiser: OptimiserParams = Field(
        default_factory=OptimiserParams, description="The optimiser and its learning rate."
    )
    planner: PlannerParams = PlannerParams()
    compute: ComputeParams = ComputeParams()
    reporting: ReportingParams = ReportingParams()

    @property
    def task_label(self) -> str | None:
        """The first task and how many there are besides, for the name of the run."""
        if not self.tasks:
            return None
        parts = [getattr(self.tasks[0].params, key, None) for key in ("id", "domain", "task")]
        label = "-".join(str(part) for part in parts if part is not None) or self.tasks[0].name
        more = len(self.tasks) - 1
        return f"{label}_and_{more}_more" if more else label

    @property
    def scheduled(self) -> list[str]:
        """Keys of what follows the share of ``total_steps`` that is done."""
        losses = {"policy_loss": self.policy_loss, "optimistic_loss": self.optimistic_loss}
        entropies = {
            name: getattr(getattr(loss, "params", None), "entropy", None)
            for name, loss in losses.items()
        }
        keys = ["optimiser.lr_schedule"] if self.optimiser.lr_schedule.name != "constant" else []
        return keys + [
            f"{name}.params.entropy.schedule"
            for name, entropy in entropies.items()
            if getattr(entropy, "schedule", "constant") != "constant"
        ]

    def discounts(self, lengths: Iterable[int]) -> list[float]:
        """The discount of each task: as given, or by the length of its episodes (TD-MPC2)."""
        rule = self.discount
        if self.gamma is not None:
            return [self.gamma for _ in lengths]
        return [
            min(max(1 - rule.denominator / length, rule.minimum), rule.maximum)
            for length in lengths
        ]

    @field_validator("tasks")
    @classmethod
    def _pictures_can_be_encoded(cls, tasks: list[EnvironmentRef]) -> list[EnvironmentRef]:
        for task in tasks:
            size = getattr(task.params, "picture_size", None)
            if size is not None and size < SMALLEST_PICTURE:
                raise ValueError(
                    f"picture_size {size}: should be greater than or equal to {SMALLEST_PICTURE}, "
                    "which leaves something for the encoder's last convolution"
                )
        return tasks

    @model_validator(mode="after")
    def _groups_fit(self) -> LatentParams:
        if problems := list(self._misfits()):
            raise ValueError("\n".join(problems))
        return self

    def _misfits(self) -> Iterator[str]:
        """What is wrong with groups of parameters beside each other, each with its key."""
        if self.gamma is not None and self.discount != DiscountParams():
            yield "discount: says what gamma is where that is null; drop one of them"
        if self.num_envs < len(self.tasks):
            yield (
                f"num_envs: {self.num_envs} environment(s) for {len(self.tasks)} tasks, each of "
                f"which needs one; set it to a multiple of {len(self.tasks)}"
            )
        rows = (self.learning.horizon + 1) * self.num_envs
        if self.replay.capacity < rows:
            yield (
                f"replay.capacity: {self.replay.capacity} rows cannot hold a sequence of each "
                f"environment (num_envs: {self.num_envs}); set it to at least {rows}"
            )
        for name, heads in (
            ("planner", self.planner.value_heads),
            ("imagination", self.imagination.value_heads),
        ):
            if (heads or 0) > self.value.heads:
                yield (
                    f"{name}.value_heads: {heads}, and value.heads is {self.value.heads}; choose "
                    "at most so many, or null for all"
                )
        proposes = self.collection.acting == "planner" and self.planner.policy_plans
        if self.optimistic_loss is not None and not proposes:
            yield (
                "optimistic_loss: its policy makes proposals for the planner in training alone; "
                "set collection.acting to planner and raise planner.policy_plans, or drop this"
            )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        preset, size = data.get("preset", "awr"), data.get("size", "1M")
        if not isinstance(preset, str) or not isinstance(size, str):
            return data  # It is refused later.
        if preset in SIZES:
            raise ValueError(f"preset: {preset} is a size: write size: {preset}")
        if preset not in PRESETS or size not in SIZES:
            return data
        # Parameters of the preset's loss are none of another's.
        agent = {
            key: value
            for key, value in PRESETS[preset].items()
            if key != "policy_loss" or key not in data
        }
        return merged(merged(SIZES[size], agent), data)
