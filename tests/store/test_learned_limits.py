from __future__ import annotations

import json
from pathlib import Path

import pytest

from foldline import Context, classify
from foldline.store.learned_limits import LearnedLimits

KEY = ("http://localhost:1/v1", "gpt-4o-mini")


def test_the_next_run_knows_what_one_run_learned(tmp_path: Path) -> None:
    path = tmp_path / "state" / "learned.json"
    learned = LearnedLimits(path)
    assert len(learned) == 0
    assert not path.exists()
    learned[KEY] = 2_048
    learned["http://localhost:1/v1", "other"] = 4_096
    again = LearnedLimits(path)
    assert dict(again) == {KEY: 2_048, ("http://localhost:1/v1", "other"): 4_096}
    del again[KEY]
    assert list(LearnedLimits(path)) == [("http://localhost:1/v1", "other")]
    with pytest.raises(KeyError):
        del again[KEY]


def test_concurrent_runs_keep_the_limits_of_both(tmp_path: Path) -> None:
    first, second = LearnedLimits(tmp_path / "l.json"), LearnedLimits(tmp_path / "l.json")
    first["a", "m"] = 1
    second["b", "m"] = 2
    assert dict(second) == {("a", "m"): 1, ("b", "m"): 2} == dict(LearnedLimits(tmp_path / "l.json"))


def test_unknown_content_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    path.write_text(json.dumps({"a": {"m": 5, "x": "wide", "y": -1, "z": True}, "note": 1}))
    learned = LearnedLimits(path)
    assert dict(learned) == {("a", "m"): 5}
    learned["a", "n"] = 6
    assert json.loads(path.read_text())["a"]["x"] == "wide"


def test_a_context_learns_into_it(tmp_path: Path) -> None:
    learned = LearnedLimits(tmp_path / "l.json")
    ctx = Context(model=KEY[1], endpoint=KEY[0], learned=learned, max_output_tokens=100)
    ctx.append({"role": "user", "content": "word " * 3_000})
    ctx.prepare()
    ctx.append({"role": "assistant", "content": "yes"})
    ctx.append({"role": "user", "content": "go on"})
    body = '{"error": {"message": "maximum context length is 2048 tokens, you requested 3100", "code": 400}}'
    ctx.prepare()
    ctx.recover(classify(400, body))
    assert LearnedLimits(tmp_path / "l.json")[KEY] == 2_048
