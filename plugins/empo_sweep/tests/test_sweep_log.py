"""``trials.jsonl``: lines that were torn or damaged, and what may follow what."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from empo_core.errors import StorageError
from empo_sweep.arms import Trial
from empo_sweep.trial_log import TrialLog


def trial(number: int) -> Trial:
    return Trial(number, {"x": number / 3}, 5, "0" * 64, f"trial-{number:04d}-s5")


@pytest.fixture
def written(tmp_path: Path) -> bytes:
    """A log with every event."""
    log = TrialLog(tmp_path)
    log.plan([trial(number) for number in range(4)])
    for number in range(4):
        log.record(trial(number), "started", threads=1)
    log.record(trial(0), "reported", step=3, value=0.5)
    log.record(trial(0), "done", value=1.0)
    log.record(trial(1), "failed", reason="it broke: \u00fc")
    log.record(trial(2), "interrupted")
    log.record(trial(3), "pruned")
    log.close()
    return (tmp_path / "trials.jsonl").read_bytes()


def read(folder: Path, data: bytes) -> TrialLog:
    (folder / "trials.jsonl").write_bytes(data)
    log = TrialLog(folder)
    log.close()
    return log


def test_a_log_is_read_back_as_it_was(tmp_path: Path, written: bytes) -> None:
    log = read(tmp_path, written)
    assert [state.status for state in log.states] == ["done", "failed", "interrupted", "pruned"]
    assert (log.states[0].value, log.states[0].reports) == (1.0, {3: 0.5})
    assert log.states[1].reason == "it broke: \u00fc"
    assert [state.trial for state in log.states] == [trial(number) for number in range(4)]


def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path: Path, written: bytes) -> None:
    whole = len(written[:-1].rpartition(b"\n")[0]) + 1
    for end in range(whole, len(written)):
        log = read(tmp_path, written[:end])
        assert len(log.history) == 12
        assert (tmp_path / "trials.jsonl").read_bytes() == written[:whole]


def test_damage_is_a_message_with_the_number_of_the_line(tmp_path: Path, written: bytes) -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(100):
        place = chance.randrange(len(written) - 1)
        kinds = [b"", bytes([chance.randrange(256)]), b"\n", b'"', b"1"]
        mutant = written[:place] + chance.choice(kinds) + written[place + chance.randrange(3) :]
        try:
            log = read(tmp_path, mutant)
        except StorageError as error:
            refused += 1
            number = int(str(error).partition("trials.jsonl:")[2].partition(":")[0])
            assert 1 <= number <= mutant.count(b"\n") + 1
        else:
            assert len(log.states) <= 4
    assert refused > 60


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"event": "done", "trial": 0}, "trial 0 is done after done"),
        ({"event": "planned", "trial": 9}, "trial 9 where 4 is due"),
        ({"event": "started", "trial": 1, "seed": 6}, "trial 1 was not planned so"),
        ({"event": "started", "trial": 7}, "trial 7 was not planned so"),
        ({"event": "begun", "trial": 1}, "event: Input should be"),
        ({"event": "started", "trial": 1, "run": "../elsewhere"}, "run: String should match"),
    ],
)
def test_events_that_cannot_be_are_refused(
    tmp_path: Path, written: bytes, change: dict[str, object], reason: str
) -> None:
    lines = [json.loads(line) for line in written.splitlines()]
    base = next((line for line in lines if line["trial"] == change["trial"]), lines[0])
    line = json.dumps(base | change).encode() + b"\n"
    with pytest.raises(StorageError, match=rf"trials.jsonl:14: .*{reason}"):
        read(tmp_path, written + line)
