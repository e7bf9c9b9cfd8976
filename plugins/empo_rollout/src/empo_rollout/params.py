"""The parameters of algorithm ``rollout``, in groups of what belongs together."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from empo_core import Config
from empo_core.config import EnvironmentRef, ExecutorRef, PolicyLossRef, PolicyNetworkRef, merged
from empo_environments.params import NormaliseParams
from empo_learning.extension import InitialModel
from empo_learning.params import MOST_LR, Compute, Optimiser, ScoredReporting
from empo_rollout.presets import ENVS_OF_SHORT_RUNS, FEW, PRESETS, SHORT, Preset

MOST_STEPS, MOST_ENVS = 10**12, 10**7
"""Steps of a rollout, and environments; RAM refuses most of it, with its bytes.
"""


class Vectorisation(Config):
    """Number of environments, and the processes they run in."""

    backend: Literal["auto", "serial", "process"] = Field(
        "auto",
        description="Processes in which Python environments step: this one or workers; 'auto' "
        "takes workers where there is a processor for them and no vector class steps all copies "
        "faster. Worlds and environments not in Python step in this process anyway.",
    )
    forward_pass_minibatch_target_size: int = Field(
        4096,
        ge=1,
        le=MOST_ENVS,
        description="Agents that one forward pass of the policy should be about.",
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Worker processes, if any; null: one per processor, as far as they divide.",
    )
    async_factor: int | None = Field(
        None,
        ge=1,
        description="Blocks: while the policy thinks about one, the others step; null: 2 where "
        "workers can be halved, else 1.",
    )
    order: Literal["rotation", "arrival"] = Field(
        "rotation",
        description="Blocks in strict turns, which can be repeated exactly, or as they get ready.",
    )
    on_crash: Literal["stop", "restart"] = Field(
        "stop",
        description="Reaction to the death of a worker: end the run, or start the worker anew.",
    )
    answer_limit_s: float | None = Field(
        600.0,
        gt=0,
        description="A worker whose environments take longer for a step, a reset or their making "
        "counts as dead; null waits for ever. Environments in this process have no limit.",
    )
    desync: bool = Field(
        False,
        description="Truncate the first episode of each environment at a random length, so that "
        "they do not all end together.",
    )


class ExperienceParams(Config):
    """Size and contents of a rollout."""

    bptt_horizon: int | None = Field(
        64,
        ge=1,
        le=MOST_STEPS,
        description="Steps of a segment; null: so many that one segment of every agent makes a "
        "rollout of 1024 steps, but at least 16, and 64 where the policy has a memory.",
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="Steps of a rollout; null: one segment of every agent, and where bptt_horizon "
        "is null as well, at least 1024.",
    )
    tail: Literal["bootstrap", "drop"] = Field(
        "bootstrap",
        description="Wait for the outcome of each segment's last step, or learn nothing from it.",
    )
    carry_memory: bool = Field(
        True, description="Whether recurrent policies remember across rollouts."
    )
    reward_clip: float | None = Field(
        None, gt=0, description="Cut rewards to plus or minus this; null cuts none."
    )


class AdvantageParams(Config):
    """Advantage estimates: GAE and V-trace.

    Other than in Espeholt et al. (2018), policies learn from the estimate that corrects values
    there, ``v_t - V_t``, and not from ``rho_t (r_t + gamma v_{t+1} - V_t)``, and targets of values
    are not corrected. ``ppo`` multiplies by its own ratio as well: one below 1 counts twice.
    """

    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="Decay of credit over steps (lambda of GAE)."
    )
    vtrace: Literal["never", "epoch", "minibatch"] = Field(
        "never",
        description="Interval at which advantages are corrected for how the policy has changed "
        "since it acted (V-trace).",
    )
    rho_clip: float = Field(1.0, gt=0, description="Greatest weight of a surprise (V-trace).")
    c_clip: float = Field(1.0, gt=0, description="Greatest weight of a trace (V-trace).")
    truncation: Literal["last", "self", "zero"] = Field(
        "last",
        description="Value with which a cut-off episode is continued: the value of its last "
        "observation, of the one before, or nothing.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> AdvantageParams:
        if self.vtrace == "never" and (self.rho_clip, self.c_clip) != (1.0, 1.0):
            raise ValueError(
                "rho_clip and c_clip belong to V-trace: set vtrace to 'epoch' or 'minibatch', or "
                "drop them"
            )
        return self


class PolicyParams(Config):
    """The networks that act and judge."""

    network: PolicyNetworkRef = Field(
        default_factory=lambda: PolicyNetworkRef.model_validate("mlp"),
        description="From observations to features, e.g. mlp, conv for pictures, or lstm, which "
        "remembers.",
    )
    critic: Literal["own", "shared"] = Field(
        "own",
        description="Whether the critic has a network of its own, or reads the policy's features.",
    )
    agents: Literal["shared", "separate"] = Field(
        "shared", description="One policy for all agents of an environment, or one for each."
    )
    log_std: float = Field(
        0.0,
        description="Initial logarithm of the standard deviation, where actions are numbers; in "
        "halves of their range, where it is finite.",
    )

    @property
    def has_memory(self) -> bool:
        """True if agents remember from step to step."""
        return bool(getattr(self.network.params, "has_memory", False))

    @model_validator(mode="after")
    def _remembers_together(self) -> PolicyParams:
        if self.has_memory and self.critic == "own":
            raise ValueError("policy and critic have one memory: set critic to 'shared'")
        return self


class WeightedLoss(Config):
    """A policy loss and how much it counts."""

    loss: PolicyLossRef = Field(description="The loss.")
    weight: float = Field(1.0, gt=0, description="Its factor in the sum.")


class UpdateParams(Config):
    """Updates of the policy from a rollout."""

    update_epochs: int = Field(
        1, ge=1, description="How many times (epochs) a rollout is gone through."
    )
    minibatch_size: int | None = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="Steps per step of the optimiser; null: a 16th of the rollout, at least 64, "
        "or a 4th where minibatches consist of segments, and about 16384 at most.",
    )
    max_minibatch_size: int | None = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="Most steps per backward pass; gradients of several are added up.",
    )
    sampling: Literal["auto", "shuffled", "sequential", "prioritized", "steps"] = Field(
        "shuffled",
        description="Sampling of segments into minibatches; 'steps' shuffles single steps, for "
        "policies without memory. 'auto': 'steps', and 'shuffled' where the policy has a memory or "
        "advantages are corrected for each minibatch.",
    )
    prio_alpha: float = Field(
        0.0, ge=0, le=1, description="Exponent of the advantages, for 'prioritized'."
    )
    prio_beta0: float = Field(
        0.6,
        ge=0,
        le=1,
        description="Initial exponent of the sampling weights, which correct for how often a "
        "segment is drawn; rises to 1.",
    )
    normalise_advantages: bool = Field(
        True, description="Shift and scale advantages within each minibatch."
    )
    value_coef: float = Field(0.5, ge=0, description="Factor of the value loss.")
    value_clip: float | None = Field(
        None, gt=0, description="Clip of value changes within one update; null: none."
    )
    gradient: Literal["autograd", "closed-form"] = Field(
        "autograd",
        description="'closed-form': written out for loss 'ppo' and dense networks with tanh that "
        "choose one option, on the CPU, which then act so as well; about half the time where "
        "networks are small.",
    )
    target_kl: float | None = Field(
        None,
        gt=0,
        description="End an update before a step on a minibatch for which policy/approx_kl, how "
        "far the policy has moved, is greater than this; null: never.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> UpdateParams:
        default = UpdateParams.model_construct()
        is_set = (self.prio_alpha, self.prio_beta0) != (default.prio_alpha, default.prio_beta0)
        if is_set and self.sampling != "prioritized":
            raise ValueError(
                "prio_alpha and prio_beta0 belong to sampling 'prioritized': set that, or drop them"
            )
        return self


Decay = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a moving average at each step."""


class OptimiserParams(Optimiser):
    """The optimiser and its learning rate."""

    name: Literal["adam", "adamw", "sgd"] = Field("adam", description="The optimiser.")
    lr: float = Field(3e-4, gt=0, le=MOST_LR, description="Learning rate.")
    lr_warm_up: int = Field(0, ge=0, description="Optimiser steps in which it rises to that.")
    betas: tuple[Decay, Decay] = Field(
        (0.9, 0.999), description="Decay of averages of gradients, and (Adam) of their squares."
    )
    eps: float = Field(1e-8, gt=0, description="Keeps steps finite without gradients (not sgd).")
    max_grad_norm: float | None = Field(
        0.5, gt=0, description="Longer gradients are cut to this; null cuts none."
    )

    @field_validator("betas", mode="before")
    @classmethod
    def _two_numbers(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


class ComputeParams(Compute):
    """Device, threads and precision of the networks."""

    threads: int | None = Field(
        None, ge=1, description="Threads of torch; null: what the workers leave, at least 1."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of the networks' arithmetic; weights are kept in float32."
    )
    compile: bool = Field(False, description="Compile the networks; needs a C++ compiler.")
    rank_timeout_s: float = Field(
        600.0, ge=1,
        description="A process of torchrun that is silent for so long is lost; longer than an "
        "evaluation or a compilation, which the others wait for.",
    )  # fmt: skip


class ReportingParams(ScoredReporting):
    """Logs, checkpoints and evaluations; intervals are in iterations, 0: never."""

    log_interval: int = Field(1, ge=1, description="Iterations between two lines of metrics.")
    checkpoint_interval: int = Field(50, ge=0, description="Iterations between checkpoints.")
    evaluation_interval: int = Field(0, ge=0, description="Iterations between evaluations.")
    evaluation_episodes: int = Field(
        100, ge=0, description="Episodes of an evaluation, the one at the end included; 0: none."
    )
    evaluation_steps: int = Field(
        10_000,
        ge=1,
        description="Most steps of an episode in an evaluation; what goes on counts as it stands.",
    )
    deterministic: bool = Field(
        True, description="Evaluate with the likeliest actions instead of drawn ones."
    )


class CollectionParams(Config):
    """Actors that each have a part of the environments and a copy of the policy."""

    actors: int = Field(ge=1, description="Number of actors; they divide the environments.")
    executor: ExecutorRef = Field(
        default_factory=lambda: ExecutorRef.model_validate("local"),
        description="Executor of the actors: processes here, or on a cluster.",
    )
    max_restarts: int = Field(
        5, ge=0, description="Replacements of one actor within a minute, or in a row without any "
        "segment; after that the run ends.",
    )  # fmt: skip
    late_s: float | None = Field(
        None, gt=0,
        description="An actor that has not answered so long after all others is left out of the "
        "iteration; null waits for it, so that the run can be repeated exactly.",
    )  # fmt: skip


class RolloutParams(Config):
    """Rollouts of many environments, and a policy learned from them."""

    synonyms: ClassVar = {
        "batch_size": "update.minibatch_size",
        "clip_range": "losses.0.loss.params.clip",
        "ent_coef": "losses.0.loss.params.entropy.coef",
        "env": "environment",
        "learning_rate": "optimiser.lr",
        "n_envs": "num_envs",
        "n_epochs": "update.update_epochs",
        "n_steps": "experience.bptt_horizon",
        "total_timesteps": "total_steps",
        "vf_coef": "update.value_coef",
    }
    """Names that other libraries have for keys, for errors."""
    preset: Preset = Field(
        "default",
        description="Source of the defaults of all keys that are not given. 'default': 'few' where "
        "num_envs is at most 64, else 'large', whose defaults the tables show.",
    )
    total_steps: int = Field(ge=1, description="Steps of all agents together.")
    num_envs: int | None = Field(
        None,
        ge=1,
        le=MOST_ENVS,
        description="Environments; null: as many as a forward pass should be about, see "
        "vectorisation.forward_pass_minibatch_target_size. Where neither this nor another size nor "
        "a preset is given, 8 if total_steps is below 5 million.",
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount per step.")
    environment: EnvironmentRef | None = Field(
        None,
        description="The environment, e.g. gymnasium/CartPole-v1; null where a function of the "
        "Python API makes it.",
    )
    initial: InitialModel | None = Field(
        None,
        description="A run directory, or its results/model.safetensors, whose weights (and "
        "statistics of observations) are the first ones; null: random weights.",
    )
    normalise: NormaliseParams | None = Field(
        None, description="Running normalisation of observations and rewards; null: none."
    )
    vectorisation: Vectorisation = Vectorisation()
    collection: CollectionParams | None = Field(
        None, description="Actors that collect; null: this process does."
    )
    experience: ExperienceParams = ExperienceParams()
    advantages: AdvantageParams = AdvantageParams()
    policy: PolicyParams = Field(
        default_factory=PolicyParams, description="The networks that act and judge."
    )
    losses: list[WeightedLoss] = Field(
        default_factory=lambda: [WeightedLoss.model_validate({"loss": "ppo"})],
        min_length=1,
        description="Policy losses, which are added up.",
    )
    update: UpdateParams = UpdateParams()
    optimiser: OptimiserParams = Field(
        default_factory=OptimiserParams, description="The optimiser and its learning rate."
    )
    compute: ComputeParams = ComputeParams()
    reporting: ReportingParams = ReportingParams()

    @property
    def task_label(self) -> str | None:
        """The environment's id, for the name of the run; a world model has a name already."""
        label: str | None = getattr(
            getattr(self.environment, "params", self.environment), "id", None
        )
        return label

    @property
    def scheduled(self) -> list[str]:
        """Keys of what follows the share of ``total_steps`` that is done."""
        keys = {"optimiser.lr_schedule": self.optimiser.lr_schedule.name != "constant"}
        keys |= {"update.prio_beta0": self.update.sampling == "prioritized"}
        for place, entry in enumerate(self.losses):
            shape = getattr(getattr(entry.loss.params, "entropy", None), "schedule", "constant")
            keys[f"losses.{place}.loss.params.entropy.schedule"] = shape != "constant"
        return [key for key, is_scheduled in keys.items() if is_scheduled]

    @model_validator(mode="after")
    def _has_an_effect(self) -> RolloutParams:
        if not (self.policy.has_memory or self.experience.carry_memory):
            raise ValueError(
                "experience.carry_memory belongs to networks that remember: set policy.network to "
                "one, e.g. lstm, or drop it"
            )
        return self

    @model_validator(mode="after")
    def _can_be_divided(self) -> RolloutParams:
        if self.collection is not None and self.vectorisation.backend == "process":
            raise ValueError(
                "actors step their environments themselves: drop vectorisation.backend, or "
                "collection"
            )
        return self

    @model_validator(mode="after")
    def _with_sampling(self) -> RolloutParams:
        if self.update.sampling == "auto":
            segments = self.policy.has_memory or self.advantages.vtrace == "minibatch"
            sampling = "shuffled" if segments else "steps"
            update = self.update.model_copy(update={"sampling": sampling})
            object.__setattr__(self, "update", update)  # The params are frozen.
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        preset, envs = data.get("preset", "default"), data.get("num_envs")
        if preset == "default":
            if "num_envs" not in data and _is_short_without_sizes(data):
                envs = ENVS_OF_SHORT_RUNS
                data = data | {"num_envs": envs}
            preset = "few" if isinstance(envs, int) and envs <= FEW else "large"
        if isinstance(preset, str) and preset in PRESETS:  # Else it is refused later.
            return merged(PRESETS[preset], data)
        return data


def _is_short_without_sizes(data: dict[str, Any]) -> bool:
    """Whether params ask for few steps, and for no sizes that say how many environments act."""
    total = data.get("total_steps")
    sizes = {
        "vectorisation": {"forward_pass_minibatch_target_size", "workers", "async_factor"},
        "experience": {"batch_size"},
    }
    has_sizes = any(keys & _given(data.get(name)) for name, keys in sizes.items())
    is_short = isinstance(total, int | float) and total < SHORT
    return is_short and not has_sizes and data.get("collection") is None


def _given(group: object) -> set[str]:
    """Keys of a group that are given; none where it is no group, which is refused later."""
    if isinstance(group, Config):
        return set(group.model_fields_set)
    return set(group) if isinstance(group, dict) else set()
