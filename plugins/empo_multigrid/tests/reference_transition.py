"""One transition of a multigrid world, written to be read; the compiled kernel must equal it.

A step goes like this. Forced actions replace chosen ones. Some agents' forward moves are decided
by chance: who stands on unsteady ground may stumble, others try to enter a magic wall or a bush.
The remaining agents are *normal*. Those that contest a cell form a block, in which every member
is equally likely to act first. For every combination of winners, stumbles and attempts the
actions are then executed one after the other: normal agents, stumblers, magic walls, bushes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Literal, NamedTuple

from reference_effects import (
    PUSHABLE,
    TURN,
    act,
    forward,
    is_enabled,
    push_landing,
    record,
    vacant,
)
from reference_scene import Plan, Scene

from empo_multigrid.layout import (
    ANY_SIDE,
    BOX,
    DISABLING_SWITCH,
    DOOR,
    DROP,
    FORWARD,
    KILL_BUTTON,
    MAGIC_WALL,
    PAUSE_SWITCH,
    PICKUP,
    STILL,
    TOGGLE,
    UNSTEADY,
    Layout,
)


class Outcome(NamedTuple):
    """Random outcome of the forward action of one agent that is not normal.

    Attributes:
        kind: Whether it leaves unsteady ground, or tries to enter a magic wall or a bush.
        turn: Quarter turns to the right before moving.
        moves: Whether the agent then tries to move.
        solidifies: Whether the magic wall becomes solid.
        overlooked: Whether the public implementation ignores this chance in a lone agent.
    """

    kind: Literal["stumble", "magic wall", "bush"]
    turn: int = 0
    moves: bool = False
    solidifies: bool = False
    overlooked: bool = False


Chances = list[tuple[float, Outcome]]


def transition(
    layout: Layout, row: Sequence[int], actions: Sequence[int]
) -> list[tuple[float, tuple[int, ...]]]:
    """The exact distribution over successor rows of one joint action.

    Args:
        layout: The world.
        row: A canonical state row.
        actions: One action index per agent.

    Returns:
        Probabilities, positive and summing to 1, with distinct rows. Empty if some agent does
        not have its action where it stands.
    """
    scene = Scene.decode(layout, row)
    chosen = list(zip(range(layout.num_agents), scene.agents, actions, strict=True))
    if not all(layout.action_mask[i, agent.cell, action] for i, agent, action in chosen):
        return []
    plan = settled(scene, actions)
    merged: dict[tuple[int, ...], float] = {}
    for probability, order, outcomes in branches(plan):
        successor = executed(plan, order, outcomes).encode()
        merged[successor] = merged.get(successor, 0.0) + probability
    return [(probability, successor) for successor, probability in merged.items()]


def settled(scene: Scene, actions: Sequence[int]) -> Plan:
    """The actions that agents execute; takes the forced actions out of the scene."""
    executing = {}
    for i, agent in enumerate(scene.agents):
        action = int(actions[i])
        if agent.able or scene.layout.reference:
            action = action if agent.forced is None else agent.forced
            agent.forced = None
        if scene.layout.actions[action] != STILL:
            executing[i] = action
    occupied = frozenset(agent.cell for agent in scene.agents if not agent.terminated)
    return Plan(scene, executing, occupied)


def branches(plan: Plan) -> Iterator[tuple[float, Iterable[int], dict[int, Outcome]]]:
    """Every resolution of chance: its probability, the order of normal agents, the outcomes."""
    if acts_in_index_order(plan):
        yield 1.0, plan.action, {}
        return
    chances = {i: drawn for i in plan.active if (drawn := chances_of(plan, i))}
    normal = [i for i in plan.active if i not in chances]
    blocks = conflict_blocks(plan, normal)
    share = 1.0 / prod(len(block) for block in blocks)
    for winners in product(*blocks):
        order = [*winners, *(i for i in normal if i not in winners)]
        for results in product(*chances.values()):
            outcomes = {i: outcome for i, (_, outcome) in zip(chances, results, strict=True)}
            yield share * prod(p for p, _ in results), order, outcomes


def acts_in_index_order(plan: Plan) -> bool:
    """True if a shortcut of the public implementation applies (spec C.5 item 8)."""
    if not plan.start.layout.reference:
        return False
    chances = [drawn for i in plan.active if (drawn := chances_of(plan, i))]
    if len(plan.active) <= 1:
        # The check for a lone agent overlooks magic walls that can be entered from every side.
        return all(outcome.overlooked for drawn in chances for _, outcome in drawn)
    moving = [i for i in plan.active if plan.verb(i) not in TURN]
    return len(moving) < 2 and not chances


def chances_of(plan: Plan, i: int) -> Chances:
    """The outcomes that chance decides between; empty for a normal agent."""
    layout, scene, agent = plan.start.layout, plan.start, plan.start.agents[i]
    if plan.verb(i) != FORWARD:
        return []
    chances: Chances = []
    f, kind = scene.fixed_at(scene.faced(i))
    if f is not None and kind == MAGIC_WALL and scene.words[f] and layout.can_enter_magic[i]:
        side = layout.fixed_side[f]
        if side in (ANY_SIDE, (agent.direction + 2) % 4):
            enter, solidify = float(layout.fixed_enter[f]), float(layout.fixed_solidify[f])
            attempted = Outcome("magic wall", overlooked=bool(side == ANY_SIDE))
            chances = [
                (enter, attempted._replace(moves=True)),
                ((1 - enter) * (1 - solidify), attempted),
                ((1 - enter) * solidify, attempted._replace(solidifies=True)),
            ]
    stumble = float(layout.stumble[agent.cell])
    on_unsteady = layout.terrain[agent.cell] == UNSTEADY and (stumble > 0 or layout.reference)
    if not chances and (attempt := attempts_at_bush(scene, i, 0)):
        chances = [(p, Outcome("bush", moves=moves)) for p, moves in attempt]
    elif not chances and on_unsteady:
        for p_turn, turn in ((1 - stumble, 0), (stumble / 2, -1), (stumble / 2, 1)):
            attempt = [] if layout.reference else attempts_at_bush(scene, i, turn)
            for p, moves in attempt or [(1.0, True)]:
                chances.append((p_turn * p, Outcome("stumble", turn, moves)))
    return [(p, outcome) for p, outcome in chances if p > 0]


def attempts_at_bush(scene: Scene, i: int, turn: int) -> list[tuple[float, bool]]:
    """Success and failure with a bush in the way; empty unless chance decides."""
    agent = scene.agents[i]
    f = scene.untrampled_bush(scene.ahead(agent.cell, (agent.direction + turn) % 4))
    if f is None or scene.layout.tramples[i] or scene.layout.fixed_enter[f] == 1:
        return []
    enter = float(scene.layout.fixed_enter[f])
    return [(enter, True), (1 - enter, False)]


def conflict_blocks(plan: Plan, normal: list[int]) -> list[list[int]]:
    """The normal agents, those together that compete, in the order of first members."""
    blocks: list[set[int]] = [{i} for i in normal]
    for i in normal:
        group = {i} | (rivals(plan, i, normal) & set(normal))
        joined = set[int]().union(*(block for block in blocks if block & group))
        blocks = [block for block in blocks if not block & group] + [joined]
    return sorted(sorted(block) for block in blocks)


def rivals(plan: Plan, i: int, normal: list[int]) -> set[int]:
    """Agents that must not act before or after this one by their index alone."""
    scene, layout = plan.start, plan.start.layout
    cell = contested(plan, i)
    same = {j for j in normal if cell is not None and contested(plan, j) == cell}
    f, kind = scene.fixed_at(scene.faced(i))
    if plan.verb(i) != TOGGLE or f is None or layout.agent_colour[i] != layout.fixed_colour[f]:
        return same
    target = int(layout.fixed_target[f])
    if kind in (KILL_BUTTON, PAUSE_SWITCH) and is_enabled(scene, f, kind):
        return same | scene.coloured(target)
    if kind == DISABLING_SWITCH and not layout.reference:
        return same | {j for j in normal if toggles_kind(plan, j, target)}
    return same


def toggles_kind(plan: Plan, j: int, target: int) -> bool:
    """True if an agent toggles an object of a kind, or flips a switch that disables that kind."""
    f, kind = plan.start.fixed_at(plan.start.faced(j))
    if plan.verb(j) != TOGGLE or f is None or kind != DISABLING_SWITCH:
        return plan.verb(j) == TOGGLE and kind == target
    layout = plan.start.layout
    flips = layout.fixed_colour[f] == layout.agent_colour[j]
    return bool(flips and layout.fixed_target[f] == target)


def contested(plan: Plan, i: int, scene: Scene | None = None) -> int | None:
    """The cell that an agent's action competes for, None if it cannot conflict."""
    scene = scene or plan.start
    cell, verb = scene.faced(i), plan.verb(i)
    if cell is None:
        return None
    item = scene.item_at(cell)
    exact = not scene.layout.reference
    if verb == FORWARD:
        return push_landing(plan, scene, i) if item and item.kind in PUSHABLE else cell
    if verb == PICKUP:
        return cell if item and item.kind not in PUSHABLE else None
    if verb == DROP:
        return cell if exact or scene.agent_at(cell) is not None else None
    if verb != TOGGLE or not exact or scene.agent_at(cell) is not None:
        return None
    changes = item.kind == BOX if item else scene.fixed_at(cell)[1] == DOOR
    return cell if changes else None


def executed(plan: Plan, order: Iterable[int], outcomes: dict[int, Outcome]) -> Scene:
    """The scene after everybody acted, given how chance decided."""
    scene = plan.start.copy()
    for i in order:
        if scene.agents[i].able:
            act(plan, scene, i)
    stumble(plan, scene, {i: o for i, o in outcomes.items() if o.kind == "stumble"})
    for kind in ("magic wall", "bush"):
        for i, outcome in outcomes.items():
            if outcome.kind == kind and scene.agents[i].able:
                attempt(plan, scene, i, outcome)
                record(plan, scene, i)
    return scene


def stumble(plan: Plan, scene: Scene, outcomes: dict[int, Outcome]) -> None:
    """Move all agents that leave unsteady ground at once: none wins a contested cell."""
    outcomes = {i: outcome for i, outcome in outcomes.items() if scene.agents[i].able}
    for i, outcome in outcomes.items():
        scene.agents[i].direction = (scene.agents[i].direction + outcome.turn) % 4
    # Who fails to enter a bush stays, so it is in nobody's way.
    cells = {i: contested(plan, i, scene) for i, outcome in outcomes.items() if outcome.moves}
    for i in outcomes:
        cell = cells.get(i)
        alone = list(cells.values()).count(cell) == 1
        if cell is not None and alone and vacant(plan, scene, cell):
            forward(plan, scene, i)
        record(plan, scene, i)


def attempt(plan: Plan, scene: Scene, i: int, outcome: Outcome) -> None:
    """Carry out how an attempt to enter a magic wall or a bush ended."""
    cell = scene.faced(i)
    f, _ = scene.fixed_at(cell)
    if cell is not None and f is not None:
        if outcome.solidifies:
            scene.words[f] = 0
        if outcome.moves and vacant(plan, scene, cell):
            scene.agents[i].cell = cell
