"""The ``exact`` algorithm: solve the world of a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pydantic import JsonValue, ValidationError

from empo_core.errors import ConfigError, SolveError, StorageError
from empo_core.protocols import Algorithm, CheckpointChoice, RunContext, WorldModel
from empo_core.runs.atomic import read_json
from empo_core.runs.directory import RESULTS, SUMMARY
from empo_core.threads import torch_threads
from empo_core.world_content import world_digest
from empo_exact.diagnostics.diagnose import (
    diagnose,
    has_all_times,
    names_of,
    refuse_unsuitable,
    takes_seconds,
)
from empo_exact.graph import StateGraph
from empo_exact.inspection import opaque
from empo_exact.plugin import ExactParams
from empo_exact.policies import SolvedHumans, SolvedPower, SolvedRobots
from empo_exact.problem import check_params
from empo_exact.result import ExactResult, load
from empo_exact.solve import solve
from empo_theory.diagnostics import PowerFindings
from empo_theory.inspection import Inspection, InspectionScope, warn_without_inspector
from empo_worlds.contract import require_one_start
from empo_worlds.roles import check_humans

if TYPE_CHECKING:
    from empo_exact.forecast import Forecast
    from empo_exact.parts.peers import Peers

log = logging.getLogger("empo_exact")

_graphs: WeakValueDictionary[str, StateGraph] = WeakValueDictionary()
"""Graphs of results in use, by the digests of their worlds: runs of one world share it."""


class Exact(Algorithm):
    """Backward induction over the whole state graph."""

    has_intrinsic_reward = True

    def __init__(self, params: ExactParams) -> None:
        self._params = params
        self._solved_again: ExactResult | None = None
        self._forecast: Forecast | None = None

    def run(self, context: RunContext) -> ExactResult:
        """Solve ``context.world``; see ``empo_core.protocols.Algorithm``."""
        directory, world = context.directory / "values", _world(context.world)
        self._refuse_unsuitable(world)
        # Large arrays are the kernels'; they have threads of their own.
        with torch_threads(1), joined() as peers:
            result = solve(
                world,
                self._params,
                directory=Path(peers.all(str(directory))[0]) if peers else directory,
                tracker=context.tracker,
                resume=peers.all(context.resume)[0] if peers else context.resume,
                seed=context.seed,
                peers=peers,
            )
            self._diagnose(result, context)
        result.directory = context.directory
        if self._params.inspector:
            warn_without_inspector()
            if not result.wants_page:
                log.warning(
                    "no inspector.html: %s",
                    opaque(self._params.theory, result)
                    or "it needs the values of all times; set keep to all or disk",
                )
        return result

    def restore(
        self, context: RunContext, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[SolvedRobots, SolvedHumans]:
        """The policies of a finished run; see ``empo_core.protocols.Algorithm``.

        Raises:
            StorageError: if the run has not finished, or is damaged.
            ConfigError: if the best checkpoint is asked for, and there is only one solution.
        """
        if checkpoint != "newest":
            raise ConfigError(
                "algorithm 'exact' has one solution, and no checkpoints to choose from"
            )
        result = self._finished(context)
        return SolvedRobots(result), SolvedHumans(result)

    def reopen(self, context: RunContext) -> ExactResult:
        """The result of a finished run; see ``empo_core.protocols.Algorithm``.

        Raises:
            StorageError: if the run has not finished, or is damaged.
        """
        result = self._finished(context)
        result.directory = context.directory
        return result

    def intrinsic_reward(self, context: RunContext) -> SolvedPower:
        """U_r of a finished run; see ``empo_core.protocols.Algorithm``.

        Raises:
            StorageError: if the run has not finished, or is damaged.
            ConfigError: if more than U_r where somebody acts makes up what the robots maximise.
        """
        theory, rate = self._params.theory, self._params.defunct.rate
        usual = {
            "theory.counting": (theory.counting, "arrival"),
            "theory.rho": (theory.rho, 1),
            "defunct.rate": (rate, 0),
        }
        for key, (value, only) in usual.items():
            if value != only:
                raise ConfigError(
                    f"algorithm.params.{key} of 'exact' is {value}, and U_r as the reward of "
                    f"learners takes {only} only, for a sum of it is not what such robots "
                    f"maximise; leave {key} out of that run"
                )
        return SolvedPower(self._finished(context))

    def inspection(self, context: RunContext, scope: InspectionScope) -> Inspection:
        """The values of a finished run; see ``empo_theory.inspection.Inspectable``.

        Raises:
            StorageError: if the run has not finished, or is damaged.
            WorldError: if the state cannot be reached by that time.
        """
        return self._finished(context).inspection(scope)

    def check(self, world: WorldModel | None) -> Mapping[str, JsonValue]:
        """Sizes, RAM, disk and time of a run, from a few seconds of exploration."""
        from empo_exact.forecast import too_many_actions

        world = _world(world)
        check_humans(world.spec)
        check_params(world, self._params)
        self._refuse_unsuitable(world)
        if key := self._params.needs_one_start(self._params.compute.processes):
            require_one_start(world, key)
        if reason := too_many_actions(world.spec):
            return {"states": reason}
        return self._forecast_of(world).needs()

    def alternatives(self, world: WorldModel | None) -> Mapping[str, JsonValue]:
        """What reductions would leave and parts would take, from the exploration of ``check``."""
        from empo_exact.forecast import too_many_actions

        world = _world(world)
        return {} if too_many_actions(world.spec) else self._forecast_of(world).alternatives()

    def _refuse_unsuitable(self, world: WorldModel) -> None:
        """Refuse what cannot be measured, before anything is solved."""
        params = self._params
        names = names_of(world.spec, params.diagnostics)
        refuse_unsuitable(world.spec, names, params.coalition_goals, params.reserve_states)

    def _diagnose(self, result: ExactResult, context: RunContext) -> None:
        """Measure who holds the power, where the values of all times were kept."""
        chosen = self._params.diagnostics
        names = names_of(result.spec, chosen)
        if not names or (chosen is None and not takes_seconds(result)):
            return
        if not has_all_times(result):
            if chosen:
                log.warning(
                    "no diagnostics: they need the values of all times; set keep to all or disk"
                )
            return
        try:
            result.diagnostics = diagnose(result, names, tracker=context.tracker, is_strict=False)
        except SolveError as error:  # The solution is worth as much without.
            log.warning("no diagnostics: %s", error)

    def _forecast_of(self, world: WorldModel) -> Forecast:
        from empo_exact.forecast import Forecast

        if self._forecast is None or self._forecast.world is not world:
            self._forecast = Forecast(world, self._params)
        return self._forecast

    def _finished(self, context: RunContext) -> ExactResult:
        """The result of a finished run with the values of all times; solved again if not saved."""
        results = context.directory / RESULTS
        if (results / "tables").is_dir():
            result = load(results, _world(context.world))
            result.diagnostics = saved_findings(results / SUMMARY)
            return result
        if not (results / SUMMARY).is_file():
            raise StorageError(
                f"{context.directory}: has no results; this algorithm saves them at its end. Go "
                f"on with: empo resume {context.directory}"
            )
        if self._solved_again is None:
            log.warning(
                "%s kept no values of all times, so it is solved again (keep: all or disk saves "
                "that)",
                context.directory,
            )
            # In one piece, for values of all times would bring parts together in RAM anyway.
            compute = {"graph": "memory", "parts": None, "processes": 1}
            params = self._params.model_copy(
                update={"keep": "all", "compute": self._params.compute.model_copy(update=compute)}
            )
            world = _world(context.world)
            # Without content, digests of worlds come from samples, and different worlds share one.
            is_shared = world.content() is not None and not params.reduce
            digest = world_digest(world) if is_shared else ""
            with torch_threads(1):
                self._solved_again = solve(
                    world,
                    params,
                    tracker=context.tracker,
                    seed=context.seed,
                    graph=_graphs.get(digest),
                    remembers=True,
                )
            if is_shared:
                _graphs[digest] = self._solved_again.graph
        return self._solved_again


def saved_findings(summary: Path) -> PowerFindings | None:
    """Who holds the power, as the summary of a run has it; None where it does not, or no longer.

    A run is worth as much without: what cannot be read is a warning.
    """
    data = read_json(summary) if summary.is_file() else {}
    root = data.get("root") if isinstance(data, dict) else None
    measured = root.get("diagnostics") if isinstance(root, dict) else None
    if not isinstance(measured, dict):
        return None
    try:
        return PowerFindings.of(measured)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["root.diagnostics", *map(str, first["loc"])])
        log.warning(
            "%s: %s: %s; it is left out (empo diagnose measures again)",
            summary,
            where,
            first["msg"],
        )
        return None


@contextmanager
def joined() -> Iterator[Peers | None]:
    """The processes that ``torchrun`` started; None where it started none."""
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield None
        return
    from empo_exact.parts.peers import joined as joined_peers

    with joined_peers() as peers:
        yield peers


def _world(world: WorldModel | None) -> WorldModel:
    if world is None:
        raise ConfigError(
            "algorithm 'exact' needs a world: add 'world_model' to the config, e.g. "
            "'world_model: multigrid/trivial' (see: empo worlds)"
        )
    return world
