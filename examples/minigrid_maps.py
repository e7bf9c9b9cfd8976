"""Maps of MiniGrid, and the worlds that they become; a robot is added to each.

Run it with ``python examples/minigrid_maps.py [PICTURE]`` where MiniGrid is installed. It prints
the sizes of the worlds and draws both, by default as ``minigrid_maps`` as PNG, SVG and PDF.
"""

import sys
from pathlib import Path

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import rich
from rich.table import Table

from empo_multigrid.file.minigrid import from_minigrid
from empo_multigrid.world import world_from_text
from empo_pictures.figures import new_figure, write_figure

# Seeds that draw the maps, and the robots' cells.
MAPS = {
    "DoorKey-6x6": (1, (1, 2)),
    "FourRooms": (0, (12, 12)),
    "LavaGapS5": (0, (1, 3)),
    "KeyCorridorS3R2": (0, (3, 3)),
}


def main() -> None:
    """Take over, print and draw all maps."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "minigrid_maps.png")
    table = Table("map", "goals", "joint actions", "agents")
    figure, axes = new_figure(2, len(MAPS), width=3 * len(MAPS), height=6)
    for column, (name, (seed, robot)) in enumerate(MAPS.items()):
        env = gymnasium.make(f"MiniGrid-{name}-v0", render_mode="rgb_array", highlight=False)
        env.reset(seed=seed)
        world = world_from_text(from_minigrid(env, robot=robot))
        agents = ", ".join(agent.name for agent in world.spec.agents)
        table.add_row(name, str(len(world.spec.goals)), str(world.spec.num_joint_actions), agents)
        for row, picture in enumerate([env.render(), world.render(world.initial_state())]):
            axes[row * len(MAPS) + column].imshow(picture)
            axes[row * len(MAPS) + column].set_axis_off()
        axes[column].set_title(name)
    rich.print(table)
    write_figure(figure, path)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
