"""Reading, overriding, validating and rejecting config files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

from empo_core import Component, Config, ConfigPath
from empo_core.config import AggregatorRef
from empo_core.config.files import (
    joined,
    load_config,
    located_error,
    parse_yaml,
    read_yaml,
    validate_document,
)
from empo_core.config.overrides import apply_override
from empo_core.config.yaml import MAX_BYTES, MAX_DEPTH, MAX_NUMBER
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Offer, Provider, Registry


class AlgorithmParams(Config):
    """Params that exercise every sort of field."""

    beta: float = Field(1.0, gt=0, description="How sharp.")
    steps: int = Field(10, ge=1, le=100)
    mode: Literal["fast", "slow"] = "fast"
    per_goal: float | dict[str, float] = 1.0
    pairs: list[list[int]] = Field(default_factory=list)
    aggregator: AggregatorRef | None = None
    folder: ConfigPath | None = None


class AggregatorParams(Config):
    """A nested component's params."""

    scale: float = Field(1.0, ge=0)


class WorldParams(Config):
    """A world from a file, read by a validator as a plugin would."""

    file: ConfigPath
    max_steps: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _readable(self) -> WorldParams:
        validate_document(WorldFile, read_yaml(self.file))
        return self


class WorldFile(Config):
    """Schema of a world file."""

    width: int = Field(ge=1)
    map: str = ""


class BrokenParams(Config):
    """Params whose validator has a bug."""

    @model_validator(mode="after")
    def _bug(self) -> BrokenParams:
        raise KeyError("oops")


def _component(kind: Any, name: str, params: type[BaseModel]) -> Component:
    return Component(kind=kind, name=name, params=params, target="no.module:No", api=1)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "tiny.yaml").write_text("width: 3\n")

    class LibraryParams(WorldParams):
        library: ClassVar = folder

    world = Component(
        kind="world_model",
        name="grid",
        params=LibraryParams,
        target="no.module:No",
        api=1,
    )
    provider, other = Provider("dist-a", "1.0", "a"), Provider("dist-b", "1.0", "b")
    components = [
        world,
        _component("algorithm", "solve", AlgorithmParams),
        _component("algorithm", "broken", BrokenParams),
        _component("algorithm", "twice", AlgorithmParams),
        _component("aggregator", "scatter-add", AggregatorParams),
        _component("tracker", "jsonl", AggregatorParams),
    ]
    offers = [Offer(provider, component) for component in components]
    offers.append(Offer(other, _component("algorithm", "twice", AlgorithmParams)))
    return Registry(offers, [provider, other])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "run.yaml"


def rejection(config: Path, registry: Registry, text: str, *overrides: str) -> list[str]:
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(config, list(overrides), registry)
    lines = str(caught.value).splitlines()
    number = len(lines) - 1
    assert lines[-1] == f"{number} error{'s' if number != 1 else ''}; nothing was run"
    return [line.replace(str(config), "run.yaml") for line in lines[:-1]]


# What is accepted.


def test_a_bare_name_takes_the_defaults(config: Path, registry: Registry) -> None:
    config.write_text("algorithm: solve\n")
    assert load_config(config, registry=registry).algorithm.params == AlgorithmParams()


def test_yaml_follows_the_1_2_rules() -> None:
    text = "[1e-3, no, yes, on, 1:30, 0o17, 0x1F, 012, 1_000, .5, -.inf, ~, True, 2001-01-01, 1.]"
    assert parse_yaml(text, name="x").data == [
        1e-3, "no", "yes", "on", "1:30", 15, 31, 12, "1_000",
        0.5, float("-inf"), None, True, "2001-01-01", 1.0,
    ]  # fmt: skip


def test_relative_paths_start_at_the_configs_folder(config: Path, registry: Registry) -> None:
    config.write_text("algorithm: {name: solve, params: {folder: data/x}}\nruns: out\n")
    loaded = load_config(config, registry=registry)
    assert loaded.algorithm.params.folder == config.parent / "data/x"
    assert loaded.runs == config.parent / "out"


@pytest.mark.parametrize("config", [7, None, ["a.yaml"]])
def test_a_config_that_is_neither_path_nor_dict_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=type(config).__name__):
        load_config(config)


def test_a_library_world_is_chosen_by_name(config: Path, registry: Registry) -> None:
    config.write_text("world_model: grid/tiny\nalgorithm: solve\n")
    world = load_config(config, registry=registry).world_model
    assert world is not None
    assert world.params.file == config.parent / "library/tiny.yaml"


def test_tabs_and_surrogate_pairs_of_json_are_read(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    data = {"a": [1, 2.5, None, True, "x/y"], "b": {"smile": "\U0001f600"}}
    path.write_text(json.dumps(data, indent="\t"))
    assert read_yaml(path).data == data


WHOLE = st.integers(-MAX_NUMBER, MAX_NUMBER)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
def test_json_means_what_it_means_elsewhere(data: Any) -> None:
    text = json.dumps(data).replace("Infinity", ".inf")
    if "\x7f" not in text:  # Raw in JSON, refused by YAML.
        assert parse_yaml(text, name="x.json").data == data


# Where things are.


def test_every_key_and_list_item_has_a_line_and_a_column() -> None:
    document = parse_yaml("a: 1\nb:\n  c: [x, {d: 5}]\n", name="f")
    assert document.locate(["a"]) == (1, 1)
    assert document.locate(["b"]) == (2, 1)
    assert document.locate(["b", "c", 1, "d"]) == (3, 11)
    assert document.locate(["b", "c", 1, "missing"]) == (3, 10)
    assert document.value(["b", "c", 1, "d"]) == 5


def test_a_character_of_a_map_has_a_place() -> None:
    document = parse_yaml("w: 1\nmap: |\n\n    We We\n    We Zq\nrows: [ab]\n", name="f.yaml")
    error = located_error(document, ["map"], "unknown cell 'Zq'", at=(2, 3))
    assert str(error).startswith("f.yaml:5:8: map: unknown cell 'Zq'\n1 error")
    assert document.place_in_text(["rows", 0], 0, 1) == "f.yaml:6:9"


def test_collected_errors_are_reported_together() -> None:
    document = parse_yaml("a: 1\nb: 2", name="f")
    errors = [located_error(document, [key], "bad") for key in "ab"]
    assert str(joined(errors)) == "f:1:1: a: bad\nf:2:1: b: bad\n2 errors; nothing was run"


# What is refused, and how.


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "algorithm: {name: solve, params: {stpes: 5}}",
            "run.yaml:1:35: algorithm.params.stpes: unknown key (got 5); allowed: beta, steps, "
            "mode, per_goal, pairs, aggregator, folder; did you mean 'steps'?",
        ),
        (
            "algorithm:\n  name: solve\n  params:\n    steps: -1\n",
            "run.yaml:4:5: algorithm.params.steps: should be greater than or equal to 1 "
            "(got -1); allowed: whole number, >= 1, <= 100",
        ),
        (
            "algorithm: {name: solve, params: {beta: no}}",
            "run.yaml:1:35: algorithm.params.beta: should be a valid number (got 'no'); "
            "allowed: number, > 0",
        ),
        (
            "algorithm: {name: solve, params: {mode: fsat}}",
            "run.yaml:1:35: algorithm.params.mode: is not one of the choices (got 'fsat'); "
            "allowed: 'fast', 'slow'; did you mean 'fast'?",
        ),
        (
            "algorithm: {name: solve, params: {steps: 5.5}}",
            "run.yaml:1:35: algorithm.params.steps: should be a valid integer (got 5.5); "
            "allowed: whole number, >= 1, <= 100",
        ),
        (
            "algorithm: {name: solve, params: {beta: .nan}}",
            "run.yaml:1:35: algorithm.params.beta: should be a finite number (got nan); "
            "allowed: number, > 0",
        ),
        (
            "algorithm: {name: solve, params: {aggregator: {name: scatter-add, params: {scl: 1}}}}",
            "run.yaml:1:76: algorithm.params.aggregator.params.scl: unknown key (got 1); "
            "allowed: scale; did you mean 'scale'?",
        ),
        (
            "algorithm: {name: solve, params: {per_goal: {a: x}}}",
            "run.yaml:1:46: algorithm.params.per_goal.a: should be a valid number (got 'x'); "
            "allowed: number",
        ),
        (
            "algorithm: {name: solve, params: {per_goal: x}}",
            "run.yaml:1:35: algorithm.params.per_goal: should be a valid number or should be a "
            "mapping (got 'x'); allowed: number or mapping of string to number",
        ),
        (
            "algorithm: solv",
            "run.yaml:1:1: algorithm.name: No algorithm named 'solv'. Did you mean 'solve'? "
            "Installed: broken, solve, twice. (got 'solv')",
        ),
        (
            "algorithm: twice",
            "run.yaml:1:1: algorithm.name: algorithm 'twice' is provided by both dist-a and "
            "dist-b. Uninstall all but one, or set EMPO_BLOCK_PLUGINS=b. If one of them is "
            "yours, rename what it offers. (got 'twice')",
        ),
        (
            "algorithm: broken",
            "run.yaml:1:1: algorithm.params: a validator raises KeyError: 'oops'; "
            "report it to the plugin (got {})",
        ),
        (
            "world_model: {name: grid}\nalgorithm: solve",
            "run.yaml:1:1: world_model.params.file: required key is missing; allowed: path",
        ),
        (
            "algorithm: solve\nworld: grid",
            "run.yaml:2:1: world: unknown key (got 'grid'); allowed: world_model, algorithm, "
            "trackers, on_tracker_error, callbacks, seed, runs; did you mean 'world_model'?",
        ),
        (
            "seed: 1",
            "run.yaml:1:1: algorithm: required key is missing; allowed: the name of an "
            "algorithm, or {name, params}",
        ),
        (
            "algorithm: solve\ntrackers: [jsonl, jsnol]",
            "run.yaml:2:19: trackers.1.name: No tracker named 'jsnol'. Did you mean 'jsonl'? "
            "Installed: jsonl. (got 'jsnol')",
        ),
        ("a: 1\na: 2", "run.yaml:2:1: key 'a' is already given in line 1; remove one of the two"),
        (
            "a: &x 1",
            "run.yaml:1:4: anchor '&x' is not allowed: every value stands where it is used, "
            "since a few nested aliases can stand for gigabytes; repeat the value",
        ),
        (
            "a: {<<: {b: 1}}",
            "run.yaml:1:5: a: merge keys (<<) are not allowed: every value stands where it is "
            "used, since a few nested aliases can stand for gigabytes; repeat the value",
        ),
        (
            "a: !!python/object/apply:os.system [ls]",
            "run.yaml:1:4: tag 'tag:yaml.org,2002:python/object/apply:os.system' is not "
            "allowed: a file is plain data, and tags make it into something else; remove it",
        ),
        ("a: 1\n---\nb: 2", "run.yaml:2:1: a second document starts here; only one is allowed"),
        ("a:\n\tb: 1", "run.yaml:2:1: a tab stands here; indent with spaces"),
        ("a: [1", "run.yaml:1:6: what opens in line 1 lacks its bracket, or a ',' before this"),
        ("a: \x07", "run.yaml:1:4: control character '\\x07' is not allowed; remove it"),
        ('"\\UFFFFFFFF"', "run.yaml:1:1: is not valid YAML: Python int too large to convert to "
                          "C int"),
        ("1.5: x", "run.yaml:1:1: a key must be a word or a whole number (got 1.5); quote it"),
        ("[a]: x", "run.yaml:1:1: a key must be a word or a whole number, not a collection"),
        ("a: " + "9" * 5000, "run.yaml:1:4: a: is beyond 2^53 in size, up to which whole numbers "
                             "go here"),
        ('a: "\\ud800"', "run.yaml:1:4: a: half of a surrogate pair is not a character"),
        ("", "run.yaml:1:1: should be a mapping (got null); allowed: mapping with world_model, "
             "algorithm, trackers, on_tracker_error, callbacks, seed, runs"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(
    config: Path, registry: Registry, text: str, line: str
) -> None:
    assert rejection(config, registry, text) == [line]


def test_every_mistake_of_a_file_is_reported_in_its_order(config: Path, registry: Registry) -> None:
    text = "sede: 1\nalgorithm: {name: solve, params: {steps: 0, beta: -1}}\nseed: -1\n"
    places = [line.split(": ")[0] for line in rejection(config, registry, text)]
    assert places == ["run.yaml:1:1", "run.yaml:2:35", "run.yaml:2:45", "run.yaml:3:1"]


def test_a_mistake_in_another_file_is_located_there(config: Path, registry: Registry) -> None:
    world = config.parent / "world.yaml"
    world.write_text("map: x\nwidth: 0\n")
    text = "world_model: {name: grid, params: {file: world.yaml}}\nalgorithm: solve\n"
    assert rejection(config, registry, text) == [
        f"{world}:2:1: width: should be greater than or equal to 1 (got 0); "
        "allowed: whole number, >= 1"
    ]


def test_terminal_escapes_in_a_file_do_not_reach_the_terminal(
    config: Path, registry: Registry
) -> None:
    (line,) = rejection(config, registry, '"\\e[31mred": 1\nalgorithm: solve')
    assert "\x1b" not in line
    assert "\\x1b[31mred" in line


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(ConfigError, match="null byte"):
        read_yaml("a\0b")


def test_size_depth_and_encoding_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 131,072 bytes"):
        read_yaml(path)
    for text in ("[" * 100_000, "- " * 1000 + "x", '{"a":' * 1000):
        with pytest.raises(ConfigError, match=f"deeper than {MAX_DEPTH} levels"):
            parse_yaml(text, name="deep")
    nested: Any = "x"
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert parse_yaml(json.dumps(nested), name="just right").data == nested
    with pytest.raises(ConfigError, match=r"f:2:4: byte 0xff is not UTF-8 text"):
        parse_yaml(b"a: 1\nb: \xff", name="f")


# Overrides.


def test_overrides_reach_nested_params_lists_and_bare_names(
    config: Path, registry: Registry
) -> None:
    config.write_text("world_model: grid/tiny\nalgorithm: solve\ntrackers: [jsonl]\n")
    loaded = load_config(
        config,
        [
            "algorithm.params.beta=1e-3",
            "algorithm.params.per_goal={a: 2}",
            "trackers.0.params.scale=3",
            "trackers.1=jsonl",
            "world_model.params.max_steps=7",
            "seed=5",
        ],
        registry,
    )
    assert loaded.algorithm.params.beta == 1e-3
    assert loaded.algorithm.params.per_goal == {"a": 2}
    assert [tracker.params.scale for tracker in loaded.trackers] == [3, 1]
    assert loaded.world_model is not None
    assert loaded.world_model.params.max_steps == 7
    assert loaded.seed == 5


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed", "command line: seed: write key.path=value (got 'seed')"),
        ("a..b=1", "command line: a..b: write key.path=value (got 'a..b=1')"),
        (
            "seed=-1",
            "command line: seed: should be greater than or equal to 0 (got -1); "
            "allowed: whole number, >= 0, < 4294967296",
        ),
        ("seed.x=1", "command line: seed.x: seed is 0; it has no key 'x'"),
        (
            "trackers.5=jsonl",
            "command line: trackers.5: trackers is a list; positions 0 to 1 exist (got '5')",
        ),
        (
            "algorithm.params.stpes=2",
            "command line: algorithm.params.stpes: unknown key (got 2); allowed: beta, steps, "
            "mode, per_goal, pairs, aggregator, folder; did you mean 'steps'?",
        ),
        (
            "seed=[1",
            "command line: seed: the value '[1': what opens in line 1 lacks its bracket, or a ',' "
            "before this",
        ),
    ],
)
def test_a_wrong_override_is_named(
    config: Path, registry: Registry, override: str, line: str
) -> None:
    text = "seed: 0\nalgorithm: {name: solve}\ntrackers: [jsonl]\n"
    assert rejection(config, registry, text, override) == [line]


@pytest.mark.parametrize(
    "override",
    ["a.allow_x=[1]", "a.allow_x.0=1", "a={b: [{allow_x: [1]}]}", "allow_x=", "a=[[{allow_x: 1}]]"],
)
def test_permissions_count_in_the_file_only(override: str) -> None:
    document = parse_yaml("a: {b: 1, allow_x: []}", name="f.yaml")
    with pytest.raises(ConfigError, match="allow_x"):
        apply_override(document, override)
    assert document.data == {"a": {"b": 1, "allow_x": []}}


@pytest.mark.parametrize(
    "override", [".".join("a" * 1200) + "=1", ".".join("a" * 30) + "=" + "[" * 30 + "]" * 30]
)
def test_overrides_go_no_deeper_than_files(override: str) -> None:
    document = parse_yaml("b: 1", name="f")
    with pytest.raises(ConfigError, match=f"deeper than {MAX_DEPTH} levels"):
        apply_override(document, override)
    assert document.data == {"b": 1}


def test_an_override_replaces_what_the_file_says_and_where() -> None:
    document = parse_yaml("a: {b: {c: 1}}", name="f")
    apply_override(document, "a.b={d: 2}")
    assert document.data == {"a": {"b": {"d": 2}}}
    assert document.place(["a", "b", "d"]) == "command line"
    assert document.place(["a"]) == "f:1:1"


def test_an_override_that_would_undo_an_earlier_one_is_refused() -> None:
    document = parse_yaml("a: {b: 1, c: 2}", name="f")
    apply_override(document, "a.b=3")
    apply_override(document, "a.b=4")
    with pytest.raises(ConfigError, match=r"^command line: a: would replace a\.b"):
        apply_override(document, "a=other")
    assert document.data == {"a": {"b": 4, "c": 2}}
    apply_override(document, "d=other")
    apply_override(document, "d.e=1")
    assert document.data["d"] == {"name": "other", "e": 1}


def test_brackets_in_a_text_are_not_nested() -> None:
    text = "[" * 200
    assert parse_yaml(f"a: '{text}'", name="x").data == {"a": text}
    with pytest.raises(ConfigError, match=r"x:2:52: .*50 levels"):
        parse_yaml(f"a:\n {text}", name="x")


def test_a_position_of_thousands_of_digits_is_refused() -> None:
    document = parse_yaml("trackers: [csv]", name="run.yaml")
    with pytest.raises(ConfigError, match="trackers"):
        apply_override(document, f"trackers.{'9' * 5_000}.name=csv")
