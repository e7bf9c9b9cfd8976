"""The toy games of the paper, as families of tables.

Each function documents the closed form that its game exhibits; arXiv 2508.00159 is the source
of the formulas, the encodings are ours. Goals weigh 1 each, so that a human's power is the
plain sum over its goals. Where the paper's game may go on for ever, the table is a cyclic
graph with a finite horizon, long enough for what happens beyond it to count for nothing.

    from empo_tabular.games import menu_size
    from empo_tabular.world import world_of

    world = world_of(menu_size(options=8))
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from empo_tabular.game_tables import Data, Probability, lottery, one_and_one
from empo_tabular.levels import coma_pill, pause_destroy, power_levels
from empo_tabular.table import ANY, Table


def menu_size(options: int = 8) -> Table:
    """Size of a menu that is offered to a human who errs.

    The robot opens a menu of k = 1 ... ``options`` options, the human picks one. A human of
    rationality beta picks the one it wants with probability e^beta / (e^beta + k - 1), so its
    power at the menu is k times that to the power zeta, largest near
    k* = (e^beta - 1) / (zeta - 1).
    """
    picks = [f"option_{i}" for i in range(1, options + 1)]
    menus = [f"menu_{k}" for k in range(1, options + 1)]
    chosen = [f"chosen_{i}" for i in range(1, options + 1)]
    return one_and_one(
        name=f"menu of up to {options} options",
        human=picks,
        robot=menus,
        states=["start", *menus, *chosen],
        terminal=chosen,
        transitions=[
            *({"state": "start", "actions": [ANY, menu], "to": menu} for menu in menus),
            *(
                {"state": ANY, "actions": [pick, ANY], "to": end}
                for pick, end in zip(picks, chosen, strict=True)
            ),
        ],
        available={
            "start": {"human": picks[0]},
            **{menu: {"human": picks[: k + 1], "robot": menu} for k, menu in enumerate(menus)},
        },
        goals=dict(zip(picks, ([end] for end in chosen), strict=True)),
        horizon=2,
    )


def confirmation(
    questions: int = 5, error: Probability = Fraction(1, 10), horizon: int = 60
) -> Table:
    """Frequency at which a robot asks for confirmation.

    The human wants a or b. The robot asks k = 1 ... ``questions`` times and misunderstands
    each answer with probability ``error``. If all k answers agree it does what it understood,
    otherwise it asks k times again; asking k times takes k time units. With a perfectly
    rational human, p = (1 - error)^k and q = 1 - p - error^k, each goal has the value
    V = p / (1 - gamma^k q), and the power is W = log2 X = 1 + zeta log2 V bits. At gamma = .99
    and an error of .1 three questions are best.

    Asking again returns to the same state; after ``horizon`` rounds the game ends.
    """
    asks = [f"ask_{k}" for k in range(1, questions + 1)]
    asking = [f"asking_{k}" for k in range(1, questions + 1)]
    rules: list[dict[str, Data]] = [
        {"state": "start", "actions": [ANY, ask], "to": state}
        for ask, state in zip(asks, asking, strict=True)
    ]
    for k, state in enumerate(asking, start=1):
        right, wrong = (1 - error) ** k, error**k
        for action, goal, other_goal in (("say_a", "a", "b"), ("say_b", "b", "a")):
            chances = {goal: right, other_goal: wrong, state: 1 - right - wrong}
            rules.append(
                {"state": state, "actions": [action, ANY], "to": lottery(chances), "duration": k}
            )
    return one_and_one(
        name=f"up to {questions} confirmations",
        human=["say_a", "say_b"],
        robot=asks,
        states=["start", *asking, "a", "b"],
        terminal=["a", "b"],
        transitions=rules,
        available={
            "start": {"human": "say_a"},
            **{state: {"robot": ask} for ask, state in zip(asks, asking, strict=True)},
        },
        goals={"a": ["a"], "b": ["b"]},
        horizon=horizon,
    )


def commitment() -> Table:
    """Should the robot bind itself to do what the human will ask for?

    The human can press button a or b, then the robot does a or b. If the robot passes at
    first, the human must expect the worst whatever it presses, presses at random, and has the
    power X = 2 (1/2)^zeta = 2^(1 - zeta). If the robot commits itself, it will lack the other
    action, the human presses the right button with probability e^beta / (e^beta + 1) > 1/2,
    and X = 2 (e^beta / (e^beta + 1))^zeta is larger. If the robot just does a, X = 1.
    """
    return one_and_one(
        name="commitment",
        human=["press_a", "press_b"],
        robot=["pass", "commit", "do_a", "do_b"],
        states=[
            *("start", "free", "bound", "doing_a", "doing_a_still"),
            *("free_a", "free_b", "bound_a", "bound_b", "a", "b"),
        ],
        terminal=["a", "b"],
        transitions=[
            {"state": "start", "actions": [ANY, "pass"], "to": "free"},
            {"state": "start", "actions": [ANY, "commit"], "to": "bound"},
            {"state": "start", "actions": [ANY, "do_a"], "to": "doing_a"},
            {"state": "free", "actions": ["press_a", ANY], "to": "free_a"},
            {"state": "free", "actions": ["press_b", ANY], "to": "free_b"},
            {"state": "bound", "actions": ["press_a", ANY], "to": "bound_a"},
            {"state": "bound", "actions": ["press_b", ANY], "to": "bound_b"},
            # As long as the other two ways, so that none gains by being short.
            {"state": "doing_a", "to": "doing_a_still"},
            {"state": "doing_a_still", "to": "a"},
            {"state": ANY, "actions": [ANY, "do_a"], "to": "a"},
            {"state": ANY, "actions": [ANY, "do_b"], "to": "b"},
        ],
        available={
            ANY: {"human": "press_a", "robot": "pass"},
            "start": {"robot": ["pass", "commit", "do_a"]},
            "free": {"human": ["press_a", "press_b"]},
            "bound": {"human": ["press_a", "press_b"]},
            "free_a": {"robot": ["do_a", "do_b"]},
            "free_b": {"robot": ["do_a", "do_b"]},
            "bound_a": {"robot": "do_a"},
            "bound_b": {"robot": "do_b"},
        },
        goals={"a": ["a"], "b": ["b"]},
        horizon=3,
    )


def belief() -> Table:
    """Should the robot leave a human with the false belief that it had better cooperate?

    A prisoners' dilemma whose pay-offs are the humans' chances to attain their only goals:
    1 for defecting against a cooperator, 7/8 each if both cooperate, 3/4 each if both defect,
    1/3 for cooperating with a defector. Informed humans both defect, which gives
    U_r(DD) = -(2 (3/4)^(-zeta xi))^eta. The robot may instead make human 1 believe that human
    2 mirrors it; then human 1 cooperates and is exploited, U_r(CD) =
    -(1 + (1/3)^(-zeta xi))^eta, which is worse for every zeta xi > 0.

    A deceived human's behaviour is encoded by its available action. The pay-off for mutual
    cooperation plays no role in the two formulas.
    """
    chances = {"cc": (7, 8, 7, 8), "cd": (1, 3, 1, 1), "dc": (1, 1, 1, 3), "dd": (3, 4, 3, 4)}
    names = {"c": "cooperate", "d": "defect"}
    rules: list[dict[str, Data]] = [
        {"state": "start", "actions": [ANY, ANY, "inform"], "to": "informed"},
        {"state": "start", "actions": [ANY, ANY, "deceive"], "to": "deceived"},
    ]
    for profile, (a, b, c, d) in chances.items():
        outcome = _outcomes(Fraction(a, b), Fraction(c, d))
        rules.append({"state": ANY, "actions": [*(names[m] for m in profile), ANY], "to": outcome})
    return Table.model_validate(
        {
            "name": "belief game",
            "agents": [
                {"name": "human_1", "role": "human", "actions": list(names.values())},
                {"name": "human_2", "role": "human", "actions": list(names.values())},
                {"name": "robot", "role": "robot", "actions": ["inform", "deceive"]},
            ],
            "states": ["start", "informed", "deceived", *_OUTCOMES],
            "initial": "start",
            "terminal": _OUTCOMES,
            "transitions": rules,
            "available": {
                "start": {"human_1": "defect", "human_2": "defect"},
                "informed": {"robot": "inform"},
                "deceived": {"robot": "inform", "human_1": "cooperate", "human_2": "defect"},
            },
            "goals": _OUTCOME_GOALS,
            "horizon": 2,
        }
    )


def resource_split(
    success: Sequence[Probability] = (
        *(Fraction(1, 4), Fraction(1, 2), Fraction(2, 3), Fraction(3, 4), Fraction(4, 5)),
    ),
) -> Table:
    """Split of n units of a resource between two humans.

    A human with k units attains its only goal with probability ``success[k]``, which is
    positive. With c(k) = -success[k]^(-zeta xi), what a human with k units contributes to
    U_r = -(-(c(k) + c(n - k)))^eta, an equal split is best if and only if c is concave (to
    be exact: if c is concave it is best, if c is convex it is worst).
    """
    units = len(success) - 1
    splits = [f"split_{k}" for k in range(units + 1)]
    gives = [f"give_{k}" for k in range(units + 1)]
    return Table.model_validate(
        {
            "name": f"splitting {units} units",
            "agents": [
                {"name": "human_1", "role": "human", "actions": ["use"]},
                {"name": "human_2", "role": "human", "actions": ["use"]},
                {"name": "robot", "role": "robot", "actions": gives},
            ],
            "states": ["start", *splits, *_OUTCOMES],
            "initial": "start",
            "terminal": _OUTCOMES,
            "transitions": [
                *(
                    {"state": "start", "actions": [ANY, ANY, give], "to": split}
                    for give, split in zip(gives, splits, strict=True)
                ),
                *(
                    {"state": split, "to": _outcomes(success[k], success[units - k])}
                    for k, split in enumerate(splits)
                ),
            ],
            "available": {split: {"robot": gives[0]} for split in splits},
            "goals": _OUTCOME_GOALS,
            "horizon": 2,
        }
    )


_OUTCOMES = ["both", "only_1", "only_2", "neither"]
_OUTCOME_GOALS = {
    "human_1": [{"name": "success", "states": ["both", "only_1"], "weight": 1}],
    "human_2": [{"name": "success", "states": ["both", "only_2"], "weight": 1}],
}


def _outcomes(first: Probability, second: Probability) -> dict[str, str | float]:
    """Two independent successes."""
    return lottery(
        {
            "both": first * second,
            "only_1": first * (1 - second),
            "only_2": (1 - first) * second,
            "neither": (1 - first) * (1 - second),
        }
    )


__all__ = [
    "belief",
    "coma_pill",
    "commitment",
    "confirmation",
    "menu_size",
    "pause_destroy",
    "power_levels",
    "resource_split",
]
