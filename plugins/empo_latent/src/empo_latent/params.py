"""The parameters of algorithm ``latent``, in groups of what belongs together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from empo_core import Config
from empo_core.config import PolicyLossRef, merged
from empo_latent.presets import PRESETS, Preset
from empo_latent.tasks import Task

Heads = Literal["mean", "min", "max"]
"""How estimates of several heads become one."""
Actor = Literal["planner", "policy"]
"""Who acts: the planner, or the policy alone."""


class CollectionParams(Config):
    """How experience is gathered; a step is one decision, whatever the action repeat."""

    envs: int = Field(1, ge=1, description="Environments that act at once, shared by the tasks.")
    threads: int = Field(
        1, ge=1, description="Threads that step them; helps where a step leaves Python's lock."
    )
    seed_steps: int | None = Field(
        None,
        ge=1,
        description="Steps with random actions before learning; null: five episodes of every "
        "task, at least 1000.",
    )
    seed_updates: int | None = Field(
        None, ge=0, description="Updates made at once after them; null: one per step of them."
    )
    capacity: int = Field(
        1_000_000, ge=1, description="Steps that are remembered; the oldest are forgotten first."
    )
    acting: Actor = Field(
        "planner", description="Who acts in training: the planner, or the policy alone."
    )


class EncoderParams(Config):
    """From observations to latents."""

    layers: int = Field(2, ge=1, description="Layers, the one to the latent included.")
    width: int = Field(256, ge=1, description="Units of each hidden layer.")
    channels: int = Field(32, ge=1, description="Filters of each convolution, for pictures.")
    shift: int = Field(
        3, ge=0, description="Pixels by which pictures are shifted at random in training."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of the first layer left out.")
    target: Literal["online", "average"] = Field(
        "online",
        description="What encodes the states that dynamics should predict: the encoder itself, "
        "or a running average of it.",
    )
    target_rate: float = Field(0.05, gt=0, le=1, description="How fast that average follows.")
    consistency_coef: float = Field(
        0.0, ge=0, description="Factor of a loss that draws encodings towards predictions."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> EncoderParams:
        if self.target == "online" and self.target_rate != 0.05:
            raise ValueError("target_rate belongs to target 'average': set that, or drop it")
        return self


class LatentSpaceParams(Config):
    """What latents are, and how they move on."""

    size: int = Field(512, ge=2, description="Numbers of a latent.")
    group: int = Field(8, ge=2, description="Numbers that share a softmax; divides the size.")
    width: int = Field(512, ge=1, description="Units of each hidden layer of all heads.")
    heads: int = Field(1, ge=1, description="Dynamics models.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of the first layer left out.")
    layer_norm: bool = Field(True, description="Normalise what SimNorm gets.")
    consistency_coef: float = Field(20.0, gt=0, description="Factor of the prediction loss.")
    task_size: int = Field(96, ge=1, description="Numbers that stand for a task, of several.")

    @model_validator(mode="after")
    def _groups_fit(self) -> LatentSpaceParams:
        if self.size % self.group:
            raise ValueError(
                f"latents of {self.size} numbers cannot be divided into groups of {self.group}: "
                "choose a size that is a multiple of the group"
            )
        return self


class BinsParams(Config):
    """How rewards and values are written as distributions over bins of symlog space."""

    number: int = Field(101, ge=2, description="Bins.")
    low: float = Field(-10.0, description="Least symlog.")
    high: float = Field(10.0, description="Greatest symlog.")

    @model_validator(mode="after")
    def _ascends(self) -> BinsParams:
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, and {self.low:g} is not")
        return self


class RewardParams(Config):
    """What steps pay, and whether they end the episode."""

    heads: int = Field(1, ge=1, description="Reward models.")
    width_divisor: int = Field(1, ge=1, description="By how much they are narrower than others.")
    coef: float = Field(0.1, gt=0, description="Factor of the reward loss.")
    episodic: bool = Field(
        False, description="Whether episodes may terminate, which a head of its own then learns."
    )
    termination_coef: float = Field(1.0, gt=0, description="Factor of the termination loss.")
    predict_from: Literal["rollout", "encoding"] = Field(
        "rollout", description="Whether they read predicted latents, or encodings."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> RewardParams:
        if not self.episodic and self.termination_coef != 1.0:
            raise ValueError("termination_coef belongs to episodic: set that to true, or drop it")
        return self


class ValueParams(Config):
    """What states, or actions in them, are worth."""

    critic: Literal["v", "q"] = Field(
        "v",
        description="'v' values states and learns from imagined steps; 'q' values actions and "
        "learns from those that were taken.",
    )
    heads: int = Field(5, ge=1, description="Value models.")
    width_divisor: int = Field(1, ge=1, description="By how much they are narrower than others.")
    dropout: float = Field(0.01, ge=0, lt=1, description="Share of the first layer left out.")
    target_rate: float = Field(0.01, gt=0, le=1, description="How fast target networks follow.")
    coef: float = Field(0.1, gt=0, description="Factor of the value loss.")
    bootstrap: Literal["local", "mean", "min", "pair"] = Field(
        "local",
        description="Which heads a head learns from: itself, the mean or least of all, or the "
        "least of two drawn at random.",
    )
    dynamics: Heads = Field(
        "mean", description="How targets of several dynamics and reward heads become one."
    )
    average: Literal["target", "cross_entropy"] = Field(
        "target",
        description="What is averaged over candidates: targets, which learns their mean, or "
        "losses, which learns the mean of symlogs.",
    )
    weighting: Literal["even", "policy"] = Field(
        "even",
        description="Whether all candidates count alike in targets, or as the policy loss weighs "
        "them.",
    )
    gradient: Literal["rollout", "encoder", "none"] = Field(
        "rollout",
        description="What learns from values besides the value heads: dynamics and encoder "
        "(predictions at rolled-out latents), the encoder (at encodings), or nothing.",
    )


class AuxiliaryParams(Config):
    """Values under further discounts, which only shape the latents."""

    discounts: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        default_factory=list, max_length=6, description="The discounts; empty: no such values."
    )
    networks: Literal["separate", "joint"] = Field(
        "separate", description="A network for each, or one with an output for each."
    )
    width_factor: int = Field(1, ge=1, description="How many times wider a joint network is.")
    coef: float = Field(0.01, gt=0, description="Factor of their loss.")
    dynamics: Literal["mean", "min"] = Field(
        "mean", description="How targets of several dynamics and reward heads become one."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> AuxiliaryParams:
        # Not those that were given at all: a run's own config gives every default.
        given = [
            name
            for name, field in type(self).model_fields.items()
            if name != "discounts" and getattr(self, name) != field.default
        ]
        if not self.discounts and given:
            raise ValueError(
                f"{', '.join(sorted(given))}: there are no auxiliary values without discounts; "
                "name some, e.g. [0.9, 0.95], or drop this"
            )
        if self.networks == "separate" and self.width_factor != 1:
            raise ValueError("width_factor belongs to networks 'joint': set that, or drop it")
        return self


class PolicyParams(Config):
    """The policy network; what it learns from is ``policy_loss``."""

    min_log_std: float = Field(-3.0, description="Least log standard deviation.")
    max_log_std: float = Field(1.0, description="Greatest log standard deviation.")
    bound: Literal["tanh", "clip"] = Field(
        "tanh",
        description="How actions come into [-1, 1]: tanh of normal numbers, or normal numbers "
        "around a tanh, cut off.",
    )
    proposal: Literal["itself", "average"] = Field(
        "itself",
        description="Who proposes candidates: the policy, or a running average of it, which a "
        "trust region needs in order to bind.",
    )
    proposal_rate: float = Field(0.05, gt=0, le=1, description="How fast that average follows.")

    @model_validator(mode="after")
    def _fits(self) -> PolicyParams:
        if self.min_log_std >= self.max_log_std:
            raise ValueError("min_log_std must be less than max_log_std")
        if self.proposal == "itself" and self.proposal_rate != 0.05:
            raise ValueError("proposal_rate belongs to proposal 'average': set that, or drop it")
        return self


class ImaginationParams(Config):
    """Steps that are imagined, to learn values and the policy from."""

    candidates: int | None = Field(
        None, ge=1, description="Actions tried at each state; null: as many as the loss likes."
    )
    start: Literal["encoding", "rollout"] = Field(
        "encoding", description="Whether to start at encodings, or at predicted latents."
    )
    critic: Literal["usual", "target", "online"] = Field(
        "usual",
        description="Which value networks judge actions for the policy loss; 'usual': the target "
        "networks judge candidates, the online ones give gradients.",
    )


class LearningParams(Config):
    """What one update is about."""

    batch_size: int = Field(256, ge=1, description="Slices of experience.")
    horizon: int = Field(3, ge=1, description="Steps of a slice, and of a plan.")
    rho: float = Field(
        0.5, gt=0, le=1, description="Weight of each step relative to the one before."
    )
    normalise_rho: bool = Field(
        False, description="Divide by the sum of these weights instead of the number of steps."
    )
    updates_per_step: float = Field(
        1.0, gt=0, description="Updates per step of the environments (update-to-data ratio)."
    )
    value_every: int = Field(1, ge=1, description="Updates per update of the values.")
    policy_every: int = Field(1, ge=1, description="Updates per update of the policy.")
    discount: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Discount per step; null: 1 - 5 / episode length, from 0.95 to 0.995.",
    )


class OptimiserParams(Config):
    """What moves the weights (Adam)."""

    lr: float = Field(3e-4, gt=0, description="Learning rate.")
    encoder_lr_scale: float = Field(0.3, gt=0, description="Its factor for the encoder.")
    policy_lr_scale: float = Field(1.0, gt=0, description="Its factor for the policies.")
    policy_eps: float = Field(1e-5, gt=0, description="Adam's epsilon for the policies.")
    weight_decay: float = Field(0.0, ge=0, description="Decay of the weights (AdamW).")
    max_grad_norm: float = Field(
        20.0, gt=0, description="Longer gradients are cut to this; models and each policy apart."
    )


class PlannerParams(Config):
    """Model predictive path integral control, with proposals of the policy."""

    iterations: int | None = Field(
        None, ge=1, description="Rounds; null: 6, and 8 from 20 numbers per action on."
    )
    samples: int = Field(512, ge=2, description="Plans that are tried each round.")
    elites: int = Field(64, ge=1, description="How many of the best form the next round.")
    policy_plans: int = Field(24, ge=0, description="How many of the samples the policy proposes.")
    policy_noise: float = Field(0.0, ge=0, description="Noise on its proposals, in training.")
    min_std: float = Field(0.05, ge=0, description="Least standard deviation.")
    max_std: float = Field(2.0, gt=0, description="Greatest, and that of the first round.")
    temperature: float = Field(0.5, gt=0, description="How sharply better elites are preferred.")
    exploration: float = Field(
        1.0, ge=0, description="Factor of the noise on the chosen action, in training."
    )
    horizon: int | None = Field(None, ge=1, description="Steps of a plan; null: learning.horizon.")
    critic: Literal["online", "target"] = Field(
        "online", description="Which value networks judge where a plan ends."
    )
    heads: Heads = Field("mean", description="How estimates of several heads become one.")
    value_heads: int | None = Field(
        None,
        ge=1,
        description="How many of the value heads judge plans, drawn anew for each; null: all.",
    )
    depths: Literal["last", "all"] = Field(
        "last", description="Judge plans by their whole length, or by the mean over all lengths."
    )
    disagreement: float = Field(
        0.0, description="Factor of the heads' disagreement on the value, in training."
    )

    @model_validator(mode="after")
    def _fit_together(self) -> PlannerParams:
        if self.elites > self.samples:
            raise ValueError(f"elites ({self.elites}) must not exceed samples ({self.samples})")
        if self.policy_plans > self.samples:
            raise ValueError(
                f"policy_plans ({self.policy_plans}) must not exceed samples ({self.samples})"
            )
        if self.min_std > self.max_std:
            raise ValueError("min_std must not exceed max_std")
        return self


class ComputeParams(Config):
    """What computes, and how."""

    device: str = Field("cpu", description="Where networks live, e.g. cpu or cuda:0.")
    threads: int | None = Field(None, ge=1, description="Threads of torch; null: as torch likes.")
    compile: bool = Field(False, description="Compile updates and plans; needs a C++ compiler.")
    check_gradients: bool = Field(
        False, description="After every backward pass, check which networks got gradients."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of matrix products in planning; learning is in float32."
    )


class ReportingParams(Config):
    """What a run tells, and what it keeps; intervals are in steps, 0: never."""

    log_interval: int = Field(200, ge=1, description="Steps between two lines of metrics.")
    checkpoint_interval: int = Field(10_000, ge=0, description="Steps between checkpoints.")
    keep_checkpoints: int = Field(2, ge=1, description="How many of the newest stay.")
    keep_replay: bool = Field(
        True, description="Put what is remembered into checkpoints, to go on exactly so."
    )
    evaluation_interval: int = Field(10_000, ge=0, description="Steps between evaluations.")
    evaluation_episodes: int = Field(10, ge=0, description="Episodes of each; 0: no evaluation.")
    evaluate: list[Actor] = Field(
        default_factory=lambda: list[Actor](("planner", "policy")),
        min_length=1,
        description="Who plays in evaluations.",
    )
    validate_losses: bool = Field(
        False, description="Report losses on the episodes of evaluations, which nobody learns from."
    )
    videos: int = Field(1, ge=0, description="Episodes of the last evaluation that are filmed.")
    solved_at: float | None = Field(
        None, description="Stop when an evaluation's mean return reaches this; null: never."
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> ReportingParams:
        if not self.evaluation_episodes and (self.solved_at is not None or self.validate_losses):
            raise ValueError(
                "solved_at and validate_losses are about evaluations, and there are none: set "
                "evaluation_episodes to at least 1, or drop them"
            )
        if len(set(self.evaluate)) < len(self.evaluate):
            raise ValueError("evaluate: name each actor once")
        return self


class LatentParams(Config):
    """A latent world model, learned from experience, and policies learned in it."""

    preset: Preset = Field(
        "1M", description="Sizes where none are given; the defaults that are listed are of 5M."
    )
    total_steps: int = Field(ge=1, description="Steps of all environments together.")
    tasks: list[Task] = Field(
        min_length=1, description="What to learn; several share all networks."
    )
    policy_loss: PolicyLossRef = Field(description="What the policy learns from, e.g. awr or svg.")
    optimistic_loss: PolicyLossRef | None = Field(
        None,
        description="What a second policy learns from, whose proposals the planner takes in "
        "training; null: there is none.",
    )
    collection: CollectionParams = CollectionParams()
    encoder: EncoderParams = EncoderParams()
    latents: LatentSpaceParams = LatentSpaceParams()
    bins: BinsParams = BinsParams()
    reward: RewardParams = RewardParams()
    value: ValueParams = ValueParams()
    auxiliary: AuxiliaryParams = AuxiliaryParams()
    policy: PolicyParams = PolicyParams()
    imagination: ImaginationParams = ImaginationParams()
    learning: LearningParams = LearningParams()
    optimiser: OptimiserParams = OptimiserParams()
    planner: PlannerParams = PlannerParams()
    compute: ComputeParams = ComputeParams()
    reporting: ReportingParams = ReportingParams()

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any, info: ValidationInfo) -> Any:
        preset = data.get("preset", "1M") if isinstance(data, dict) else None
        if isinstance(preset, str) and preset in PRESETS:  # Else it is refused later.
            return merged(PRESETS[preset], data)
        return data
