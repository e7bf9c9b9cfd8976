"""The main example through the Python API, and a look at what it found.

Run it with ``python examples/solve_in_python.py``; arguments change the config as they do for
``empo run``, e.g. ``algorithm.params.theory.beta_r=5.0``.
"""

import sys
from pathlib import Path

import rich
import torch

import empo_core
from empo_exact.result import ExactResult

HERE = Path(__file__).parent


def main() -> None:
    """Run the config, then ask the result what a report does not say."""
    config = empo_core.load_config(HERE / "free_the_human.yaml", sys.argv[1:])
    result = empo_core.run(config)
    assert isinstance(result, ExactResult)  # What algorithm 'exact' returns.
    rich.print(result.report())

    spec, world = result.spec, result.problem.world
    robot, human = spec.robots[0], spec.humans[0]
    yard = next(i for i in spec.goals_of(human) if spec.goals[i].name == "yard")

    print("One episode in which the human is after the yard:")
    generator = torch.Generator().manual_seed(config.seed)
    for time, (state, actions) in enumerate(result.rollout(generator, goals={human: yard})):
        if actions is not None:
            doing = spec.agents[robot].actions[actions[robot]]
            values = result.at(state, time)
            print(
                f"{time:3} robot: {doing:8} X_h = {values.X_h[human]:.3f}  V_r = {values.V_r:.3f}"
            )

    chain = result.chain()
    visits = chain.event_probability(lambda rows: world.achieved(rows)[:, yard])
    print(f"A human with no goal in particular is in the yard sooner or later: {visits[0]:.1%}")


if __name__ == "__main__":
    main()
