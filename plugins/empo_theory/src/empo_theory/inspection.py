"""Inspections: the part of a run from which every number of its decisions can be worked out again.

An algorithm offers one by ``Inspectable``; explanations and pages read it, whatever computed or
learned its values. Symbols and equations: arXiv 2508.00159v2, Table 1, (1)-(9).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Integer, Shaped
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import RunContext, WorldModel
from empo_core.types import WorldSpec
from empo_theory.diagnostics import PowerFindings
from empo_theory.parameters import CompleteTheory

log = logging.getLogger(__name__)

Floats = Float64[np.ndarray, "..."]

NOT_KEPT = -1
"""Successor that an inspection left out."""
PAGE_BYTES = 20_000_000
"""Bytes of data that the page of a finished run, or of a notebook, has at most."""


@dataclass(frozen=True, kw_only=True)
class InspectionScope:
    """The part of a run that an inspection is to cover.

    Attributes:
        start: State row to begin with [word], or the number of a state, where the run numbers its
            states; None means the world's initial state.
        time: Steps of the episode that lie behind ``start``. Earlier times are left out.
        max_bytes: Size of the arrays at which states are left out, those that episodes visit
            least first; None keeps all.
        times: Times whose decisions are to be kept in the end; None means all. Fewer leave room
            for more states.
        compact: Whether values are to be kept in 32 bits in the end, which take half the room.
    """

    start: Shaped[np.ndarray, "*word"] | None = None
    time: int = 0
    max_bytes: int | None = None
    times: tuple[int, ...] | None = None
    compact: bool = False

    def kept_times(self, horizon: int | None) -> list[int]:
        """Times whose values are kept: those of ``times``, and one step later.

        Raises:
            WorldError: if an episode has no decision at one of these times.
        """
        times = range(self.time, 1 if horizon is None else horizon)
        if self.times is None:
            return list(times)
        for time in self.times:
            if time not in times:
                limit = (
                    f"times go from {times[0]} to {times[-1]}" if times else "the world ends before"
                )
                raise WorldError(f"there is no decision at time {time}: {limit}")
        return sorted({later for t in self.times for later in (t, t + 1)} & set(times))

    def value_bytes(self, numbers: int, horizon: int | None) -> int:
        """Bytes in which so many values of a state are kept."""
        size = 4 if self.compact else 8
        return size * numbers * len(self.kept_times(horizon))


class ByTime(Protocol):
    """Numbers of states at each time; an array ``[time state ...]``, or one read when asked for."""

    def __len__(self) -> int:
        """Number of times."""

    def __getitem__(self, position: int, /) -> Floats:
        """The numbers at a time, by its position [state ...]."""


def all_times(numbers: ByTime) -> Floats:
    """The numbers of states at all times [time state ...]."""
    return np.stack([numbers[position] for position in range(len(numbers))])


@dataclass(frozen=True, kw_only=True)
class RightValues:
    """Exact values beside learned ones, at the same times; NaN where they are not known.

    Attributes:
        v_r: V_r [time state].
        v_e: V_h^e [time state goal].
    """

    v_r: Float64[np.ndarray, "time state"]
    v_e: Float64[np.ndarray, "time state goal"]


class LoopStep(NamedTuple):
    """One step of humans and robots from some states on.

    Attributes:
        alive: Whether the episode goes on in each state [state].
        v_e: V_h^e; 0 where the episode is over, or the goals that are achieved, where presence
            counts [state goal].
        accrued: Expected weight of U_r during the step; 0 where the episode is over [state].
        reached: Numbers of the states that can follow, ascending [reached].
        mass: Mass of each process there, discounted by gamma_r [reached process].
    """

    alive: Bool[np.ndarray, " state"]
    v_e: Float64[np.ndarray, "state goal"]
    accrued: Float64[np.ndarray, " state"]
    reached: Int64[np.ndarray, " reached"]
    mass: Float64[np.ndarray, "reached process"]


@runtime_checkable
class ClosedLoop(Protocol):
    """The Markov chain that humans, averaged over their goals, and robots form together."""

    def follow(
        self,
        states: Int64[np.ndarray, " state"],
        time: int,
        mass: Float64[np.ndarray, "state process"],
    ) -> LoopStep:
        """What follows some states, given by number, at a time, with the mass that is there."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """States, transitions and values, from which policies and their reasons follow.

    Pair ``s * num_joint + j`` is state ``s`` under joint action ``j`` of ``spec.strides``; its
    transitions are ``offsets[pair] : offsets[pair + 1]``. A pair without transitions is
    unavailable; a state with none at all is terminal. Values hold at the times ``first_time``,
    ``first_time + 1`` and so on, up to one before the horizon; there is one time, 0, where the
    world has no horizon. Values are NaN where a state cannot be reached by then.

    Attributes:
        spec: The world's specification.
        theory: The parameters of the equations.
        rows: State rows [state word].
        number: What the run calls each state [state].
        total: How many states the run has, kept here or not; None where nobody counted them.
        first_failed: Numbers from this one on are of states in which robots have failed for good,
            each as much above the number of the same state with working robots; None where robots
            do not fail.
        offsets: Start of each pair's transitions [pair + 1].
        successor: State reached, or ``NOT_KEPT`` [transition].
        code: Position of the transition's probability and duration in the next two
            [transition].
        prob: The distinct probabilities [code].
        duration: The durations that go with them [code].
        achieved: Goals of ``spec.goals`` that are achieved [state goal].
        first_time: The earliest time.
        v_r: V_r [time state].
        v_e: V_h^e [time state goal].
        v_m: V_h^m; None where humans do not act by equations (1)-(3) with the parameters of
            ``theory`` and even expectations of each other [time state goal].
        pi_h: The humans' policies, where ``v_m`` is None [time state goal action].
        q_r: Q_r by which the robots act, where values are learned, which need not satisfy the
            equations, or robots are averse to risk; None where it follows from V_r one step
            later. NaN where a joint robot action is not available [time state robot_action].
        norm: Norm of order ``theory.rho`` of the robots' cost, where that is above 1
            [time state].
        x_h_floor: Least X_h in equation (8); lower ones count as this.
        counts: Whether equation (8) counts each human of ``spec.humans``; None: all [human].
        right: Exact values beside learned ones, where they are known.
        power: Who holds the power at the start of the run; None where that was not measured.
        closed_loop: The closed loop by the kernels of a solver, over all states of the run, kept
            here or not; None where it has to be worked out from these arrays.
    """

    spec: WorldSpec
    theory: CompleteTheory
    rows: Shaped[np.ndarray, "state word"]
    number: Int64[np.ndarray, " state"]
    total: int | None
    offsets: Int64[np.ndarray, " pair_plus_1"]
    successor: Integer[np.ndarray, " transition"]
    code: Integer[np.ndarray, " transition"]
    prob: Float64[np.ndarray, " code"]
    duration: Float64[np.ndarray, " code"]
    achieved: Bool[np.ndarray, "state goal"]
    first_time: int
    v_r: ByTime
    v_e: ByTime
    v_m: ByTime | None
    pi_h: ByTime | None
    q_r: ByTime | None = None
    norm: ByTime | None = None
    x_h_floor: float = 0.0
    counts: tuple[bool, ...] | None = None
    right: RightValues | None = None
    power: PowerFindings | None = None
    closed_loop: ClosedLoop | None = None
    first_failed: int | None = None

    @property
    def num_states(self) -> int:
        """Number of states that are kept."""
        return len(self.rows)

    @property
    def last_time(self) -> int:
        """The last time at which anybody acts."""
        return self.first_time + len(self.v_r) - 1

    def with_right_values(
        self,
        place: Integer[np.ndarray, " item"],
        steps_left: Integer[np.ndarray, " item"],
        v_r: Float[np.ndarray, " item"],
        v_e: Float[np.ndarray, "item goal"],
    ) -> Inspection:
        """The same with exact values beside the learned ones.

        Args:
            place: Positions of states in ``rows``; -1: that state is not kept.
            steps_left: Steps left in each; 1 without a horizon.
            v_r: V_r.
            v_e: V_h^e.
        """
        time = (self.spec.horizon or 1) - steps_left - self.first_time
        fits = (place >= 0) & (time >= 0)
        right_r = np.full((len(self.v_r), self.num_states), np.nan)
        right_e = np.full((*right_r.shape, len(self.spec.goals)), np.nan)
        right_r[time[fits], place[fits]] = v_r[fits]
        right_e[time[fits], place[fits]] = v_e[fits]
        return replace(self, right=RightValues(v_r=right_r, v_e=right_e))


NO_FAILURES = (
    "it has no states in which robots have failed: solve with defunct.rate 0 for one, or see empo "
    "explain"
)
"""Why robots that may fail have no page."""


def not_split(theory: CompleteTheory) -> str | None:
    """Why Q_r is no sum over later steps, humans and goals; None: it is one."""
    if theory.rho == 1:
        return None
    return (
        f"it splits Q_r over steps, humans and goals, which a mean of cost to the power of "
        f"{theory.rho} is no sum of: solve with theory.rho 1 for one, or see empo explain"
    )


@runtime_checkable
class Inspectable(Protocol):
    """An algorithm whose finished runs can be inspected; optional.

    ``empo explain`` asks for it.
    """

    def inspection(self, context: RunContext, query: InspectionScope) -> Inspection:
        """The states and values of the run in ``context.directory``, from a state and time on.

        Raises:
            StorageError: if the run left nothing that can be loaded, or too little to explain.
            WorldError: if the state cannot be reached by that time.
        """


@runtime_checkable
class InspectableResult(Protocol):
    """A result that can be explained, and whose run can have a page; optional.

    Where ``empo-inspector`` is installed, it writes the page once the run has finished.
    """

    @property
    def world(self) -> WorldModel:
        """The world of the run."""

    @property
    def wants_page(self) -> bool:
        """Whether the finished run is to have a page."""

    def inspection(self, scope: InspectionScope, /) -> Inspection:
        """The states and values of the result, from a state and time on.

        Raises:
            WorldError: if the state cannot be reached by that time.
            SolveError: if values that an explanation needs were not kept.
        """


def warn_without_inspector() -> None:
    """Warn that the page which a run wants cannot be written, unless it can."""
    if find_spec("empo_inspector") is None:
        log.warning("no inspector.html: pip install empo-inspector")


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """Pictures of states of a grid, made of glyphs that repeat.

    Cells are numbered row by row. Glyph 0 is nothing.

    Attributes:
        width: Columns of the grid.
        height: Rows of the grid.
        glyphs: Name of each glyph, for those who do not see it, and an SVG document of polygons,
            polylines, circles, rectangles and texts.
        ground: Glyph of each cell's ground [cell].
        things: Glyph of what is in each cell [state cell].
        agents: Glyph of each agent [state agent].
        places: Cell of each agent [state agent].
        headings: Direction that each agent faces: 0 east, 1 south, 2 west, 3 north; -1 where
            agents face none [state agent].
        goals: Cells of each goal of the world's ``spec.goals`` [goal cell].
    """

    width: int
    height: int
    glyphs: tuple[tuple[str, str], ...]
    ground: Integer[np.ndarray, " cell"]
    things: Integer[np.ndarray, "state cell"]
    agents: Integer[np.ndarray, "state agent"]
    places: Integer[np.ndarray, "state agent"]
    headings: Integer[np.ndarray, "state agent"]
    goals: Bool[np.ndarray, "goal cell"]


@runtime_checkable
class Sketchable(Protocol):
    """A world on a grid whose states a page can draw; optional."""

    def sketch(self, states: Integer[Tensor, "state word"]) -> Sketch:
        """Pictures of some states."""


def q_r_words(q_r: float, chance: float) -> str:
    """Q_r of an action as text; NaN: it is not available, or in some starts only where taken."""
    if not math.isnan(q_r):
        return f"{q_r:.6g}"
    return "in some starts only" if chance > 0 else "unavailable"


ACHIEVED = "achieved"
"""Stands for V_h^e in a state that achieves the goal already."""


def or_achieved(value: str, *, is_achieved: bool) -> str:
    """A V_h^e as text; in an achieved goal, it is about the chance to stay or to come back."""
    return f"{ACHIEVED} ({value})" if is_achieved else value
