"""Episodes that a latent agent loses, and what it thinks of the states in which they end.

    OMP_NUM_THREADS=1 python tests/benchmarks/lost_episodes.py MODEL [--actor policy]

MODEL is what a run leaves in ``results/model.safetensors``, or ``latent_curves.py`` in its folder
of runs. Whole episodes are played as in evaluations; those with a return below ``--below`` are
lost, and those that have no reward in their first ``--late`` steps, but then enough, are late. The
table has them beside the others: medians, and the least and the greatest in brackets.

``--training CHECKPOINTS`` adds a table of the newest ``--episodes`` whole episodes of training, of
those that the replay of the newest checkpoint in this folder holds (of one environment).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_latent.environments.tasks import tasks_of
from empo_latent.episode_recorder import RecordedEpisode
from empo_latent.evaluation import Recording
from empo_latent.modelfile import LoadedModel, load_model
from empo_latent.player import LatentPlayer
from empo_learning.checkpoint import Checkpoints

COLUMNS = (
    "return",
    "value of the first state",
    "value at the end",
    "reward foreseen",
    "reward",
    "movement",
    "steps before a reward",
)
"""Numbers of one episode; from the third to the sixth of its end: the value of the last state and
the reward that the model foresees there, what the last step paid, and by how much it changed any
number that is seen."""
RETURN, WAIT = 0, -1
"""Columns that say how an episode went, the only ones of episodes of training."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parsed command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", type=Path)
    add("--actor", choices=("planner", "policy"), default="planner")
    add("--episodes", type=int, default=100)
    add("--seed", type=int, default=0)
    add("--below", type=float, default=100.0, help="return of an episode that is lost")
    add("--late", type=int, default=50, help="steps without a reward in an episode that is late")
    add("--horizon", type=int, help="steps of a plan, where not as many as in training")
    add("--training", type=Path, help="folder of checkpoints: look at episodes of training, too")
    return parser.parse_args(given)


def played(loaded: LoadedModel, options: argparse.Namespace) -> list[RecordedEpisode]:
    """Episodes of the task that the model learned."""
    params = loaded.params
    actor = params.reporting.model_copy(update={"evaluate": [options.actor]})
    horizon = options.horizon or params.planner.horizon
    planner = params.planner.model_copy(update={"horizon": horizon})
    params = params.model_copy(update={"reporting": actor, "planner": planner})
    player = LatentPlayer(params, tasks_of(params, None), loaded.model)
    episodes: list[RecordedEpisode] = []
    recording = Recording(episodes=episodes)
    player.evaluations(episodes=options.episodes, seed=options.seed, recording=recording)
    return episodes


@torch.no_grad()
def numbers(loaded: LoadedModel, episodes: Sequence[RecordedEpisode]) -> np.ndarray:
    """One row per episode, as ``COLUMNS`` says."""
    model = loaded.model

    def judged(place: int) -> tuple[np.ndarray, np.ndarray]:
        z = model.encode(torch.from_numpy(np.stack([one.observation[place] for one in episodes])))
        policy = model.policy(z)
        action = policy.bounded(policy.mode)
        value, reward = model.value(z, action).mean(0), model.reward(z, action).mean(0)
        return value[:, 0].numpy(), reward[:, 0].numpy()

    first, _ = judged(0)
    last, foreseen = judged(-1)
    returns, waits = np.array([return_and_wait(one.reward) for one in episodes]).T
    came = np.array([one.reward[-1] for one in episodes])
    moved = np.array([np.abs(np.diff(one.observation[-2:], axis=0)).max() for one in episodes])
    return np.stack([returns, first, last, foreseen, came, moved, waits], axis=1)


def return_and_wait(reward: np.ndarray) -> tuple[float, int]:
    """The return of an episode, and its number of steps before the first reward."""
    paid = np.flatnonzero(reward)
    return float(reward.sum()), int(paid[0]) if len(paid) else len(reward)


def trained(checkpoints: Path, episodes: int, *, actions: int) -> np.ndarray:
    """One row per newest whole episode of training: return, and steps before a reward.

    Rows of the replay have as many ``actions`` as an action has numbers, and then the reward.
    """
    found = Checkpoints(checkpoints).newest()
    if found is None:
        raise SystemExit(f"{checkpoints}: has no checkpoint")
    replay = found[1]["learner"]["replay"]
    if replay is None:
        raise SystemExit(f"{checkpoints}: has no replay; runs keep it by reporting.keep_replay")
    ring, *others = replay["rows"]
    if others:
        raise SystemExit(f"{checkpoints}: {len(others) + 1} environments; this looks at one")
    reward, begins = ring["steps"][:, actions].numpy(), np.flatnonzero(ring["first"].numpy())
    whole = [reward[begin + 1 : end] for begin, end in pairwise(begins)]
    if not whole:
        raise SystemExit(f"{checkpoints}: no episode of training has ended yet")
    return np.array([return_and_wait(each) for each in whole[-episodes:]])


def table(rows: np.ndarray, *, below: float, late: int, columns: Sequence[str] = COLUMNS) -> Table:
    """Lost episodes, late ones and others."""
    found = Table("episodes", "how many", *columns)
    lost = rows[:, RETURN] < below
    waited = ~lost & (rows[:, WAIT] >= late)
    for name, of in (("lost", lost), ("late", waited), ("others", ~lost & ~waited)):
        own = rows[of]
        cells = [f"{np.median(x):.3g} [{x.min():.3g}, {x.max():.3g}]" for x in own.T if len(own)]
        found.add_row(name, str(len(own)), *cells)
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Play, and print the table."""
    options = arguments(given)
    torch.set_num_threads(1)
    loaded = load_model(options.model)
    if len(loaded.spec.tasks) > 1:
        raise SystemExit(f"{options.model} learned several tasks; this looks at one")
    rows, console = numbers(loaded, played(loaded, options)), Console(width=180)
    error = rows[:, 0].std(ddof=int(len(rows) > 1)) / len(rows) ** 0.5
    returns = f"mean return {rows[:, 0].mean():.0f} ± {error:.0f}"
    console.print(f"{loaded.spec.tasks[0]}, the {options.actor} acts: {returns}")
    console.print(table(rows, below=options.below, late=options.late))
    if options.training:
        rows = trained(options.training, options.episodes, actions=loaded.spec.actions)
        console.print(f"{len(rows)} episodes of training: mean return {rows[:, RETURN].mean():.0f}")
        columns = (COLUMNS[RETURN], COLUMNS[WAIT])
        console.print(table(rows, below=options.below, late=options.late, columns=columns))


if __name__ == "__main__":
    main()
