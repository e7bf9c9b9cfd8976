"""The result of a run of ``exact``: a solution, with summary, report, pictures and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from rich.console import RenderableType
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.runs.environment import peak_memory_bytes
from empo_core.trees import JsonData
from empo_exact import pictures, report, storage
from empo_exact.chain import Chain, close_loop, occupancy
from empo_exact.game import Values
from empo_exact.graph import StateGraph
from empo_exact.inspection import inspect, nbytes, opaque
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem, pose
from empo_exact.ram import Sizes
from empo_exact.reach import Unrolled, unrolled_sizes
from empo_exact.reduction import Reduction
from empo_exact.request import Request
from empo_exact.rollout import Episode, play
from empo_exact.solution import Solution, StateValues
from empo_exact.storm import export_game
from empo_exact.sweep import MeanPolicies, Seconds
from empo_exact.terminal_states import uncovered_state, warning_after
from empo_exact.values import Store, ValueStore
from empo_pictures.notebooks import NotebookReport
from empo_pictures.pictures import Frame
from empo_theory.diagnostics import PowerFindings
from empo_theory.inspection import PAGE_BYTES, Inspection, InspectionScope

CHEAP_COUNT = 20_000_000
"""Steps of the unrolled graph below which it is counted without being asked for."""


@dataclass(frozen=True)
class Opening:
    """All that decides the first step of an episode, small enough to be sent about.

    Attributes:
        graph: The starts, with the states that follow them.
        values: Values of these by time; of the starts alone at time 0 of a horizon.
        sizes: Sizes of the whole graph.
        warning: Of a terminal state that attracts robots; none where there is none.
        seconds: Wall-clock time of the parts of the solve.
        reductions: The reductions by which fewer states were solved than there are.
    """

    graph: StateGraph
    values: dict[int, Values]
    sizes: Sizes
    warning: str | None
    seconds: Seconds
    reductions: tuple[Reduction, ...] = ()


class ExactResult(NotebookReport, Solution):
    """A solution, and the run that found it; see ``empo_core.protocols.Result``.

    Attributes:
        params: The parameters it was solved with.
        seconds: Wall-clock time of the parts of the solve.
        seed: Seeds the rollouts that ``draw`` shows.
        reductions: The reductions by which fewer states were solved than there are.
        directory: The directory of the run; None of what was solved without one.
        diagnostics: Who holds the power at the start; None where that was not measured.
        clean_up: Removes files that only a solve that goes on would need; called once the result
            is saved.
    """

    def __init__(
        self,
        problem: Problem,
        store: Store,
        params: ExactParams,
        seconds: Seconds,
        seed: int = 0,
        reductions: Sequence[Reduction] = (),
        opening: Opening | None = None,
        failed: Solution | None = None,
        means: Mapping[int, tuple[Int64[np.ndarray, " state"], MeanPolicies]] = {},
    ) -> None:
        super().__init__(problem, store, failed, means)
        self.params = params
        self.seconds = seconds
        self.seed = seed
        self.reductions = tuple(reductions)
        self.directory: Path | None = None
        self.diagnostics: PowerFindings | None = None
        self.clean_up: Callable[[], None] | None = None
        self._opening = opening
        self._peak_memory = peak_memory_bytes()

    @classmethod
    def of_opening(cls, request: Request, opening: Opening) -> ExactResult:
        """The result of a solve that keeps no more than the first step."""
        store = ValueStore("none", None, "")
        for time, values in opening.values.items():
            store.put(time, values)
        params = request.params.model_copy(update={"keep": "none"})
        problem = pose(request.world, opening.graph, params, request.assumed)
        return cls(
            problem, store, params, opening.seconds, request.seed, opening.reductions, opening
        )

    @property
    def sizes(self) -> Sizes:
        """Sizes of the state graph that was solved."""
        return self._opening.sizes if self._opening else Sizes.of(self.graph)

    @property
    def is_whole(self) -> bool:
        """True if the result has the whole graph and not only its beginning."""
        return self._opening is None

    def warnings(self) -> list[str]:
        """Advice to a reader who is about to trust the policies."""
        warning = self._opening.warning if self._opening else warning_after(self)
        return [line for line in (warning, *self._outside_axioms()) if line]

    def _outside_axioms(self) -> Iterator[str]:
        """What the theory of presence takes for granted, and is not so here."""
        theory = self.params.theory
        if theory.counting == "arrival":
            return
        if theory.zeta <= 1:
            yield (
                f"zeta is {theory.zeta:g}: above 1, one goal for certain is worth more than two "
                "with half the chance each, which the objective with counting: presence presupposes"
            )
        if uncovered := uncovered_state(self.problem):
            yield uncovered

    @cached_property
    def unrolled(self) -> Unrolled:
        """Sizes of the graph of (time, state) pairs."""
        return unrolled_sizes(self.graph, self.horizon)

    def find(self, positions: Mapping[int, tuple[int, int]]) -> Int64[np.ndarray, " state"]:
        """Numbers of all states in which the given agents stand in the given (x, y) cells.

        Raises:
            WorldError: if the world does not say where its agents are, or has no such agent.
        """
        positions_of_all = self.problem.world.positions(torch.from_numpy(self.graph.states))
        if positions_of_all is None:
            raise WorldError(f"{self.spec.name!r} has no positions; ask by state row instead")
        where = positions_of_all.numpy()
        match = np.ones(self.graph.num_states, np.bool_)
        for agent, cell in positions.items():
            if not 0 <= agent < len(self.spec.agents):
                raise WorldError(
                    f"{self.spec.name!r} has no agent {agent}; its {len(self.spec.agents)} agents "
                    "are numbered from 0"
                )
            match &= (where[:, agent] == np.array(cell)).all(-1)
        return np.flatnonzero(match)

    def chain(self) -> Chain:
        """The Markov chain that humans and robot form together, humans over all goals."""
        return close_loop(self)

    @property
    def world(self) -> WorldModel:
        """The world."""
        return self.problem.world

    @property
    def wants_page(self) -> bool:
        """Whether the run is to have a page, and has what that takes: the values of all times."""
        is_open = self.is_whole and opaque(self.params.theory, self) is None
        size = nbytes(self) if is_open else None
        if size is None or self.params.inspector is False:
            return False
        return bool(self.params.inspector) or size <= PAGE_BYTES

    def inspection(self, scope: InspectionScope) -> Inspection:
        """See ``empo_theory.inspection.InspectableResult``."""
        return replace(inspect(self, self.params.theory, scope), power=self.diagnostics)

    def occupancy(
        self,
    ) -> Iterator[tuple[int, Int[Tensor, "state word"], Float[Tensor, " state"]]]:
        """Steps left, states, and expected visits; see ``empo_theory.solved_world``."""
        for time, states, visits in occupancy(self):
            left = 1 if self.horizon is None else self.horizon - time
            yield left, torch.from_numpy(self.graph.states[states]), torch.from_numpy(visits)

    def export_storm(self, directory: Path) -> list[Path]:
        """Write the closed-loop chain and the game for the model checker Storm."""
        files = self.chain().export_storm(directory)
        return files + export_game(self.graph, self.problem.game.achieved > 0, directory)

    def rollout(
        self, generator: torch.Generator, goals: Mapping[int, int] | None = None
    ) -> Episode:
        """One episode: state numbers, each with the joint action taken there (None at the end).

        Args:
            generator: Source of the randomness.
            goals: The goal (position in ``spec.goals``) that each human pursues; humans
                without one act by their average over goals.
        """
        return play(self, generator, goals or {})

    def summary(self) -> dict[str, JsonData]:
        """The result as JSON data."""
        graph: dict[str, JsonData] = {
            "states": self.sizes.states,
            "transitions": self.sizes.transitions,
        }
        cheap = self.graph.num_transitions * (self.horizon or 1) <= CHEAP_COUNT
        if self.is_whole and (cheap or self.params.count_unrolled):
            states, terminal, edges = self.unrolled
            graph |= {
                "unrolled_states": states,
                "unrolled_terminal": terminal,
                "unrolled_edges": edges,
            }
        root = report.root_data(self)
        if self.diagnostics is not None:
            root["diagnostics"] = self.diagnostics.data()
        return {
            "algorithm": "exact",
            "world": self.spec.name,
            "root": root,
            "graph": graph,
            "reductions": [reduction.data for reduction in self.reductions],
            "warnings": [*self.warnings()],
            "seconds": vars(self.seconds),
            "peak_memory_bytes": self._peak_memory,
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        notes = [reduction.sentence for reduction in self.reductions]
        kind = "states"
        if self.reductions:  # Values of all are kept, or those of the states that were solved.
            kind = "original states" if self.is_whole else "states that were solved"
        return report.tables(
            self, self.sizes, self.seconds, self.warnings(), notes, kind, self.diagnostics
        )

    def picture(self) -> Frame | None:
        """The start with the robots' policy and the attainability of goals; see ``draw``."""
        return pictures.start_frame(self)

    def save(self, directory: Path) -> None:
        """Write tables that ``load`` reads, unless nothing is kept."""
        record = storage.Record(self.params, self.seconds, self.seed, self.reductions)
        if self.params.keep != "none":
            storage.save(self, record, directory)
        if self.clean_up:
            self.clean_up()

    def draw(self, directory: Path) -> None:
        """Write ``start.png``, ``start.svg``, and rollouts of a world with pictures.

        ``empo_pictures.vectors.write_pdf`` makes a PDF of the SVG file.
        The start of a world without pictures, such as a table, is its text between the goals'
        attainability and the robots' policies.
        """
        rollouts = self.params.num_rollouts if self.is_whole else 0
        pictures.draw(self, directory, rollouts=rollouts, seed=self.seed)


def load(
    directory: Path,
    world: WorldModel,
    human_prior: HumanPrior | None = None,
    habit_prior: HumanPrior | None = None,
) -> ExactResult:
    """A result that ``ExactResult.save`` wrote.

    Args:
        directory: The folder that was given to ``save``.
        world: The world that was solved.
        human_prior: The prior that it was solved with, if ``solve`` was given one.
        habit_prior: The habitual policy that it was solved with, if ``solve`` was given one.

    Raises:
        StorageError: if the files are missing or damaged, or belong to another world.
    """
    solved, record = storage.read(directory, world, human_prior, habit_prior)
    return ExactResult(
        solved.problem,
        solved.store,
        record.params,
        record.seconds,
        record.seed,
        record.reductions,
        failed=solved.failed,
    )


__all__ = ["ExactResult", "StateValues", "load"]
