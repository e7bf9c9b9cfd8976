"""The address of a cluster, and whether it may be used."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

from empo_core.errors import WorkerError

LOCAL, AUTO = "local", "auto"
_VARIABLE = "RAY_ADDRESS"
_CONNECT_S = 5.0


def allowed_address(address: str, allowed: Collection[str]) -> str:
    """The address to connect to, which is ``local``, ``auto`` or HOST:PORT.

    Raises:
        WorkerError: if the text is no address, was not allowed, or nothing answers there.
    """
    if address == LOCAL:
        return address
    if address == AUTO:
        address = os.environ.get(_VARIABLE, AUTO)
    source = f" (of {_VARIABLE})" if address == os.environ.get(_VARIABLE) else ""
    if address not in allowed:
        raise WorkerError(
            f"the cluster at {address!r}{source} is not among allow_addresses "
            f"({', '.join(allowed) or 'none'}). Whoever runs a cluster can run code in this "
            f"process, so write allow_addresses: [{address!r}] into the config file itself if "
            "you trust it."
        )
    if address != AUTO:
        _check_connection(address, source)
    return address


def _check_connection(address: str, source: str) -> None:
    host, _, port = address.rpartition(":")
    if "/" in address or not (host and port.isdecimal()):
        raise WorkerError(
            f"the address {address!r}{source} is not local, auto or HOST:PORT. Ray's client "
            "(ray://) is not used: start the run on a machine of the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise WorkerError(
            f"there is no cluster at {address}{source}: {error}. `ray start --head --port={port}` "
            "on that machine starts one; `ray status` there says whether one runs."
        ) from error
