"""The policy of a run as an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from empo_core.errors import ConfigError
from empo_core.experiment import Experiment
from empo_core.protocols import CheckpointChoice, EpisodePlayer

POLICY = "policy.onnx"


def export_run(
    run_dir: str | Path,
    output: str | Path | None = None,
    *,
    member: str | None = None,
    checkpoint: CheckpointChoice = "newest",
    env: Callable[[], object] | None = None,
) -> Path:
    """Write the policy that a run has learned, for programs without torch and EMPO.

    Args:
        run_dir: The run directory.
        output: The file; None: ``policy.onnx`` in the run directory.
        member: Name of the agent or task, where the environments have several; None: the first.
        checkpoint: Which weights of the run.
        env: Makes an environment, where the run was given one from Python.

    Returns:
        The file.

    Raises:
        ConfigError: if the path is no run directory, its policy has no ONNX form, there is no
            such agent or task, or the package ``onnx`` is missing.
        StorageError: if the run left nothing that can be loaded, or the file cannot be written.
    """
    run = Experiment.load(run_dir, env=env)
    path = run.directory / POLICY if output is None else Path(output)
    policies = run.policies(checkpoint)
    if isinstance(policies, EpisodePlayer):
        policies.export_onnx(path, member)
        return path
    if member is not None:
        raise ConfigError(f"{run_dir}: the robots act together; leave out member={member!r}")
    export_onnx = getattr(policies[0], "export_onnx", None)
    if export_onnx is None:
        raise ConfigError(
            f"{run_dir}: the policy of algorithm {run.config.algorithm.name!r} has no ONNX form: "
            f"{type(policies[0]).__name__} is no network"
        )
    export_onnx(path)
    return path
