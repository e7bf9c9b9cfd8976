"""Worlds and algorithms of a sweep's trials, built without running them."""

from __future__ import annotations

from collections.abc import Sequence

from empo_core.components import build_algorithm, build_world
from empo_core.config.yaml import problems
from empo_core.errors import EmpoError
from empo_sweep.arms import Sweep, Trial, arm_text


def check_builds(sweep: Sweep, trials: Sequence[Trial]) -> None:
    """Build what the config of each arm names, equal worlds once.

    Raises:
        ConfigError: if a world or algorithm cannot be built, with a line for every such arm.
    """
    lines: list[str] = []
    reasons: dict[str, str | None] = {}
    arms = [trial.arm for trial in trials[:: len(sweep.seeds)]] or sweep.probes()
    for arm in arms:
        config = sweep.config_of(arm, sweep.seeds[0])
        builders = (config.world_model, build_world), (config.algorithm, build_algorithm)
        for ref, build in builders:
            if repr(ref) not in reasons:
                try:
                    build(config)
                    reasons[repr(ref)] = None
                except EmpoError as error:
                    reasons[repr(ref)] = str(error)
            if reason := reasons[repr(ref)]:
                lines.append(f"{arm_text(arm) or sweep.name}: {' '.join(reason.split())}")
    if lines:
        raise problems(lines)
