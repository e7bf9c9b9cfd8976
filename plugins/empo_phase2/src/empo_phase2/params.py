"""The parameters of algorithm ``phase2``, in groups of what belongs together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from empo_core import Config
from empo_core.config import (
    AggregatorRef,
    CollectorRef,
    ExplorerRef,
    HumanPriorRef,
    ScheduleRef,
    ValueNetworkRef,
    WorldModelRef,
)
from empo_learning.extension import InitialModel
from empo_learning.params import LINEAR, MOST_LR, Compute, Optimiser, Replay, Reporting
from empo_theory.parameters import TheoryParams

if TYPE_CHECKING:
    from empo_core.types import Quantity, WorldSpec

QUANTITIES: tuple[Quantity, ...] = ("v_h_e", "x_h", "u_r", "q_r", "v_r")
"""In the order in which warm-up starts to train them."""


class Phase2Theory(TheoryParams):
    """Equations (4)-(9), and what keeps their estimates finite."""

    x_h_floor: float = Field(
        1e-4, gt=0, description="Estimates of X_h are raised to this, so that U_r stays finite."
    )

    @model_validator(mode="after")
    def _can_be_learned(self) -> Phase2Theory:
        for key, value, only in (("counting", self.counting, "arrival"), ("rho", self.rho, 1)):
            if value != only:
                raise ValueError(
                    f"{key}: {value} cannot be learned: phase2 takes {key}: {only} only; leave "
                    f"{key} out, or solve the world with algorithm exact, which has it"
                )
        return self


class Values(Config):
    """Representation of each quantity; null computes it from the others in closed form."""

    q_r: ValueNetworkRef | None = Field(
        description="Q_r; null looks one step ahead with V_r, which must then be learned."
    )
    v_h_e: ValueNetworkRef = Field(description="V_h^e; has no closed form.")
    x_h: ValueNetworkRef | None = Field(None, description="X_h; null sums V_h^e over goals.")
    u_r: ValueNetworkRef | None = Field(None, description="U_r; null combines X_h of all humans.")
    v_r: ValueNetworkRef | None = Field(None, description="V_r; null is U_r plus the mean Q_r.")

    @model_validator(mode="after")
    def _can_value_actions(self) -> Values:
        if self.q_r is None and self.v_r is None:
            raise ValueError("q_r and v_r cannot both be null: choose a value network for one")
        return self


class WarmUp(Config):
    """Stages of training, in training steps; quantities in closed form have none."""

    v_h_e: int = Field(200, ge=0, description="Train V_h^e alone, the robot acting evenly.")
    x_h: int = Field(200, ge=0, description="Then X_h too.")
    u_r: int = Field(100, ge=0, description="Then U_r too.")
    q_r: int = Field(200, ge=0, description="Then Q_r too.")
    v_r: int = Field(100, ge=0, description="Then V_r too.")
    ramp: int = Field(400, ge=0, description="Then beta_r rises from 0 along a sigmoid.")
    gamma_h_start: float | None = Field(
        None, ge=0, le=1, description="Start gamma_h here; null starts at its full value."
    )
    gamma_h_steps: int = Field(200, ge=0, description="Steps in which gamma_h rises.")
    gamma_r_start: float | None = Field(
        None, gt=0, le=1, description="Start gamma_r here; null starts at its full value."
    )
    gamma_r_steps: int = Field(
        200, ge=0, description="Steps in which gamma_r rises, from the start of the stage of Q_r."
    )

    @model_validator(mode="after")
    def _rises_in_its_stage(self) -> WarmUp:
        if self.gamma_h_start is not None and self.gamma_h_steps > self.v_h_e:
            raise ValueError(
                f"gamma_h_steps ({self.gamma_h_steps}) must not be more than v_h_e ({self.v_h_e}): "
                "gamma_h rises while V_h^e is trained alone"
            )
        return self


Rate = Annotated[float, Field(gt=0, le=MOST_LR)]


class OptimiserParams(Optimiser):
    """Parameters of the steps towards targets."""

    lr: dict[Literal["q_r", "v_h_e", "x_h", "u_r", "v_r"], Rate] | Rate | None = Field(
        None,
        description="Learning rate, for all quantities or for each; null takes that which suits "
        "each value network: for `lookup` 1, or 0.3 where targets are samples, for networks 0.003.",
    )
    lr_schedule: ScheduleRef = Field(
        default_factory=LINEAR,
        description="Schedule of the learning rate once the constant part is over, e.g. linear, "
        "straight to 0 at the end.",
    )
    lr_constant_fraction: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the training steps before it starts to fall, and before which what "
        "was collected in warm-up is phased out (replay.phase_out_warm_up).",
    )
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Longer gradients are cut to this; null cuts none."
    )
    publish_interval: int = Field(
        100, ge=1, description="Steps after which actors get the newest values."
    )
    target_interval: int = Field(
        25, ge=1, description="Steps after which targets are computed with newer values."
    )
    target_rate: float = Field(
        0.5, gt=0, le=1,
        description="Share of the way that target networks then go to the newest weights; tables "
        "go all of it.",
    )  # fmt: skip
    on_nan: Literal["stop", "skip"] = Field(
        "stop", description="Reaction to a value, target, loss or gradient that is not finite."
    )


class Targets(Config):
    """Parameters of targets."""

    model_based: bool = Field(
        True, description="Average over all successors of all robot actions; else sample them."
    )
    max_pairs: int = Field(
        1024, ge=1,
        description="Average over the humans' joint actions where there are at most this many "
        "joint actions of all agents; else sample the humans'.",
    )  # fmt: skip
    q_r_advantage_floor: float | None = Field(
        0.1, ge=0, le=1,
        description="Weigh errors of Q_r by pi (1 - pi) plus this; null weighs all alike.",
    )  # fmt: skip

    def are_exact(self, spec: WorldSpec) -> bool:
        """Whether targets one step ahead are expectations over all that can happen."""
        return self.model_based and spec.num_joint_actions <= self.max_pairs


class ReplayParams(Replay):
    """Parameters of the replay."""

    batch_size: int = Field(256, ge=1, description="Transitions per training step.")
    capacity: int = Field(100_000, ge=1, description="Transitions; the oldest give way.")
    store: Literal["rows", "compact"] = Field(
        "rows", description="Keep state rows, or compact rows that need no world to be read."
    )
    storage: Literal["ram", "pinned", "mapped"] = Field(
        "ram", description="Storage; 'mapped' is a file, for more than fits into RAM."
    )
    sampling: Literal["transitions", "states"] | None = Field(
        None,
        description="Draw batches evenly from the transitions, or from the distinct (state, steps "
        "left) where they start, rare numbers of steps more often; null: 'states' where targets "
        "are expectations and some value network is no table.",
    )
    phase_out_warm_up: bool | None = Field(
        None,
        description="After warm-up stop using what was collected in it, oldest first, all of it "
        "by optimiser.lr_constant_fraction; null: only without targets.model_based, which makes "
        "old experience as good as new.",
    )
    max_age: int | None = Field(
        None, ge=1, description="Use no transition older than this many training steps."
    )


Start = Literal["start", "v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp", "full"]


class EpsilonGreedyParams(Config):
    """Probability of acting at random."""

    start: float = Field(1.0, ge=0, le=1, description="Chance to act at random at first.")
    end: float = Field(0.01, ge=0, le=1, description="Chance to act at random in the end.")
    decay_fraction: float = Field(
        0.5, ge=0, le=1,
        description="Share of the run's training steps in which it goes from start to end, "
        "linearly.",
    )  # fmt: skip
    decay_from: Start = Field(
        "start",
        description="Since when: the first training step, or that of a warm-up stage. 'q_r' keeps "
        "exploring at full strength until Q_r is trained.",
    )


def _epsilon_greedy() -> list[ExplorerRef]:
    return [ExplorerRef.model_validate("epsilon-greedy")]


class Exploration(Config):
    """Parameters of exploration while experience is collected."""

    robot: list[ExplorerRef] = Field(
        default_factory=_epsilon_greedy,
        description="Applied one after the other to the robots' policy.",
    )
    human: list[ExplorerRef] = Field(
        default_factory=_epsilon_greedy,
        description="Applied one after the other to each human's policy.",
    )
    goal_resample_prob: float = Field(
        0.01, ge=0, le=1, description="Chance per step that a human pursues another goal."
    )
    frontier_prob: float | None = Field(
        None, ge=0, le=1,
        description="Chance that an episode starts in a situation that others could have got "
        "into, first of all one that none ever did, instead of where the world starts; null: 0.5, "
        "or 0 without targets.model_based.",
    )  # fmt: skip
    steps_per_episode: int | None = Field(
        None, ge=1, description="Cut episodes here; null lets them end by themselves."
    )


class Ensemble(Config):
    """Further worlds to learn in, besides the run's own."""

    worlds: list[WorldModelRef] = Field(default_factory=list, description="The further worlds.")
    episodes_per_world: int = Field(
        1, ge=1, description="Episodes that an environment plays before it changes world."
    )


class ReportingParams(Reporting):
    """Parameters of logs, checkpoints and comparisons."""

    compare: str | None = Field(
        None, description="Algorithm whose solution the values are compared with, e.g. exact."
    )
    evaluation_interval: int = Field(1000, ge=0, description="Steps between comparisons; 0: one.")
    profile_batching_interval: int = Field(
        0, ge=0,
        description="Training steps between two logged tables of the time that the five stages of "
        "targets take, which are then also metrics and `result.profile()`; 0 measures nothing.",
    )  # fmt: skip

    @property
    def without_scores(self) -> str | None:
        """The key without which nothing is compared."""
        return "compare (e.g. exact)" if self.compare is None else None


class ComputeParams(Compute):
    """Parameters of the learner's computation; key ``compute``."""

    threads: int | None = Field(
        1, ge=1, description="Threads of the learner; more only pay for large networks."
    )


class Phase2Params(Config):
    """Learn what ``exact`` computes."""

    synonyms: ClassVar = {
        "buffer_size": "replay.capacity",
        "learning_rate": "optimiser.lr",
        "n_envs": "num_envs",
        "total_timesteps": "total_steps",
    }
    """Names that other libraries have for keys, for errors."""
    human_prior: HumanPriorRef = Field(
        default_factory=lambda: HumanPriorRef.model_validate("exact"),
        description="Human prior: how the humans act for each goal.",
    )
    values: Values = Field(description="Representation of each quantity.")
    initial: InitialModel | None = Field(
        None,
        description="A run directory, or its results/model.safetensors, whose networks and tables "
        "are the first ones; null: random weights, and empty tables.",
    )
    theory: Phase2Theory = Field(
        default_factory=Phase2Theory, description="Parameters of the theory."
    )
    total_steps: int = Field(5_000, ge=1, description="Training steps.")
    num_envs: int = Field(64, ge=1, description="Environments that each actor steps at once.")
    warm_up: WarmUp = Field(default_factory=WarmUp, description="Stages of training.")
    optimiser: OptimiserParams = Field(
        default_factory=OptimiserParams, description="Optimisation of values towards their targets."
    )
    targets: Targets = Field(default_factory=Targets, description="Targets of the values.")
    replay: ReplayParams = Field(default_factory=ReplayParams, description="Replay of experience.")
    exploration: Exploration = Field(
        default_factory=Exploration, description="Exploration while experience is collected."
    )
    collector: CollectorRef = Field(
        default_factory=lambda: CollectorRef.model_validate("sync"),
        description="Collector of experience.",
    )
    aggregator: AggregatorRef = Field(
        default_factory=lambda: AggregatorRef.model_validate("scatter-add"),
        description="Aggregator of successors.",
    )
    ensemble: Ensemble = Field(default_factory=Ensemble, description="Further worlds.")
    reporting: ReportingParams = Field(
        default_factory=ReportingParams, description="Logs, comparisons and checkpoints."
    )
    compute: ComputeParams = Field(
        default_factory=ComputeParams, description="Device and threads of the learner."
    )
    inspector: bool = Field(
        False, description="Write inspector.html, a page that shows decisions and why."
    )

    @property
    def scheduled(self) -> list[str]:
        """Keys of what follows the share of ``total_steps`` that is done."""
        keys = ["optimiser.lr_schedule"] if self.optimiser.lr_schedule.name != "constant" else []
        phases_out = self.replay.phase_out_warm_up
        if not self.targets.model_based if phases_out is None else phases_out:
            keys.append("replay.phase_out_warm_up")
        for name in ("robot", "human"):
            for place, explorer in enumerate(getattr(self.exploration, name)):
                if hasattr(explorer.params, "decay_fraction"):
                    keys.append(f"exploration.{name}.{place}.params.decay_fraction")
        return keys

    @model_validator(mode="after")
    def _has_all_rates(self) -> Phase2Params:
        rates = self.optimiser.lr
        if isinstance(rates, dict):
            learned = [q for q in QUANTITIES if getattr(self.values, q) is not None]
            missing = [quantity for quantity in learned if quantity not in rates]
            unused = [quantity for quantity in rates if quantity not in learned]
            if missing or unused:
                raise ValueError(
                    f"optimiser.lr must name what is learned ({', '.join(learned)})"
                    + (f"; it lacks {', '.join(missing)}" if missing else "")
                    + (f"; not learned: {', '.join(unused)}" if unused else "")
                )
        return self

    @model_validator(mode="after")
    def _gamma_r_rises_in_its_stages(self) -> Phase2Params:
        warm_up, values = self.warm_up, self.values
        q_r = 0 if values.q_r is None else warm_up.q_r
        v_r = 0 if values.v_r is None else warm_up.v_r
        if warm_up.gamma_r_start is not None and warm_up.gamma_r_steps > q_r + v_r:
            raise ValueError(
                f"warm_up.gamma_r_steps ({warm_up.gamma_r_steps}) must not be more than the stages "
                f"of what is learned of q_r and v_r ({q_r + v_r}): gamma_r rises before beta_r does"
            )
        return self

    @model_validator(mode="after")
    def _fits_what_is_learned(self) -> Phase2Params:
        targets, batch = self.targets, self.replay.batch_size
        usual = (None, Targets.model_fields["q_r_advantage_floor"].default)
        if self.values.q_r is None and targets.q_r_advantage_floor not in usual:
            raise ValueError("targets.q_r_advantage_floor has no effect while values.q_r is null")
        if self.replay.capacity < max(batch, self.num_envs):
            raise ValueError(
                f"replay.capacity ({self.replay.capacity}) must be at least "
                f"replay.batch_size ({batch}) and num_envs ({self.num_envs})"
            )
        return self

    @model_validator(mode="after")
    def _knows_what_could_follow(self) -> Phase2Params:
        if self.exploration.frontier_prob and not self.targets.model_based:
            raise ValueError(
                "exploration.frontier_prob needs targets.model_based, because without it "
                "successors are unknown; set one of them otherwise"
            )
        return self
