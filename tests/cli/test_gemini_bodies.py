"""Bodies of Gemini from a file: read, checked, counted and fitted in the form they came in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from foldline.cli.main import cli
from foldline.testing import session


def body() -> dict[str, Any]:
    wires = session(12, dialect="gemini", result="a line of the file " * 60)
    return {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": wires,
        "cachedContent": "cachedContents/1",
    }


def invoke(*args: str) -> Any:
    return CliRunner().invoke(cli, list(args))


def test_a_body_of_gemini_is_known_by_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(body()))
    assert invoke("check", str(file)).exit_code == 0
    out = invoke("fit", str(file), "--max-tokens", "1500")
    assert out.exit_code == 0, out.output
    fitted = json.loads(out.stdout)
    assert fitted["systemInstruction"] == body()["systemInstruction"]
    assert fitted["cachedContent"] == "cachedContents/1"
    assert len(json.dumps(fitted["contents"])) < len(json.dumps(body()["contents"]))


def test_a_list_of_contents_is_known_too(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps([{"parts": [{"text": "Hello"}]}, {"role": "model", "parts": []}]))
    out = invoke("check", str(file), "--json")
    assert out.exit_code == 1
    assert "empty-content" in out.output
