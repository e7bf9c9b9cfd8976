"""Structure that worlds may declare: symmetries, and which words of a row depend on which.

Solvers use it to work on fewer states; see ``docs/explanation/reductions.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

RowMap = Callable[[Int[Tensor, "state word"]], Int[Tensor, "state word"]]
ActionMap = Callable[[Int[Tensor, "state word"]], Int[Tensor, "state agent action"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symmetry:
    """A renaming of states, agents, actions and goals that changes nothing about a world.

    If a joint action leads from ``s`` to ``t``, the renamed one leads from the image of ``s`` to
    that of ``t``, as likely and as fast. What is available or achieved in ``s`` is so, renamed,
    in its image, and the first available action of a human becomes the first one.

    Attributes:
        name: What it does, e.g. ``"mirror left and right"``.
        rows: The image of each state, as new rows of the same type; distinct states have distinct
            ones.
        agents: The agent whose part each agent plays in the image [agent].
        actions: The action of that agent that each action becomes, one to one, which may depend
            on the state; of no account on the padding of the action axis [state agent action].
        goals: The goal that each goal becomes, of the human ``agents`` says [goal].
    """

    name: str
    rows: RowMap
    agents: tuple[int, ...]
    actions: ActionMap
    goals: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Which words of a state row decide what.

    Attributes:
        words: ``words[i, j]``: the next value of word ``i`` depends on word ``j`` [word word].
        available: Words on which available actions, and so the end of an episode, depend [word].
        achieved: Words on which it depends whether a goal is achieved [goal word].
    """

    words: Bool[Tensor, "word word"]
    available: Bool[Tensor, " word"]
    achieved: Bool[Tensor, "goal word"]
