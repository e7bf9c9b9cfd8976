"""The states of the global generators, so that a resumed run draws what it would have drawn."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from empo_core.random_streams import seed_globals

log = logging.getLogger("empo_core")


def capture(*, devices: bool = True) -> dict[str, Any]:
    """The states of the global generators of Python, numpy and torch, as checkpoints take them.

    Without ``devices`` those of CUDA are left out, and none is started.
    """
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if devices and torch.cuda.is_available() else []
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


def restore(state: Mapping[str, Any], *, devices: bool = True) -> None:
    """Set all generators to what ``capture`` returned."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(
        (numpy["kind"], keys, numpy["position"], numpy["has_gauss"], numpy["gauss"])
    )
    torch.set_rng_state(state["torch"])
    if not devices:
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != len(state["cuda"]):
        log.warning(
            "the checkpoint has random generators of %d CUDA devices and there are %d; "
            "what is drawn on them will differ",
            len(state["cuda"]),
            count,
        )
    for device, generator in enumerate(state["cuda"][:count]):
        torch.cuda.set_rng_state(generator, device)


@contextmanager
def seeded(sequence: np.random.SeedSequence) -> Iterator[None]:
    """Seed the global generators, and set them back at the end to what they were."""
    before = capture()
    seed_globals(sequence)
    try:
        yield
    finally:
        restore(before)
