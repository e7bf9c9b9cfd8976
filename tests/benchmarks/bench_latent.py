"""Cost of updates and plans of algorithm ``latent``, against plain loops and bare arithmetic.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_latent.py [--sizes 1M 5M] [--compile]
    python tests/benchmarks/bench_latent.py --device cuda --compile

One observation has 17 numbers, one action 6; batches have 256 sequences of 3 steps (size
``tiny``: 64). The limit is the time of the arithmetic alone: the operations that matrix products
have, counted, at the greatest rate at which this machine multiplies matrices of float32 in the same
run.

``plain`` does the same in plain torch (``reference_latent_updater``, in the plugin's tests) without
what makes it fast: it loops over heads, values every start once for each of its candidates,
evaluates value heads that are not needed, and has torch's default Adam. First both are shown to
agree, in float64 and without dropout.

On the CPU, times are processor time of one thread; on CUDA what passes until the device is done,
and ``--compile`` means CUDA graphs, too. All are the least of several, taken in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from empo_core.components import build
from empo_latent import update
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_latent.presets import SIZES
from empo_latent.types import MultiTaskSpec, SequenceBatch
from empo_latent.update import Updater
from empo_learning.allocator import keep_freed_memory
from empo_learning.timers import Timers

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "empo_latent" / "tests"))


from reference_latent_updater import LoopUpdater, loop_model

from empo_core.types import LossNeeds
from empo_svg.loss import Svg

WORDS, ACTIONS, DISCOUNT = 17, 6, 0.99
SPEC = MultiTaskSpec(
    words=WORDS,
    pictures=False,
    shape=(WORDS,),
    actions=ACTIONS,
    active=((True,) * ACTIONS,),
    tasks=("any",),
    action_repeats=(1,),
    episode_lengths=(1000,),
)
SQUARES = (512, 1024, 2048)
"""Sides of matrices that the machine's rate is measured with."""
PARTS: Mapping[str, tuple[Any, str]] = {
    "encode": (LatentModel, "encode"),
    "latent rollout": (update, "latent_rollout"),
    "reward loss": (update, "reward_errors"),
    "candidates": (update, "imagine"),
    "step of candidates": (update, "one_step"),
    "targets": (update, "action_values"),
    "value loss": (update.Estimates, "errors"),
    "policy loss": (Updater, "policy_loss"),
    "backward": (Tensor, "backward"),
    "clip gradients": (nn.utils, "clip_grad_norm_"),
    "Adam": (torch.optim.Adam, "step"),
    "running averages": (LatentModel, "update_targets"),
}
"""Stages of an update, and the functions that they consist of."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """An agent whose update is measured.

    Attributes:
        size: Size of its networks.
        loss: What its policy learns from.
        candidates: Actions tried at each start.
        batch: Sequences of a batch.
    """

    size: str
    loss: str
    candidates: int
    batch: int

    def params(self, **groups: Any) -> LatentParams:
        """Its parameters, with further groups."""
        return LatentParams.model_validate(
            {
                "size": self.size,
                "total_steps": 1,
                "tasks": ["gymnasium/Pendulum-v1"],
                "policy_loss": self.loss,
                "imagination": {"candidates": self.candidates},
                "replay": {"batch_size": self.batch},
                **groups,
            }
        )


class Agent:
    """Model, updater and planner, ours or the plain reference."""

    def __init__(
        self, params: LatentParams, *, plain: bool = False, dtype: torch.dtype = torch.float32
    ) -> None:
        device = torch.device(params.compute.device)
        generator = torch.Generator().manual_seed(0)
        model = LatentModel(params, SPEC, generator=generator).to(device, dtype)
        with torch.no_grad():  # Heads are 0 at first, and would agree on that.
            for weight in model.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=dtype)
                weight.add_(0.02 * noise.to(device))
        losses = {"policy": build(params.policy_loss)}
        discounts = torch.tensor([DISCOUNT], device=device)
        if plain:
            model = loop_model(model, params.imagination.candidates or 1)
        self.model = model
        make = LoopUpdater if plain else Updater
        self.updater = make(model, losses, params, discounts)
        self.planner = Planner(
            model,
            params.planner,
            horizon=params.learning.horizon,
            discount=DISCOUNT,
            critic=params.value.critic,
            value_heads=params.value.heads,
            compiled=params.compute.compile,
        )
        self._mean = torch.zeros(self.planner.horizon, 1, ACTIONS, device=device, dtype=dtype)

    def update(self, sequences: SequenceBatch) -> dict[str, Tensor]:
        """One update in the middle of a run."""
        return self.updater.update(sequences, 0.5)

    @torch.no_grad()
    def plan(self, sequences: SequenceBatch) -> Tensor:
        """One plan for one environment, and encoding what it sees."""
        z = self.model.encode(sequences.observation[0, :1])
        return self.planner.plan(z, self._mean, task=None, explore=True).mean


class Clock:
    """Takes the time of calls: a processor's, or what passes until a CUDA device is done."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        """Spend about so many seconds on each comparison."""
        self.cuda, self._seconds = device.type == "cuda", seconds
        self._now = time.perf_counter if self.cuda else time.process_time

    def ms(self, call: Call) -> float:
        """Duration of a call in milliseconds."""
        self.wait()
        began = self._now()
        call()
        self.wait()
        return 1e3 * (self._now() - began)

    def best(self, contenders: Mapping[str, Call]) -> dict[str, float]:
        """The least time of each, in turns."""
        rounds, end = 0, time.perf_counter() + self._seconds
        found = dict.fromkeys(contenders, float("inf"))
        # Compiling, and recording CUDA graphs, happen in the first rounds.
        while rounds < (20 if self.cuda else 3) or time.perf_counter() < end:
            for name, call in contenders.items():
                found[name] = min(found[name], self.ms(call))
            rounds += 1
        return found

    def wait(self) -> None:
        """Until the device is done."""
        if self.cuda:
            torch.cuda.synchronize()


class Counting(TorchDispatchMode):
    """Counts tensor operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def counted(call: Call) -> tuple[float, int]:
    """Giga-operations of matrix products in a call, and how many tensor operations it has."""
    with FlopCounterMode(display=False) as flops, Counting() as operations:
        call()
    return flops.get_total_flops() / 1e9, operations.count


def experience(
    batch: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> SequenceBatch:
    """Random sequences of three steps."""
    normal = partial(torch.randn, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return SequenceBatch(
        normal((4, batch, WORDS)),
        normal((3, batch, ACTIONS)).tanh(),
        normal((3, batch, 1)),
        torch.zeros(3, batch, 1, dtype=dtype),
    ).to(device)


def difference(case: Case) -> float:
    """The greatest relative difference of anything between our updates and plans and plain ones."""
    groups = {"value": {"dropout": 0.0}}
    sequences, both = experience(4, torch.device("cpu"), torch.float64), []
    for plain in (False, True):
        agent = Agent(case.params(**groups), plain=plain, dtype=torch.float64)
        torch.manual_seed(2)
        found = [sorted(agent.update(sequences).items()) for _ in range(2)]
        numbers = [torch.stack([number.double() for _, number in each]) for each in found]
        both.append(torch.cat([*numbers, agent.plan(sequences).flatten()]))
    ours, theirs = both
    return float(((ours - theirs).abs() / theirs.abs().clamp(min=1e-3)).max())


@dataclass
class Row:
    """Measurements of an update or a plan."""

    name: tuple[str, ...]
    gigaflop: Mapping[str, float]
    operations: int
    ms: Mapping[str, float]


class Bench:
    """Measures, and remembers the greatest rate seen."""

    def __init__(self, device: torch.device, seconds: float, compiles: bool) -> None:
        self._device, self._clock, self._compiles = device, Clock(device, seconds), compiles
        self.gigaflops = 0.0

    def squares(self) -> None:
        """Measure how fast matrices are multiplied."""
        for side in SQUARES:
            a, b, out = (torch.randn(side, side, device=self._device) for _ in range(3))
            times = [self._clock.ms(partial(torch.mm, a, b, out=out)) for _ in range(8)]
            self.gigaflops = max(self.gigaflops, 2e-6 * side**3 / min(times))

    def update(self, case: Case) -> Row:
        """An update."""
        return self._compared(case, "update", (case.size, case.loss, str(case.candidates)), {})

    def plan(self, case: Case, value_heads: int | None) -> Row:
        """A plan that so many value heads judge."""
        name = (case.size, str(value_heads or "all"))
        return self._compared(case, "plan", name, {"planner": {"value_heads": value_heads}})

    def _compared(self, case: Case, method: str, name: tuple[str, ...], groups: Any) -> Row:
        sequences = experience(case.batch, self._device)
        calls: dict[str, Call] = {}
        for actor in ("ours", "plain", *(["compiled"] if self._compiles else [])):
            compute = {"device": str(self._device), "compile": actor == "compiled"}
            agent = Agent(case.params(compute=compute, **groups), plain=actor == "plain")
            calls[actor] = partial(getattr(agent, method), sequences)
        (ours, operations), (plain, _) = counted(calls["ours"]), counted(calls["plain"])
        self.squares()
        times = self._clock.best(calls)
        return Row(name, {"ours": ours, "plain": plain}, operations, times)

    def stages(self, case: Case, updates: int = 3) -> dict[str, float]:
        """Shares of the stages of our update."""
        timers = Timers(self._device, clock=time.process_time)
        sequences = experience(case.batch, self._device)
        with staged(timers):
            agent = Agent(case.params(compute={"device": str(self._device)}))
            agent.update(sequences)
            timers.lap()
            whole = sum(self._clock.ms(partial(agent.update, sequences)) for _ in range(updates))
        found = {name: 1e3 * seconds / whole for name, seconds in timers.lap().items()}
        return {**found, "the rest": 1 - sum(found.values())}

    def unread(self, size: str) -> str:
        """How long updates by ``svg`` take with critic ``q``, and with targets nothing reads."""
        calls: dict[str, Call] = {}
        for name in ("with", "without"):
            needs = LossNeeds(critic=True, targets=name == "with")
            with mock.patch.object(Svg, "needs", needs):
                agent = Agent(Case(size, "svg", 1, 64).params(value={"critic": "q"}))
            calls[name] = partial(agent.update, experience(64, torch.device("cpu")))
        found = self._clock.best(calls)
        return ", ".join(f"{name} unread targets {ms:.1f} ms" for name, ms in found.items())

    def adam(self, size: str) -> dict[str, float]:
        """Milliseconds of a step of each kind of Adam, for all weights of a model."""
        groups = Agent(Case(size, "svg", 1, 1).params()).model.groups()
        every = list(itertools.chain.from_iterable(groups.values()))
        calls: dict[str, Call] = {}
        for kind in ("fused", "foreach", "for-loop"):
            weights = [each.detach().to(self._device, copy=True) for each in every]
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            options = {"foreach": False} if kind == "for-loop" else {kind: True}
            calls[kind] = torch.optim.Adam(weights, **options).step
        return {"weights": float(sum(each.numel() for each in weights)), **self._clock.best(calls)}

    def top(self, case: Case, rows: int) -> str:
        """Which tensor operations of our update take most of the time."""
        sequences = experience(case.batch, self._device)
        agent = Agent(case.params(compute={"device": str(self._device)}))
        agent.update(sequences)
        with torch.profiler.profile() as profiler:
            for _ in range(3):
                agent.update(sequences)
            self._clock.wait()
        by = "self_cuda_time_total" if self._clock.cuda else "self_cpu_time_total"
        return profiler.key_averages().table(sort_by=by, row_limit=rows, max_name_column_width=40)


@contextlib.contextmanager
def staged(timers: Timers) -> Iterator[None]:
    """Let timings measure the parts of updates."""

    def measured(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with timers(name):
                return function(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name, (owner, attribute) in PARTS.items():
            instead = measured(name, getattr(owner, attribute))
            stack.enter_context(mock.patch.object(owner, attribute, instead))
        yield


def table(title: str, rows: list[Row], names: tuple[str, ...], gigaflops: float) -> Table:
    """Table of measurements, beside the limit and the plain version."""
    compiled = ["compiled ms", "x limit"] if "compiled" in rows[0].ms else []
    found = Table(title=title)
    for heading in (*names, "GFLOP", "operations", "limit ms", "ms", "x limit", *compiled,
                    "plain GFLOP", "plain ms", "plain / ours"):  # fmt: skip
        found.add_column(heading, justify="right")
    for row in rows:
        ours, plain, limit = row.ms["ours"], row.ms["plain"], 1e3 * row.gigaflop["ours"] / gigaflops
        cells = [f"{row.gigaflop['ours']:.2f}", f"{row.operations:,}", f"{limit:.1f}"]
        for actor in ("ours", "compiled"):
            if actor in row.ms:
                cells += [f"{row.ms[actor]:.1f}", f"{row.ms[actor] / limit:.2f}"]
        cells += [f"{row.gigaflop['plain']:.2f}", f"{plain:.1f}", f"{plain / ours:.2f}"]
        found.add_row(*row.name, *cells)
    return found


def cases_of(size: str, candidates: int | None, batch: int | None) -> list[Case]:
    """The agents of a size."""
    small = size == "tiny"
    sequences, many = batch or (64 if small else 256), candidates or (8 if small else 16)
    return [Case(size, "svg", 1, sequences), Case(size, "awr", many, sequences)]


def side_tables(bench: Bench, cases: list[Case], sizes: list[str]) -> Iterator[Table]:
    """Kinds of Adam, and shares of stages."""
    kinds = Table(title="A step of Adam, ms")
    for heading in ("size", "weights", "fused", "foreach", "for-loop"):
        kinds.add_column(heading, justify="right")
    for size in sizes:
        weights, *times = bench.adam(size).values()
        kinds.add_row(size, f"{weights:,.0f}", *(f"{ms:.2f}" for ms in times))
    yield kinds
    shares = Table(title="Where the time of updates goes, %")
    shares.add_column("stage")
    found = []
    for case in cases:
        shares.add_column(f"{case.size} {case.loss} {case.candidates}", justify="right")
        found.append(bench.stages(case))
    for stage in (*PARTS, "the rest"):
        shares.add_row(stage, *(f"{100 * each.get(stage, 0.0):.1f}" for each in found))
    yield shares


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["1M", "5M"])
    parser.add_argument("--candidates", type=int, help="of loss awr")
    parser.add_argument("--batch", type=int, help="sequences")
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--compile", action="store_true", help="measure compiled ones, too")
    parser.add_argument("--seconds", type=float, default=3, help="spent on each comparison")
    parser.add_argument("--top", type=int, default=0, help="show so many tensor operations")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    console = Console(width=140)
    bench = Bench(options.device, options.seconds, options.compile)
    bench.squares()
    cases = [
        case for size in options.sizes for case in cases_of(size, options.candidates, options.batch)
    ]
    apart = max(difference(case) for case in cases)
    console.print(f"Greatest relative difference from the plain version, in float64: {apart:.1e}")
    if apart > 1e-6:
        raise SystemExit("they do not compute the same: times would say nothing")
    updates, plans = [], []
    for case in cases:
        updates.append(bench.update(case))
        if case.loss == "svg":
            heads = case.params().value.heads
            plans += [bench.plan(case, some) for some in ([None, 2] if heads > 2 else [None])]
    rate = f"limit: {bench.gigaflops:,.0f} GFLOP/s, {options.device}"
    names = ("size", "loss", "candidates")
    console.print(table(f"Updates ({rate})", updates, names, bench.gigaflops))
    console.print(table(f"Plans ({rate})", plans, ("size", "value heads"), bench.gigaflops))
    for each in side_tables(bench, cases, options.sizes):
        console.print(each)
    for size in options.sizes:
        console.print(f"{size} svg, critic q: {bench.unread(size)}")
    for case in cases if options.top else []:
        console.print(str(case))
        console.print(bench.top(case, options.top), highlight=False)


if __name__ == "__main__":
    main()
