"""The states of the global generators, so that a resumed run draws what it would have drawn."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

log = logging.getLogger("empo_core")


def capture() -> dict[str, Any]:
    """The states of the global generators of Python, numpy and torch, as checkpoints take them."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "kind": str(kind),
            "keys": torch.tensor(np.asarray(keys).tolist(), dtype=torch.int64),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(cached),
        },
        "torch": torch.get_rng_state(),
        "cuda": list(cuda),
    }


def restore(state: Mapping[str, Any]) -> None:
    """Set all generators to what ``capture`` returned."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(
        (numpy["kind"], keys, numpy["position"], numpy["has_gauss"], numpy["gauss"])
    )
    torch.set_rng_state(state["torch"])
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices != len(state["cuda"]):
        log.warning(
            "the checkpoint has random generators of %d CUDA devices and there are %d; "
            "what is drawn on them will differ",
            len(state["cuda"]),
            devices,
        )
    for device, generator in enumerate(state["cuda"][:devices]):
        torch.cuda.set_rng_state(generator, device)
