"""Toy games in which a human's power wanders between levels; see ``empo_tabular.games``."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from empo_tabular.game_tables import Data, Probability, lottery, one_and_one
from empo_tabular.table import ANY, Table


def power_levels(
    name: str,
    options: Mapping[str, int],
    drift: Mapping[str, Mapping[str, Probability]],
    choices: Mapping[str, str],
    horizon: int,
) -> Table:
    """A robot's one choice among futures in which a human's power wanders between levels.

    In a mode with n options a perfectly rational human can go to any of them in one step,
    whatever the mode becomes meanwhile, so its power is n for any zeta and gamma_h if no mode
    with more options can follow. Where one can, the human also has some power over what it
    could attain then; a gamma_h near 0 makes its power n nevertheless.

    Args:
        name: Title of the game.
        options: The modes and how many options the human has in each.
        drift: From each mode the probabilities of the next one; the rest is staying.
        choices: The robot's actions at the start, and the mode that each leads to.
        horizon: Steps until the end; take many more than 1 / (1 - gamma_r).
    """
    max_options, min_options = (
        max(options.values()),
        min(options[mode] for mode in choices.values()),
    )
    picks = [f"pick_{i}" for i in range(1, max_options + 1)]
    lasting = next(iter(choices))
    chances = {mode: _with_rest(mode, drift.get(mode, {})) for mode in options}

    def step(mode: str, i: int) -> dict[str, str | float]:
        return lottery({f"{following}_{i}": p for following, p in chances[mode].items()})

    rules: list[dict[str, Data]] = [
        {"state": "start", "actions": [pick, action], "to": f"{mode}_{i}"}
        for action, mode in choices.items()
        for i, pick in enumerate(picks[:min_options], start=1)
    ]
    for mode, number in options.items():
        for i in range(1, max_options + 1):
            # An option that is gone cannot be kept: only the number of options shall count.
            stay = step(mode, i if i <= number else 1)
            rules.append({"state": f"{mode}_{i}", "actions": ["stay", ANY], "to": stay})
        states = [f"{mode}_{i}" for i in range(1, max_options + 1)]
        for i, pick in enumerate(picks[:number], start=1):
            rules.append({"state": states, "actions": [pick, ANY], "to": step(mode, i)})
    available: dict[str, Data] = {
        ANY: {"robot": lasting},
        "start": {"human": picks[:min_options], "robot": list(choices)},
    }
    for mode, number in options.items():
        for i in range(1, max_options + 1):
            available[f"{mode}_{i}"] = {"human": ["stay", *picks[:number]]}
    return one_and_one(
        name=name,
        human=["stay", *picks],
        robot=list(choices),
        states=["start", *(f"{mode}_{i}" for mode in options for i in range(1, max_options + 1))],
        terminal=[],
        transitions=rules,
        available=available,
        goals={pick: [f"{mode}_{i}" for mode in options] for i, pick in enumerate(picks, start=1)},
        horizon=horizon,
    )


def coma_pill(
    x: int = 2, v: int = 2, p: Probability = Fraction(1, 100), horizon: int = 400
) -> Table:
    """Should the robot give a pill that empowers but may end in a coma?

    Without it the human has power x for ever; with it x + v, but falls into a coma (power 1)
    with probability p per step. Giving it is better if and only if
    (x^a - (x + v)^a) / (1 - (x + v)^a) > p gamma / (1 - (1 - p) gamma), with a = -xi eta.
    """
    return power_levels(
        "coma pill",
        {"well": x, "dosed": x + v, "coma": 1},
        {"dosed": {"coma": p}},
        {"wait": "well", "give": "dosed"},
        horizon,
    )


def pause_destroy(
    x: int = 1,
    y: int = 4,
    p: Probability = Fraction(1, 10),
    q: Probability = Fraction(1, 10),
    horizon: int = 400,
) -> Table:
    """Should the robot leave a human the buttons that pause or destroy it?

    A running robot raises the human's power from x to y with probability p per step, for
    good. Each button that works adds 1 to the power: x or y with none, x + 1 or y + 1 with
    the destroy button only, x + 2 or y + 2 with both. A human with a destroy button destroys
    the robot by mistake with probability q per step, which leaves the power where it is (x or
    y, no buttons) for ever. A human with both also pauses the robot with probability q per
    step; it resumes the robot in the next step, and meanwhile nothing is improved.

    With no button the value is V = (-x^a + gamma p E(y)) / (1 - gamma (1 - p)), where E(n) =
    -n^a / (1 - gamma); with the destroy button only it is V = (-(x + 1)^a + gamma (p ((1 - q) H
    + q E(y)) + (1 - p) q E(x))) / (1 - gamma (1 - p) (1 - q)), where H = (-(y + 1)^a + gamma q
    E(y)) / (1 - gamma (1 - q)). Power counts options now, so take gamma_h near 0. At a = -xi
    eta = -1, gamma = .99, p = q = .01, y = 100 the robot keeps the button only for a human
    with almost no power: the threshold is x0* = 1.07.
    """
    up = Fraction(p) if isinstance(p, int) else p
    options: dict[str, int] = {}
    drift: dict[str, dict[str, Probability]] = {}
    pressing: dict[str, dict[str, Probability]] = {
        "none": {},
        "destroy": {"destroyed": q},
        "both": {"destroyed": q, "paused": (1 - q) * q},
    }
    for level, base in (("low", x), ("high", y)):
        options |= {
            f"{level}_none": base,
            f"{level}_destroyed": base,
            f"{level}_destroy": base + 1,
            f"{level}_both": base + 2,
            f"{level}_paused": base + 2,
        }
    for mode, pressed in pressing.items():
        after: dict[str, Probability] = {mode: 1 - sum(pressed.values()), **pressed}
        drift[f"low_{mode}"] = {
            f"{level}_{k}": chance * p_k
            for level, chance in (("low", 1 - up), ("high", up))
            for k, p_k in after.items()
        }
        drift[f"high_{mode}"] = {f"high_{k}": p_k for k, p_k in after.items()}
    drift |= {"low_paused": {"low_both": 1}, "high_paused": {"high_both": 1}}
    return power_levels(
        "pause and destroy buttons",
        options,
        drift,
        {"disable_both": "low_none", "keep_destroy": "low_destroy", "keep_both": "low_both"},
        horizon,
    )


def _with_rest(mode: str, drift: Mapping[str, Probability]) -> dict[str, Probability]:
    staying = 1 - sum(drift.values())
    return dict(drift) if mode in drift or staying == 0 else {**drift, mode: staying}
