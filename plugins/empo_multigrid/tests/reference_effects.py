"""Effects of single actions on a scene; part of the readable reference of one transition."""

from __future__ import annotations

from reference_scene import Control, Item, Plan, Scene

from empo_multigrid.layout import (
    BLOCK,
    BOX,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    DOOR,
    DOOR_CLOSED,
    DOOR_OPEN,
    DROP,
    FORWARD,
    KEY,
    KILL_BUTTON,
    LAVA,
    LEFT,
    NOTHING,
    PAUSE_SWITCH,
    PICKUP,
    RIGHT,
    ROCK,
    TOGGLE,
)

PAUSE_ON, PAUSE_ENABLED = 1, 2
BUTTONS = (KILL_BUTTON, PAUSE_SWITCH, DISABLING_SWITCH)
PUSHABLE = (BLOCK, ROCK)
TURN = {LEFT: -1, RIGHT: 1}


def act(plan: Plan, scene: Scene, i: int) -> None:
    """Execute the action of a normal agent."""
    agent, verb = scene.agents[i], plan.verb(i)
    started = None
    if verb in TURN:
        agent.direction = (agent.direction + TURN[verb]) % 4
    elif verb == FORWARD:
        forward(plan, scene, i)
    elif verb == PICKUP:
        pick_up(scene, i)
    elif verb == DROP:
        drop(plan, scene, i)
    elif verb == TOGGLE:
        started = toggle(scene, i)
    record(plan, scene, i, started)


def record(plan: Plan, scene: Scene, i: int, started: Control | None = None) -> None:
    """Let the control buttons that await this agent's action record it.

    Args:
        plan: The step.
        scene: Changed in place.
        i: The agent.
        started: The button that the action itself began to program; it waits for the next one.
    """
    for control in scene.controls.values():
        if control.awaiting and control.programmed == i and control is not started:
            control.awaiting, control.recorded = False, plan.action[i]


def forward(plan: Plan, scene: Scene, i: int) -> None:
    """Move an agent ahead, pushing and trampling what it can; nothing happens if it is blocked."""
    agent, cell = scene.agents[i], scene.faced(i)
    if cell is None or not vacant(plan, scene, cell):
        return
    if item := scene.item_at(cell):
        if item.kind not in PUSHABLE or push_landing(plan, scene, i) is None:
            return
        for pushed in pushed_chain(scene, i):
            pushed.cell = scene.ahead(pushed.cell, agent.direction)
    bush = scene.untrampled_bush(cell)
    if bush is None and not scene.open_ground(cell):
        return
    if bush is not None and scene.layout.tramples[i]:
        scene.words[bush] = 1
    agent.cell = cell
    agent.terminated = bool(scene.layout.terrain[cell] == LAVA)


def pick_up(scene: Scene, i: int) -> None:
    """Take the key, ball or box in front, with empty hands."""
    item = scene.item_at(scene.faced(i))
    if item is None or item.kind in PUSHABLE or scene.carried(i):
        return
    if scene.agent_at(item.cell) is None:
        item.cell, item.carrier = None, i


def drop(plan: Plan, scene: Scene, i: int) -> None:
    """Put down what the agent carries where nothing else is."""
    item, cell = scene.carried(i), scene.faced(i)
    if item is None or cell is None or scene.item_at(cell) or scene.agent_at(cell) is not None:
        return
    refused = cell in plan.occupied or scene.fixed_at(cell)[1] == DOOR
    if scene.open_ground(cell) and (scene.layout.reference or not refused):
        item.cell, item.carrier = cell, None


def toggle(scene: Scene, i: int) -> Control | None:
    """Use what is in front; returns the control button that starts to be programmed, if any."""
    cell = scene.faced(i)
    if cell is None or scene.agent_at(cell) is not None:
        return None
    if item := scene.item_at(cell):
        open_box(scene, item)
        return None
    f, kind = scene.fixed_at(cell)
    if f is None:
        return None
    if kind == CONTROL_BUTTON:
        return toggle_control(scene, i, f)
    if kind == DOOR:
        toggle_door(scene, i, f)
    elif kind in BUTTONS and scene.layout.agent_colour[i] == scene.layout.fixed_colour[f]:
        toggle_button(scene, f, kind)
    return None


def open_box(scene: Scene, item: Item) -> None:
    """Replace a closed box by what it holds."""
    if item.kind == BOX:
        index = scene.items.index(item)
        item.kind = int(scene.layout.item_content_kind[index])
        item.colour = int(scene.layout.item_content_colour[index])
        item.opened = item.kind != NOTHING
        if not item.opened:
            item.cell = None


def toggle_door(scene: Scene, i: int, f: int) -> None:
    """Open or close a door; a locked one needs a key of its colour, and stays unlocked."""
    held = scene.carried(i)
    unlocks = held and held.kind == KEY and held.colour == scene.layout.fixed_colour[f]
    if scene.words[f] == DOOR_OPEN:
        scene.words[f] = DOOR_CLOSED
    elif scene.words[f] == DOOR_CLOSED or unlocks:
        scene.words[f] = DOOR_OPEN


def toggle_button(scene: Scene, f: int, kind: int) -> None:
    """Press a kill button, pause switch or disabling switch of the right colour."""
    target = int(scene.layout.fixed_target[f])
    if kind == DISABLING_SWITCH:
        for other, other_kind in enumerate(scene.layout.fixed_kind):
            if other_kind == target:
                flip_enabled(scene, other, target)
    elif is_enabled(scene, f, kind):
        if kind == PAUSE_SWITCH:
            scene.words[f] ^= PAUSE_ON
        for j in scene.coloured(target):
            if kind == KILL_BUTTON:
                scene.agents[j].terminated = True
            else:
                scene.agents[j].paused = bool(scene.words[f] & PAUSE_ON)


def flip_enabled(scene: Scene, f: int, kind: int) -> None:
    """Disable or enable a button; a pause switch that is on goes off when disabled."""
    if kind == KILL_BUTTON:
        scene.words[f] ^= 1
    elif kind == CONTROL_BUTTON:
        scene.controls[f].enabled ^= True
    elif scene.words[f] == PAUSE_ENABLED | PAUSE_ON:
        scene.words[f] = 0
        for j in scene.coloured(int(scene.layout.fixed_target[f])):
            scene.agents[j].paused = False
    else:
        scene.words[f] ^= PAUSE_ENABLED


def toggle_control(scene: Scene, i: int, f: int) -> Control | None:
    """Start programming, or trigger what was recorded; returns the button in the former case."""
    control, colour = scene.controls[f], scene.layout.agent_colour[i]
    if not control.enabled:
        return None
    if colour == scene.layout.fixed_target[f]:
        if scene.layout.reference and control.awaiting and control.programmed == i:
            return None
        control.programmed, control.awaiting = i, True
        control.recorded = control.recorded if scene.layout.reference else None
        return control
    if colour == scene.layout.fixed_colour[f] and control.programmed is not None:
        agent = scene.agents[control.programmed]
        agent.forced = agent.forced if control.recorded is None else control.recorded
    return None


def vacant(plan: Plan, scene: Scene, cell: int) -> bool:
    """True if no agent is in a cell, nor was there when the step began."""
    return cell not in plan.occupied and scene.agent_at(cell) is None


def pushed_chain(scene: Scene, i: int) -> list[Item]:
    """The blocks and rocks in an unbroken row in front of an agent, nearest first."""
    chain, cell = list[Item](), scene.faced(i)
    while cell is not None and (item := scene.item_at(cell)) and item.kind in PUSHABLE:
        chain.append(item)
        cell = scene.ahead(cell, scene.agents[i].direction)
    return chain


def push_landing(plan: Plan, scene: Scene, i: int) -> int | None:
    """Destination cell of the last item that an agent pushes, None if it cannot push."""
    chain = pushed_chain(scene, i)
    if not scene.layout.can_push_rocks[i] and any(item.kind == ROCK for item in chain):
        return None
    landing = scene.ahead(chain[-1].cell, scene.agents[i].direction)
    if landing is None or scene.item_at(landing) or not scene.open_ground(landing):
        return None
    return landing if vacant(plan, scene, landing) else None


def is_enabled(scene: Scene, f: int, kind: int) -> bool:
    """True if a kill button or pause switch is enabled."""
    return bool(scene.words[f] & (PAUSE_ENABLED if kind == PAUSE_SWITCH else 1))
