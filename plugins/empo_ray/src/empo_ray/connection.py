"""The connection of a gateway to a cluster, which it starts where there is to be a local one."""

from __future__ import annotations

import logging
import os
import secrets

from empo_core.errors import WorkerError
from empo_ray.addresses import LOCAL
from empo_ray.messages import Settings
from empo_ray.reaper import start_reaper


def connect(settings: Settings) -> tuple[str, float]:
    """Connect, and return the address of the head and the number of processors.

    Raises:
        WorkerError: Ray refuses; its reason is in the message.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    local = settings.address == LOCAL
    if local:
        # Ray's name for the choice between the loopback address and all addresses.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    started = (
        {
            "include_dashboard": False,
            "object_store_memory": settings.object_store_mb and settings.object_store_mb * 2**20,
            "object_spilling_directory": settings.spill,
            "_temp_dir": settings.folder,
        }
        if local
        else {}
    )
    try:
        context = ray.init(
            address=settings.address, configure_logging=False, logging_level=logging.ERROR,
            log_to_driver=False, **started,
        )  # fmt: skip
    except Exception as error:
        token = (
            "" if local else ". Does it ask for another token (RAY_AUTH_MODE, ~/.ray/auth_token)?"
        )
        raise WorkerError(" ".join(f"{error}".split()) + token) from error
    if local:
        start_reaper([settings.folder, settings.spill])
    return context.address_info["gcs_address"], ray.cluster_resources().get("CPU", 0.0)


def disconnect() -> None:
    """Leave the cluster, and end one that was started here."""
    import ray

    ray.shutdown()
