"""The layouts of Disempower-Grid, and what some robots do to both humans in the smallest of them.

Run ``python examples/benchmarks/disempower_picture.py [PICTURE]``. It solves the layout with one
box in some seconds and draws ``disempower.png`` and ``.svg``, or the picture that is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from disempower_course import REFERENCES, Course  # noqa: E402
from disempower_settings import SETTINGS, Settings  # noqa: E402

from empo_benchmarks.disempower.params import DisempowerParams  # noqa: E402
from empo_benchmarks.disempower.world import load_world  # noqa: E402
from empo_core.config.files import read_yaml, validate_document  # noqa: E402
from empo_pictures.figures import new_figure, write_figure  # noqa: E402

NAMES = ("push_pull", "push_only", "move_any", "move_any_freeze")
PLAYED = "move_any_freeze"
PROXY = "mc_emp"
LABELS = {
    "idle": ("idle assistant", 8, 0, "left"),
    "random": ("random assistant", 8, -4, "left"),
    PROXY: ("exact mc_emp\nof the user", 0, 8, "center"),
    "user only beta_r 1000": ("power of the user", -7, -3, "right"),
    "EMPO xi 1 beta_r 1000": ("power of both: EMPO", 0, 8, "center"),
}
"""What robots are called in the picture, how far from their mark, and on which side."""


def main() -> None:
    """Play the robots, and draw."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "disempower.png")
    settings = validate_document(Settings, read_yaml(SETTINGS))
    steps, humans = settings.canonical[PLAYED].steps, next(iter(settings.humans))
    course = Course(settings, PLAYED, steps, humans)
    figure, axes = new_figure(columns=1 + len(NAMES), width=14, height=4)
    for panel, name in zip(axes, NAMES, strict=False):
        world = load_world(DisempowerParams(layout=name))
        panel.imshow(world.render(world.initial_state()))
        panel.set_title(name, fontsize=10)
        panel.set_axis_off()
    panel = axes[-1]
    for robot, score in course.scores(list(LABELS)):
        user, bystander = score.empowerment
        panel.plot(user, bystander, "s" if robot in REFERENCES else "o", linestyle="")
        label, right, up, side = LABELS[robot]
        panel.annotate(
            label, (user, bystander), (right, up), textcoords="offset points",
            fontsize=8, ha=side, linespacing=1.0,
        )  # fmt: skip
        print(f"{robot}: user {user:.3f}, bystander {bystander:.3f} bits")
    panel.set_xlim(-0.03, 0.38)
    panel.set_ylim(-0.02, 0.5)
    panel.set_title(PLAYED, fontsize=10)
    panel.set_xlabel("empowerment of the user, bits")
    panel.set_ylabel("of the bystander, bits")
    write_figure(figure, path)


if __name__ == "__main__":
    main()
