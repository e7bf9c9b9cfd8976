"""Training on: which params of a run may change when it goes on, and weights of another run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from empo_core.config import ConfigPath
from empo_core.errors import ConfigError
from empo_core.runs.directory import CONFIG, RESULTS
from empo_core.trees import JsonData

log = logging.getLogger(__name__)

TOTAL = "total_steps"
GROUP = "reporting."
MODEL = "model.safetensors"


def require_extension(
    changes: Mapping[str, tuple[JsonData, JsonData]],
    *,
    scheduled: Sequence[str] = (),
    fixed: Collection[str] = (),
) -> None:
    """Refuse all changes but more steps and other reports, which a learner goes on with exactly.

    A warning names the schedules that follow the share of ``total_steps`` that is done.

    Args:
        changes: As for ``Algorithm.require_extendable``.
        scheduled: Keys of params that depend on ``total_steps``.
        fixed: Keys of ``reporting`` that must stay.

    Raises:
        ConfigError: if something else changes, or there are fewer steps.
    """
    for key, (before, now) in changes.items():
        where = f"algorithm.params.{key}"
        if key != TOTAL and (not key.startswith(GROUP) or key in fixed):
            raise ConfigError(
                f"{where}: a run goes on with {before!r}, as it began (got {now!r}); what may "
                f"change is total_steps, which may grow, and {GROUP}*; for anything else start a "
                "new run, with 'initial: RUN' where it is to begin with the weights of this one"
            )
        if key == TOTAL and isinstance(before, int) and isinstance(now, int) and now < before:
            raise ConfigError(
                f"{where}: {now:,} is less than the {before:,} of this run, which can only grow"
            )
    if TOTAL in changes and scheduled:
        log.warning(
            "total_steps was %s and is %s: %s: these follow the share of it that is done, so from "
            "here on they are what they would be at this step of the longer run, which may be a "
            "jump; until here they were those of the shorter one",
            *changes[TOTAL],
            ", ".join(scheduled),
        )


def _model_file(path: Path) -> Path:
    """The saved model of a run, or the one that the path names.

    Raises:
        ValueError: if there is none.
    """
    if path.is_dir():
        model = path / RESULTS / MODEL
        if not (path / CONFIG).is_file():
            raise ValueError(f"{str(path)!r} is a folder, but no run directory: no {CONFIG}")
        if not model.is_file():
            raise ValueError(
                f"{str(path)!r} has no {RESULTS}/{MODEL}: the run has not finished, or its "
                f"algorithm saves none; finish it with: empo resume {path}"
            )
        return model
    if not path.is_file():
        raise ValueError(f"{str(path)!r} does not exist; name a run directory, or its {MODEL}")
    return path


InitialModel = Annotated[ConfigPath, AfterValidator(_model_file)]
"""A run directory, or its ``results/model.safetensors``; the latter, once validated."""
