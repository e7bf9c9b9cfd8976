"""Speed of aggregation, against copying the same bytes.

Run ``python tests/benchmarks/bench_aggregation.py``. Items are spread over segments of eight on
average. Ratios compare best times within one run, so they carry over between machines better
than seconds do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Reduction, Segments
from empo_scatter_add.aggregator import ScatterAdd
from empo_scatter_add.plugin import ScatterAddParams

ITEMS = (1_000, 100_000, 10_000_000)
COLUMNS = (1, 8, 32)
ITEMS_PER_SEGMENT = 8
CASE_S = 2.0
"""The contenders of a case take turns for this long, at least five times each."""


def best_s(contenders: dict[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """The shortest time of each contender, after one call to warm up.

    They take turns, so that a busy moment of the machine does not hit one of them alone.
    """
    best = dict.fromkeys(contenders, float("inf"))
    begin, rounds = time.perf_counter(), -1
    while rounds < 5 or (time.perf_counter() - begin < CASE_S and rounds < 1000):
        rounds += 1
        # Each goes first in turn, for the next one finds the values in the cache.
        names = list(contenders)
        shift = rounds % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            contenders[name]()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if rounds:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def random_segments(items: int, device: torch.device) -> Segments:
    """Random lengths, some of them zero, as offsets."""
    generator = torch.Generator().manual_seed(0)
    number = items // ITEMS_PER_SEGMENT
    counts = torch.bincount(torch.randint(number, (items,), generator=generator), minlength=number)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return Segments.from_offsets(offsets.to(device))


def values_of(items: int, columns: int, device: torch.device) -> Tensor:
    """Random float32 values; a single column is one-dimensional."""
    generator = torch.Generator().manual_seed(2)
    shape = (items,) if columns == 1 else (items, columns)
    return torch.randn(shape, generator=generator).to(device)


def row(items: int, columns: int, segments: Segments, reduction: Reduction) -> list[str]:
    """Time one case and say how it went."""
    values = values_of(items, columns, segments.index.device)
    buffer = torch.empty_like(values)

    def reduce(aggregator: Aggregator) -> Callable[[], Tensor]:
        return lambda: aggregator(values, segments, reduction=reduction)

    contenders: dict[str, Callable[[], object]] = {
        "copy": lambda: buffer.copy_(values),
        "scatter-add": reduce(ScatterAdd(ScatterAddParams())),
    }
    best = best_s(contenders, values.device)
    copy, scatter_add = best["copy"], best["scatter-add"]
    return [
        f"{1e3 * copy:.3f}",
        f"{1e3 * scatter_add:.3f}",
        f"{scatter_add / copy:.1f}",
    ]


def table_for(device: torch.device) -> Table:
    """Time every case on one device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    title = f"Aggregation on {name}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    table = Table("items", "columns", "reduction", title=title)
    for heading in ("copy ms", "scatter-add ms", "x copy"):
        table.add_column(heading, justify="right")
    reductions: tuple[Reduction, ...] = ("sum", "mean")
    for items in ITEMS:
        segments = random_segments(items, device)
        for columns in COLUMNS:
            for reduction in reductions:
                numbers = row(items, columns, segments, reduction)
                table.add_row(f"{items:,}", str(columns), reduction, *numbers)
        table.add_section()
    return table


def main() -> None:
    """Print one table per device."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    console = Console(width=120)
    for device in devices:
        console.print(table_for(device))
    console.print("x copy: time as a multiple of copying the values into memory at hand.")


if __name__ == "__main__":
    main()
