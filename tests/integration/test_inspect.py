"""Pages and containers of runs: what they hold, and how much."""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

import empo_inspector
from empo_core.components import build
from empo_core.config import RunConfig, WorldModelRef
from empo_core.errors import StorageError
from empo_core.experiment import Experiment
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector.container import unpack
from empo_inspector.decision import OneStep
from empo_inspector.decisive import worth_a_look
from empo_inspector.page import container, page, script, style, write_page
from empo_theory.inspection import NOT_KEPT, InspectionScope

ROOT = Path(__file__).parents[2]
"""Own JavaScript and styles of a page as files, with comments; words are JSON, and not counted."""


@pytest.fixture(scope="module")
def solved() -> ExactResult:
    ref = {"name": "multigrid/free_the_human", "params": {"max_steps": 8}}
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    return solve(build(WorldModelRef.model_validate(ref)), params)


@pytest.fixture(scope="module")
def packed(solved: ExactResult, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    inspection = inspect(solved, solved.params.theory, InspectionScope())
    return container(
        inspection, solved.problem.world, InspectionScope(), tmp_path_factory.mktemp("run")
    )


def test_a_container_holds_the_inspection(solved: ExactResult, packed: bytes) -> None:
    inspection = inspect(solved, solved.params.theory, InspectionScope())
    header, arrays = unpack(packed)
    for name in ("rows", "offsets", "prob", "duration", "v_r", "v_e", "v_m", "successor", "code"):
        assert np.array_equal(arrays[name], getattr(inspection, name), equal_nan=True)
    bits = np.unpackbits(arrays["achieved"], axis=1, bitorder="little")
    assert np.array_equal(bits[:, : len(header.world.goals)], inspection.achieved)
    assert header.theory == solved.params.theory.model_dump(mode="json")
    assert header.world.strides == list(solved.spec.strides)
    assert [*zip(header.world.agents[1].actions, header.world.agents[1].keys, strict=True)] == [
        ("still", "↓"), ("left", "←"), ("right", "→"), ("forward", "↑"),
    ]  # fmt: skip


def test_a_header_follows_the_published_schema(packed: bytes) -> None:
    schema = json.loads((ROOT / "docs/reference/inspector.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(unpack(packed)[0].model_dump_json(by_alias=True)), schema)


def test_two_containers_of_a_run_are_equal(
    solved: ExactResult, packed: bytes, tmp_path: Path
) -> None:
    inspection = inspect(solved, solved.params.theory, InspectionScope())
    again = container(inspection, solved.problem.world, InspectionScope(), tmp_path)
    assert unpack(again)[0].model_copy(update={"provenance": {}}) == unpack(packed)[0].model_copy(
        update={"provenance": {}}
    )


def with_header(packed: bytes, old: bytes, new: bytes) -> bytes:
    raw = zlib.decompress(packed)
    (length,) = struct.unpack_from("<I", raw, 12)
    changed = raw[16 : 16 + length].replace(old, new)
    rest = raw[16 + length + -length % 8 :]
    start = raw[:12] + struct.pack("<I", len(changed)) + changed + bytes(-len(changed) % 8)
    return zlib.compress(start + rest)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-20], "truncated"),
        (lambda data: data[:900] + b"\0\0\0" + data[903:], "damaged"),
        (lambda _: zlib.compress(b"x" * 64), "no container"),
        (lambda _: b"", "truncated"),
        (lambda data: with_header(data, b'"<f8"', b'"|O8"'), "dtype"),
        (lambda data: with_header(data, b'"offset":0', b'"offset":99999999'), "fit"),
        (lambda data: with_header(data, b'"shape":[', b'"shape":[-1,'), "fit"),
        (lambda data: with_header(data, b'"precision"', b'"precise"'), "precision"),
        (lambda data: zlib.compress(zlib.decompress(data)[:8] + b"\7" * 60), "version"),
    ],
)
def test_damaged_containers_are_refused_in_one_line(
    packed: bytes, damage: object, says: str
) -> None:
    assert callable(damage)
    with pytest.raises(StorageError, match=says) as refused:
        unpack(damage(packed))
    assert "\n" not in str(refused.value)


def test_states_are_left_out_with_their_successors_marked(solved: ExactResult) -> None:
    theory = solved.params.theory
    whole = inspect(solved, theory, InspectionScope())
    part = inspect(solved, theory, InspectionScope(max_bytes=200_000))
    assert 1 < part.num_states < whole.num_states
    joint = solved.spec.num_joint_actions
    bounds = part.offsets[::joint]
    lost = np.add.reduceat(part.successor == NOT_KEPT, bounds[:-1].clip(max=bounds[-1] - 1))
    closed = np.flatnonzero((lost == 0) & (np.diff(bounds) > 0) & ~np.isnan(part.v_r[5]))
    assert len(closed) > 10
    here, there = OneStep(part), OneStep(whole)
    states = torch.from_numpy(closed)
    same = torch.from_numpy(np.searchsorted(whole.number, part.number[closed]))
    for one, other in zip(here.policies(states, 5), there.policies(same, 5), strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


def test_the_decision_at_the_start_is_complete_however_little_is_kept(
    solved: ExactResult, tmp_path: Path
) -> None:
    scope = InspectionScope(max_bytes=1)
    part = inspect(solved, solved.params.theory, scope)
    joint = solved.spec.num_joint_actions
    assert part.num_states < 20
    assert (part.successor[: part.offsets[joint]] != NOT_KEPT).all()
    packed = write_page(part, solved.problem.world, tmp_path, tmp_path / "page.html", scope)
    why, right = unpack(packed)[0].why, empo_inspector.explain(solved).reasons
    assert why is not None
    assert (why.first, why.second, why.gap) == (right.first, right.second, right.gap)
    np.testing.assert_allclose(np.sum(why.parts) + np.sum(why.ends), why.gap, 1e-9)
    np.testing.assert_allclose(why.parts, right.parts, 1e-12)


def test_more_bytes_keep_more_states(solved: ExactResult) -> None:
    sizes = [
        inspect(solved, solved.params.theory, InspectionScope(max_bytes=limit)).num_states
        for limit in (50_000, 100_000, 400_000, 10_000_000)
    ]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == solved.graph.num_states


def test_the_most_decisive_state_has_the_largest_product(solved: ExactResult) -> None:
    inspection = inspect(solved, solved.params.theory, InspectionScope())
    found = worth_a_look(inspection, 0).decisive
    products = [chance * gap for _, _, chance, gap in found]
    assert products == sorted(products, reverse=True)
    start = next(each for each in found if each[:2] == [0.0, 0.0])
    best, second = np.sort(solved.at(0).Q_r)[::-1][:2]
    assert start[2:] == pytest.approx([1.0, (best - second) / abs(best)])


def test_the_chances_of_decisive_states_are_those_of_the_chain(solved: ExactResult) -> None:
    inspection = inspect(solved, solved.params.theory, InspectionScope())
    chain = solved.chain()
    chance = {(0, 0): 1.0}
    reached = np.zeros(chain.num_nodes)
    reached[0] = 1.0
    for node in range(chain.num_nodes):
        steps = slice(chain.offsets[node], chain.offsets[node + 1])
        reached[chain.target[steps]] += reached[node] * chain.prob[steps]
        chance[int(chain.state[node]), int(chain.time[node])] = float(reached[node])
    for state, time, there, _ in worth_a_look(inspection, 0).decisive:
        assert there == pytest.approx(chance[int(state), int(time)], abs=1e-3)


def test_a_page_names_no_other_place() -> None:
    text = script() + style()
    assert not re.search(r"(https?:)?//[a-z]", text.replace("http://www.w3.org/2000/svg", ""))
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"):
        assert forbidden not in text
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\(", text)


def test_modules_declare_no_name_twice() -> None:
    """They share one scope in the page."""
    folder = Path(empo_inspector.__file__).parent / "page"
    declared = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.M)
    names = [name for file in folder.glob("*.js") for name in declared.findall(file.read_text())]
    assert len(names) == len(set(names))


def test_a_page_allows_its_own_script_and_style_only(packed: bytes) -> None:
    text = page(packed, "</title><script>alert(1)</script>", "<b>start</b>")
    head = text[: text.index("<title>")]
    assert "default-src 'none'" in head
    assert "unsafe" not in head
    assert text.count("<script") == 2
    assert "<b>start" not in text
    assert " style=" not in text


def test_a_page_that_is_wanted_where_no_inspector_is_installed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "empo_inspector", None)  # Then it cannot be imported.
    algorithm = {"name": "exact", "params": {"inspector": True}}
    config = {"world_model": "table/belief", "algorithm": algorithm, "runs": str(tmp_path)}
    run = Experiment.start(RunConfig.model_validate(config))
    assert not (run.directory / "inspector.html").exists()
    warnings = [record.getMessage() for record in caplog.records]
    assert "no inspector.html: pip install empo-inspector" in warnings
