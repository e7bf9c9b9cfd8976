"""A component that is not what its kind asks for is a sentence when it is built."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch import Tensor

from empo_core import Component, Config, protocols
from empo_core.components import PROTOCOLS, build
from empo_core.config import ComponentRef, RunConfig
from empo_core.config.errors import located
from empo_core.config.files import load_config
from empo_core.config.yaml import read_yaml
from empo_core.errors import PluginLoadError
from empo_core.experiment import Experiment
from empo_core.plugins.discovery import discover
from empo_core.plugins.hookspecs import KINDS, Kind
from empo_core.plugins.registry import Offer, Provider, Registry

BODIES: dict[str, list[str]] = {
    "world_model": [
        "spec = None",
        "def initial_state(self): ...",
        "def transitions(self, states, actions=None): ...",
        "def available(self, states): ...",
        "def achieved(self, states): ...",
        "def step(self, states, actions, generator): ...",
        "def describe(self, state): ...",
    ],
    "human_prior": ["def policy(self, states, steps_left): ..."],
    "value_network": [
        "quantity = 'q_r'",
        "def forward(self, query): ...",
    ],
    "policy_loss": ["takes = None", "def forward(self, distribution, batch, critic=None): ..."],
    "aggregator": ["def __call__(self, values, segments, *, reduction='sum', weight=None): ..."],
    "collector": [
        "def start(self, make_actor): ...",
        "def publish(self, weights, training_step): ...",
        "def collect(self, training_step): ...",
        "def counters(self): ...",
        "def state_dict(self): ...",
        "def load_state_dict(self, state_dict): ...",
        "def stop(self): ...",
    ],
    "explorer": [
        "def explore(self, policy, scene, generator): ...",
    ],
    "environment": [
        "name = 'mine'",
        "def spec(self): ...",
        "def vector(self, num_envs, layout): ...",
    ],
    "executor": [
        "def start(self, make, needs): ...",
        "def call(self, worker, method, *arguments, on_report=None): ...",
        "def kill(self, worker, reason): ...",
        "def shutdown(self, timeout_s=5.0): ...",
    ],
    "policy_network": ["features = 1", "def forward(self, observation): ..."],
    "schedule": ["def __call__(self, progress): ..."],
    "algorithm": ["def run(self, context): ...", "def check(self, world): ..."],
}
BASES = [kind for kind in KINDS if not getattr(PROTOCOLS[kind], "_is_protocol", False)]
PLUGIN = """
from empo_core import Component, Config, hookimpl

class Params(Config):
    pass

@hookimpl
def empo_components():
    yield Component(kind="{kind}", name="mine", params=Params, target="{module}_parts:{target}",
                    api=1)
"""


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Installs a plugin with real metadata, and builds its component."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"mine_{abs(hash(tmp_path)) % 10**9}"

    def make(kind: Kind, parts: str, *args: object, target: str = "Mine") -> object:
        (tmp_path / f"{module}.py").write_text(
            PLUGIN.format(kind=kind, module=module, target=target)
        )
        (tmp_path / f"{module}_parts.py").write_text(parts)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-mine\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[empo]\nempo-mine = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry = discover()
        ref = type("Ref", (ComponentRef,), {"kind": kind, "__annotations__": {}})
        made = ref.model_validate({"name": "mine"}, context={"registry": registry})
        return build(made, *args, registry=registry)

    return make


def source(kind: Kind, lines: list[str]) -> str:
    """A class with these lines, which derives from the base class of its kind, if there is one."""
    base = PROTOCOLS[kind]
    head = "class Mine:\n"
    if not getattr(base, "_is_protocol", False):
        head = f"from empo_core.protocols import {base.__name__}\n"
        head += f"class Mine({base.__name__}):\n"
    body = ["def __init__(self, params): ...", *lines]
    return head + "".join(f"    {line}\n" for line in body)


@pytest.mark.parametrize("kind", BODIES)
def test_what_a_kind_asks_for_is_enough(built: Callable[..., Any], kind: Kind) -> None:
    assert type(built(kind, source(kind, BODIES[kind]))).__name__ == "Mine"


@pytest.mark.parametrize(
    ("kind", "left_out"), [(kind, line) for kind, lines in BODIES.items() for line in lines]
)
def test_what_is_missing_is_named(built: Callable[..., Any], kind: Kind, left_out: str) -> None:
    lines = [line for line in BODIES[kind] if line != left_out]
    with pytest.raises(PluginLoadError) as caught:
        built(kind, source(kind, lines))
    protocol = PROTOCOLS[kind].__name__
    name = left_out.removeprefix("def ").partition("(")[0].partition(" ")[0]
    what = f"method {name}(" if left_out.startswith("def") else f"attribute {name!r}"
    message = str(caught.value)
    if name == "__call__":  # A class has it of its metaclass, an object has not.
        what = "method __call__("
    assert message.startswith(f"{kind} 'mine' of empo-mine is a Mine, which has no {what}")
    assert message.endswith(f", as every {protocol} has")


WRONG = [
    ("human_prior", "def policy(self, states): ..."),
    ("human_prior", "def policy(self, states, steps_left, temperature): ..."),
    ("human_prior", "policy = 5"),
    ("aggregator", "def __call__(self, values, segments): ..."),
    ("aggregator", "def __call__(self, values, segments, *, reduction): ..."),
    ("algorithm", "def run(self): ..."),
    ("algorithm", "def check(self): ..."),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
def test_a_wrong_signature_is_shown_with_the_right_one(
    built: Callable[..., Any], kind: Kind, wrong: str
) -> None:
    name = wrong.removeprefix("def ").partition("(")[0].partition(" ")[0]
    (right,) = (line for line in BODIES[kind] if line.startswith(f"def {name}("))
    lines = [wrong if line == right else line for line in BODIES[kind]]
    with pytest.raises(PluginLoadError) as caught:
        built(kind, source(kind, lines))
    expected = right.removeprefix("def ").removesuffix(": ...").replace("self, ", "")
    message = str(caught.value)
    assert message.startswith(f"{kind} 'mine' of empo-mine is a Mine, which has {name}")
    place = r" \(.*_parts\.py:\d+\)"
    right = re.escape(f" where every {PROTOCOLS[kind].__name__} has {expected}")
    assert re.search(f"{right}({place})?$", message)


@pytest.mark.parametrize(
    "mistake", ["params.nothing", "{}['x']", "len(5)", "int('x')", "nothing", "[][0]"]
)
def test_a_mistake_in_a_constructor_is_a_sentence_with_its_line(
    built: Callable[..., Any], mistake: str
) -> None:
    text = f"class Mine:\n    def __init__(self, params):\n        {mistake}\n"
    with pytest.raises(PluginLoadError, match=r"'mine' of empo-mine: Mine .*_parts\.py:3\)$"):
        built("schedule", text)


def test_a_factory_with_other_arguments_is_a_sentence(built: Callable[..., Any]) -> None:
    with pytest.raises(PluginLoadError) as caught:
        built("human_prior", source("human_prior", BODIES["human_prior"]), "a world")
    assert "human_prior 'mine' of empo-mine" in str(caught.value)
    assert str(caught.value).endswith("_parts:Mine takes (params)")


@pytest.mark.parametrize("kind", BASES)
def test_what_has_a_base_class_derives_from_it(built: Callable[..., Any], kind: Kind) -> None:
    base = PROTOCOLS[kind].__name__
    parts = source(kind, BODIES.get(kind, [])).replace(f"class Mine({base}):", "class Mine:")
    with pytest.raises(PluginLoadError, match=rf"empo_core\.protocols\.{base};"):
        built(kind, parts)


def test_a_tracker_with_a_wrong_hook_is_a_sentence(built: Callable[..., Any]) -> None:
    with pytest.raises(PluginLoadError) as caught:
        built("tracker", source("tracker", ["def log(self, step): ..."]))
    assert "log(step, metrics)" in str(caught.value)


class WrongHook(protocols.Tracker):
    """A tracker whose hook lacks parameters that are also names of params."""

    def __init__(self, params: Config) -> None: ...

    def step_episodes(self, rewards: Tensor, dones: Tensor) -> None: ...  # type: ignore[override]


class IdleParams(Config):
    reasons: list[str]


class Idle(protocols.Algorithm):
    """An algorithm with a param that is also a parameter of a hook."""

    def __init__(self, params: IdleParams) -> None: ...

    def run(self, context: protocols.RunContext) -> protocols.Result:
        raise AssertionError("not called here")

    def check(self, world: protocols.WorldModel | None) -> dict[str, Any]:
        return {}


class NoHook(WrongHook, ABC):
    """A tracker that cannot be built."""

    @abstractmethod
    def log(self, step: int, metrics: object) -> None: ...


@pytest.mark.parametrize("target", ["WrongHook", "NoHook"])
def test_what_is_wrong_is_told_at_the_key_that_names_the_component(
    tmp_path: Path, target: str
) -> None:
    components = (
        Component(kind="tracker", name="mine", params=Config, target=f"{__name__}:{target}", api=1),
        Component(
            kind="algorithm", name="idle", params=IdleParams, target=f"{__name__}:Idle", api=1
        ),
    )
    registry = Registry([Offer(Provider("empo-mine", "1", "mine"), part) for part in components])
    path = tmp_path / "config.yaml"
    path.write_text("algorithm:\n  name: idle\n  params: {reasons: [fell]}\ntrackers: [mine]\n")
    document = read_yaml(path)
    config = load_config(document, registry=registry)
    with (
        pytest.raises(PluginLoadError, match=rf"^{path}:4:12: trackers\.0: "),
        located(document, config),
    ):
        Experiment.start(config, registry=registry)


class BarParams(Config):
    default_in: ClassVar = "terminal"


class Bar(protocols.Tracker):
    """A tracker for terminals that counts how many of it there are."""

    built: ClassVar[list[Config]] = []

    def __init__(self, params: Config) -> None:
        self.built.append(params)


@pytest.mark.parametrize(
    ("trackers", "terminal", "count"),
    [([], None, 0), (["bar"], None, 1), (["bar"], False, 0), ([], True, 1), (["bar"], True, 1)],
)
def test_trackers_for_terminals_are_added_once_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trackers: list[str], terminal: bool, count: int
) -> None:
    def component(kind: Kind, name: str, params: type[Config], target: str) -> Offer:
        target = f"{__name__}:{target}"
        made = Component(kind=kind, name=name, params=params, target=target, api=1)
        return Offer(Provider("empo-mine", "1", "mine"), made)

    monkeypatch.setattr(Bar, "built", [])
    registry = Registry(
        [
            component("tracker", "bar", BarParams, "Bar"),
            component("algorithm", "idle", Config, "Idle"),
        ]
    )
    config = RunConfig.model_validate(
        {"algorithm": "idle", "trackers": trackers, "runs": str(tmp_path)},
        context={"registry": registry},
    )
    with pytest.raises(AssertionError, match="called"):
        Experiment.start(config, registry=registry, terminal=terminal)
    assert len(Bar.built) == count


def test_a_factory_that_returns_nothing_is_a_sentence(built: Callable[..., Any]) -> None:
    parts = "def mine(params):\n    return None\n"
    with pytest.raises(PluginLoadError, match="NoneType"):
        built("algorithm", parts, target="mine")


def test_every_kind_is_checked() -> None:
    assert PROTOCOLS.keys() == set(KINDS)
    assert BODIES.keys() | {"tracker", "callback"} == set(KINDS)
