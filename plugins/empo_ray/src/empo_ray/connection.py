"""The connection of this process to a cluster, which is shared by all its executors."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec

from empo_core.errors import WorkerError
from empo_core.interrupts import SIGNALS
from empo_ray.addresses import LOCAL

_PATIENCE_S = "3600"
"""Seconds for which Ray itself looks for a head that is gone, before it ends this process."""
_ANSWER_S = 1.0


class Connection:
    """A connection; ``close`` leaves the cluster, and ends one that was started here.

    Attributes:
        address: Address of the head.
        cpus: Number of processors.
        is_local: Whether the cluster was started here.
    """

    def __init__(self, address: str, object_store_mb: int | None) -> None:
        """Connect.

        Args:
            address: An allowed address.
            object_store_mb: Size of the object store of a local cluster in MiB; None: Ray's choice.

        Raises:
            WorkerError: if Ray is missing or refuses; its reason is in the message.
        """
        if find_spec("ray") is None:
            raise WorkerError("the executor 'ray' needs Ray 2.60: pip install 'ray==2.60.*'")
        self.is_local = address == LOCAL
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0"}
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", _PATIENCE_S)
        if self.is_local:
            # Ray's name for the choice between the loopback address and all addresses.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        import ray

        if ray.is_initialized():
            raise WorkerError("this process is connected to a cluster already; end that work first")
        store = object_store_mb and object_store_mb * 2**20
        options = {"include_dashboard": False, "object_store_memory": store}
        try:
            with _same_handlers():
                context = ray.init(
                    address=address, configure_logging=False, logging_level=logging.ERROR,
                    log_to_driver=False, **(options if self.is_local else {}),
                )  # fmt: skip
        except Exception as error:
            token = (
                ""
                if self.is_local
                else ". Does it ask for another token (RAY_AUTH_MODE, ~/.ray/auth_token)?"
            )
            reason = " ".join(f"{error}".split()) + token
            raise WorkerError(f"the cluster at {address!r} cannot be used: {reason}") from error
        self.address = str(context.address_info["gcs_address"])
        self._folder = str(context.address_info["session_dir"])
        self.cpus = float(ray.cluster_resources().get("CPU", 0.0))

    def answers(self) -> bool:
        """True if the head takes a connection."""
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Leave the cluster, and end one that was started here."""
        import ray

        with _same_handlers():
            ray.shutdown()
        if self.is_local:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def _same_handlers() -> Iterator[None]:
    """Keep the handlers of signals, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
