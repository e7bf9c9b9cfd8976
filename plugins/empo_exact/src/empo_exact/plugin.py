"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from empo_core import Command, Component, Config, hookimpl
from empo_core.config import ExecutorRef, HumanPriorRef, merged
from empo_theory.parameters import CompleteTheory, HumanTheory

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "beta_h": 5.0, "gamma_h": 0.99, "gamma_r": 0.99, "beta_r": 5.0, "zeta": 2.0, "xi": 1.0,
        "eta": 1.1, "x_agg": "sum", "u_agg": "sum", "accrual": "discrete",
    },
    "reference": {
        "beta_h": 10.0, "gamma_h": 1.0, "gamma_r": 1.0, "beta_r": 10.0, "zeta": 1.0, "xi": 1.0,
        "eta": 1.0, "x_agg": "weighted", "u_agg": "mean", "accrual": "continuous",
    },
    "neutral": {
        "beta_h": 10.0, "gamma_h": 1.0, "gamma_r": 1.0, "beta_r": 10.0, "zeta": 1.0, "xi": 1.0,
        "eta": 1.0, "x_agg": "weighted", "u_agg": "mean", "accrual": "discrete",
    },
}  # fmt: skip
PRESETS["fair"] = PRESETS["paper"] | {"counting": "presence"}
"""Values of ``theory`` set at once by ``preset``, from docs/explanation/conventions.md."""


class Belief(Config):
    """One line of a table of beliefs: how likely the other humans act like this together."""

    human: int = Field(ge=0, description="Agent index of the human who believes it.")
    others: list[int] = Field(
        description="Actions of the other humans, in the order of their agent indices."
    )
    prob: float = Field(ge=0, le=1, description="Its probability; one human's must sum to 1.")


class PriorParams(Config):
    """Phase 1: what the robot believes about the humans. Symbols as in the paper."""

    preset: Literal["paper", "reference", "neutral", "fair"] | None = Field(
        None, description="Sets the symbols of theory at once; keys given beside it win."
    )
    theory: HumanTheory = Field(
        default_factory=HumanTheory, description="Symbols of equations (1)-(3)."
    )
    habit: HumanPriorRef | None = Field(
        None, description="The habitual policy pi^0; None means uniform over actions."
    )
    believed_others: list[Belief] | None = Field(
        None,
        description="Belief of each human about the other humans' joint action; null means "
        "independent and even over their available actions.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        preset = data.get("preset") if isinstance(data, dict) else None
        if isinstance(preset, str) and preset in PRESETS:  # Else it is refused later.
            symbols = cls._theory_class().model_fields
            preset_theory = {key: value for key, value in PRESETS[preset].items() if key in symbols}
            return merged({"theory": preset_theory}, data)
        return data

    @classmethod
    def _theory_class(cls) -> type[HumanTheory]:
        return HumanTheory

    @model_validator(mode="after")
    def _is_consistent(self) -> PriorParams:
        if self.habit is not None and self.theory.nu == 0:
            raise ValueError(
                "habit has no effect while theory.nu is 0; set nu > 0 or leave habit out"
            )
        return self


Diagnostic = Literal["alone", "vulnerability", "domination", "coalitions", "reserve", "canonical"]
"""A measurement of who holds the power; docs/how-to/diagnose_power.md says what each is."""


class StateSet(Config):
    """A set of states: those that achieve goals, or that are listed."""

    any_of: list[str] | None = Field(
        None, min_length=1, description="States that achieve one of the goals of these names."
    )
    all_of: list[str] | None = Field(
        None, min_length=1, description="States that achieve all goals of these names."
    )
    rows: list[list[int]] | None = Field(
        None, min_length=1, description="States given by their rows."
    )

    @model_validator(mode="after")
    def _is_one_set(self) -> StateSet:
        if sum(key is not None for key in (self.any_of, self.all_of, self.rows)) != 1:
            raise ValueError("give one of any_of, all_of and rows")
        return self


class Defunct(Config):
    """A robot that may fail for good: from then on all robots take their null action."""

    rate: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Chance that working robots fail for good, per unit of time, once they have "
        "acted; humans notice it.",
    )
    null_action: str | None = Field(
        None,
        description="Action that failed robots take, by name; it must be available everywhere. "
        "null means the first.",
    )


class Compute(Config):
    """Processors and RAM that a run may take."""

    workers: int = Field(
        2, ge=1, description="Threads; worker processes where the world is written in Python."
    )
    start_method: Literal["forkserver", "spawn"] = Field(
        "forkserver", description="Start method of worker processes."
    )
    executor: ExecutorRef | None = Field(
        None,
        description="Executor of processes, e.g. on a cluster: of those that solve together; with "
        "processes: 1 of workers that explore the world, in place of threads and start_method. "
        "null means this machine.",
    )
    max_states: int = Field(
        50_000_000, ge=1, description="Refuse worlds with more states than this."
    )
    ram_limit_gb: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Refuse what makes this process larger; null means 80 % of the machine's RAM, "
        "or what is free where that is less.",
    )
    graph: Literal["memory", "spill"] = Field(
        "memory",
        description="Where transitions and values are while solving. memory: in RAM; spill: in "
        "files of the run directory, one part after another.",
    )
    parts: int | None = Field(
        None,
        ge=1,
        description="Parts that the state graph is cut into; null means one for each process, or "
        "with graph: spill as many as RAM asks for.",
    )
    checkpoint_s: float = Field(
        60.0,
        ge=0,
        description="With parts: least seconds between checkpoints, from which a solve goes on "
        "where it was interrupted or a process failed.",
    )
    processes: int = Field(
        1, ge=1, description="Processes that have some of the parts each, with workers threads."
    )

    @property
    def has_parts(self) -> bool:
        """The state graph is cut into parts."""
        return self.graph != "memory" or self.parts is not None or self.processes > 1


class ExactParams(PriorParams):
    """Phases 1 and 2: the theory, and how to solve it."""

    sizes_worlds: ClassVar = True

    theory: CompleteTheory = Field(
        default_factory=CompleteTheory, description="Symbols of equations (1)-(9)."
    )
    human_prior: HumanPriorRef | None = Field(
        None, description="Human prior; None solves Phase 1 with the parameters above."
    )
    counts: list[str] | None = Field(
        None,
        min_length=1,
        description="Names of the humans whose power counts in U_r; the others act all the same. "
        "null means all.",
    )
    defunct: Defunct = Field(
        default_factory=Defunct, description="How robots may fail for good, and what they then do."
    )
    compute: Compute = Field(
        default_factory=Compute, description="Processors and RAM that a run may take."
    )
    keep: Literal["auto", "all", "disk", "none"] = Field(
        "auto",
        description="all: keep the state graph and the values of all times, in RAM and then in the "
        "run directory; disk: one file per time; none: leave the report and the picture of the "
        "start only; auto: all where that takes at most 100 MB, else none.",
    )
    reduce: list[Literal["symmetry", "cone", "lump"]] = Field(
        default_factory=list,
        description="Solve fewer states with the same values. symmetry: one of all that mirrors, "
        "rotations or renamed agents turn into each other; cone: leave out words of a state that "
        "nothing depends on; lump: one of all states with the same future.",
    )
    check_reductions: Literal["all", "sampled"] = Field(
        "all",
        description="States on which reduce tries what a world declares. all: every explored "
        "state, with all its images and joint actions, which takes longer than exploring without "
        "reductions; sampled: a thousand, so that what is false elsewhere is not noticed.",
    )
    count_unrolled: bool = Field(
        False, description="Count (time, state) pairs and edges even where that is costly."
    )
    rollouts: int | None = Field(
        None,
        ge=0,
        description="Rollouts to play and draw after solving; null means 1, or 0 with keep: none.",
    )
    inspector: bool | None = Field(
        None,
        description="Write inspector.html, a page that shows every decision and why; null writes "
        "it where its data take at most 20 MB.",
    )
    diagnostics: list[Diagnostic] | None = Field(
        None,
        description="Who holds the power at the start, measured after solving. alone: without "
        "robots; vulnerability, domination: against other humans, or robots, who do their worst; "
        "coalitions: together, of up to four humans; reserve: whether a further goal would change "
        "what robots do; canonical: with every state as a goal. null means the first three, for up "
        "to eight humans, where the values of all times are kept.",
    )
    coalition_goals: dict[str, StateSet] | None = Field(
        None,
        min_length=1,
        description="Goals of coalitions: sets of states by the name of the goal that each member "
        "pursues for it. null means goals that are the same states to all humans.",
    )
    reserve_states: StateSet | None = Field(
        None,
        description="The further goal of reserve; null means the states in no goal of a human.",
    )

    @classmethod
    def _theory_class(cls) -> type[CompleteTheory]:
        return CompleteTheory

    @property
    def num_rollouts(self) -> int:
        """Rollouts to play after solving."""
        return self.rollouts if self.rollouts is not None else int(self.keep != "none")

    @model_validator(mode="after")
    def _uses_every_key(self) -> ExactParams:
        if self.human_prior is None:
            return self
        usual = {
            "theory.beta_h": (self.theory.beta_h, PRESETS[self.preset or "neutral"]["beta_h"]),
            "theory.nu": (self.theory.nu, 0.0),
            "habit": (self.habit, None),
            "believed_others": (self.believed_others, None),
            "theory.robot_model": (self.theory.robot_model, "pessimistic"),
        }
        for key, (value, default) in usual.items():
            if value != default:
                raise ValueError(
                    f"{key} has no effect beside human_prior, which says how humans act; leave "
                    f"{key} out, or set it in the params of a prior that has it"
                )
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> ExactParams:
        if conflict := self.conflict(self.compute.processes):
            raise ValueError(conflict)
        return self

    def conflict(self, processes: int) -> str | None:
        """Why these parameters do not go together where so many processes solve; None: they do."""
        return next(self._conflicts(processes), None)

    def _conflicts(self, processes: int) -> Iterator[str]:
        """All that does not go together; docs/how-to/solve_large_worlds.md has the same as a table.

        Args:
            processes: How many processes solve together.
        """
        compute, keep = self.compute, self.keep
        in_parts = compute.has_parts or processes > 1
        for key, name in (("coalition_goals", "coalitions"), ("reserve_states", "reserve")):
            if getattr(self, key) is not None and name not in (self.diagnostics or ()):
                yield (
                    f"{key} has no effect without {name} in diagnostics; add it, or leave {key} out"
                )
        if keep == "none":
            for key in self._given("rollouts", "inspector", "diagnostics"):
                yield (
                    f"{key} needs the values of all times: set keep to all or disk, or leave {key} "
                    "out"
                )
        if processes > 1:
            if keep in ("all", "disk"):
                yield (
                    f"keep: {keep} keeps the whole graph, which processes that share it do not: "
                    "set keep to none, or use one process"
                )
            for key in self._given("rollouts", "count_unrolled", "inspector", "diagnostics"):
                yield (
                    f"{key} needs the whole graph, which processes that share it do not keep: "
                    f"leave {key} out, or use one process"
                )
            if compute.parts is not None and compute.parts < processes:
                yield (
                    f"{processes} processes need as many parts at least; there are {compute.parts}"
                )
        if in_parts and self.count_unrolled and keep not in ("all", "disk"):
            yield "count_unrolled needs the graph in one piece: set keep to all or disk"
        if self.reduce:
            for name in self.reduce:
                if self.reduce.count(name) > 1:
                    yield f"reduce names {name} twice; name it once"
            if in_parts:
                yield (
                    "reduce needs the graph in one piece: leave compute.graph, compute.parts and "
                    "compute.processes out and start one process, or leave reduce out"
                )
            if keep == "disk":
                yield (
                    "keep: disk does not go with reduce, which keeps the values of fewer states "
                    "than there are: set keep to all or none, or leave reduce out"
                )
            if self.count_unrolled and keep != "all":
                yield "count_unrolled with reduce needs the graph of all states: set keep to all"
        if "lump" in self.reduce:
            for key in self._given("human_prior", "habit"):
                yield (
                    f"reduce: lump compares states by where actions lead, and {key} may tell apart "
                    f"what that does not: leave lump out of reduce, or {key}"
                )
        if self.defunct.rate > 0:
            if self.reduce:
                yield (
                    "reduce does not go with defunct.rate, for the states in which robots have "
                    "failed are solved, too: leave reduce out, or defunct"
                )
            if in_parts:
                yield (
                    "defunct.rate needs the graph in one piece: leave compute.graph, compute.parts "
                    "and compute.processes out and start one process, or leave defunct out"
                )
        if "symmetry" in self.reduce and self.counts is not None:
            yield (
                "reduce: symmetry may rename a human that counts as one that does not: leave "
                "symmetry out of reduce, or counts"
            )
        if "symmetry" in self.reduce and self.believed_others is not None:
            yield (
                "reduce: symmetry needs beliefs that are symmetric, too, and believed_others names "
                "single humans and actions: leave symmetry out of reduce, or believed_others"
            )

    def _given(self, *keys: str) -> list[str]:
        """Which of these parameters ask for something."""
        return [key for key in keys if getattr(self, key)]

    def needs_one_start(self, processes: int) -> str | None:
        """The key that takes worlds with one initial state only, by so many processes, if any."""
        compute, key = self.compute, None
        if self.reduce:
            key = "reduce"
        elif compute.parts is not None:
            key = "compute.parts"
        elif compute.graph != "memory":
            key = "compute.graph"
        elif processes > 1:
            key = "compute.processes"
        return key and f"algorithm.params.{key}"

    def idle_checkpoints(self, processes: int) -> str | None:
        """Why ``checkpoint_s`` does nothing where so many processes solve; None: it does."""
        default = Compute.model_fields["checkpoint_s"].default
        if processes > 1 or self.compute.has_parts or self.compute.checkpoint_s == default:
            return None
        return (
            f"compute.checkpoint_s is {self.compute.checkpoint_s:g}, but there are no checkpoints "
            "where the graph is in one piece: set compute.parts, or leave compute.checkpoint_s out "
            "(keep: disk keeps each time once it is solved)"
        )


class UniformParams(Config):
    """The uniform prior has no parameters."""


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the exact algorithm, and its Phase 1 as a human prior."""
    yield Component(
        kind="algorithm",
        name="exact",
        params=ExactParams,
        target="empo_exact.algorithm:Exact",
        api=1,
        summary="Both phases by backward induction in float64: exact policies and values.",
    )
    yield Component(
        kind="human_prior",
        name="exact",
        params=PriorParams,
        target="empo_exact.prior:ExactPrior",
        api=1,
        summary="Phase 1: boundedly rational humans, by backward induction.",
    )
    yield Component(
        kind="human_prior",
        name="uniform",
        params=UniformParams,
        target="empo_exact.prior:UniformPrior",
        api=1,
        summary="Humans choose evenly among their available actions.",
    )


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer diagnostics of solved runs."""
    yield Command(
        name="diagnose",
        help="Who holds the power in a solved run, and who can take it away?",
        target="empo_exact.commands:diagnose",
        api=1,
    )
