"""The project's own instructions: read from the working folder, bounded, and never from outside it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.agent.test_assemble import assembled

from foldline.agent.events import AgentEvent, Notice
from foldline.agent.instructions import instructions_text, project_instructions
from foldline.agent.settings.model import AgentSettings
from foldline.agent.tools.workspace import Workspace
from foldline.testing import FakeProvider
from foldline.tokens import ESTIMATE

RULES = "# Mill\n- Never push to main.\n- Always run make check."


def read(folder: Path, name: str | None = "AGENTS.md", window: int = 16_000) -> tuple[str, list[str]]:
    said: list[str] = []
    found = project_instructions(Workspace(folder), name, window, ESTIMATE, said.append)
    return instructions_text("You help.", found), said


def test_the_file_stands_whole_in_the_system_text(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(f"{RULES}\n", encoding="utf-8")
    text, said = read(tmp_path)
    assert text.startswith("You help.\n\nInstructions of this project, from AGENTS.md. ")
    assert f"<instructions>\n{RULES}\n</instructions>" in text
    assert said == []


@pytest.mark.parametrize("name", ["AGENTS.md", None])
def test_without_a_file_or_a_name_the_system_text_is_as_it_was(tmp_path: Path, name: str | None) -> None:
    if name is None:
        (tmp_path / "AGENTS.md").write_text(RULES, encoding="utf-8")
    assert read(tmp_path, name) == ("You help.", [])


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(" \n", encoding="utf-8")
    assert read(tmp_path) == ("You help.", [])


def test_a_large_file_is_kept_by_its_rules_within_its_share_and_that_is_said(tmp_path: Path) -> None:
    lines = [f"The module {n} is described at length here.\n- Never touch module {n}." for n in range(300)]
    (tmp_path / "AGENTS.md").write_text("\n".join(lines), encoding="utf-8")
    text, [said] = read(tmp_path)
    assert "Never touch module 0." in text
    assert "is described" not in text
    assert ESTIMATE.text(text) < 0.1 * 16_000 + 60
    assert said.startswith("AGENTS.md has ")
    assert "tokens, more than 1,600: " in said


def test_a_huge_file_is_read_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("- Never stop.\n" + "x " * 200_000, encoding="utf-8")
    text, [said] = read(tmp_path, window=1_000_000)
    assert "- Never stop." in text
    assert "xx" not in text
    assert "more than 64 KiB" in said


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("Never tell.", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    os.symlink(tmp_path / "secret.md", work / "AGENTS.md")
    for name in ("AGENTS.md", "../secret.md", str(tmp_path / "secret.md")):
        text, said = read(work, name)
        assert text == "You help."
        assert len(said) == 1
        assert said[0].startswith(f"{name} is left out: ")


@pytest.mark.parametrize("data", [b"\x00\x01\x02" * 100, None])
def test_what_is_no_text_is_left_out_and_that_is_said(tmp_path: Path, data: bytes | None) -> None:
    if data is None:
        (tmp_path / "AGENTS.md").mkdir()
    else:
        (tmp_path / "AGENTS.md").write_bytes(data)
    text, [said] = read(tmp_path)
    assert text == "You help."
    assert said.startswith("AGENTS.md is left out: ")


@pytest.mark.parametrize("file", ["AGENTS.md", "HOUSE.md"])
def test_an_agent_sends_the_file_of_its_folder_and_knows_its_source(tmp_path: Path, file: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / file).write_text(RULES, encoding="utf-8")
    fake = FakeProvider(["Hello."])
    heard: list[AgentEvent] = []
    settings = AgentSettings(instructions_file=file)

    async def talk() -> None:
        async with assembled(fake, tmp_path, settings, heard=heard) as agent:
            await agent.run("Hello")
            assert agent.session.instructions is not None
            assert agent.session.instructions.source == file

    asyncio.run(talk())
    assert RULES in str(fake.requests[0].body["messages"][0]["content"])
    assert not any(isinstance(event, Notice) for event in heard)


def test_a_rule_of_the_user_outlives_ten_windows_of_an_agent(tmp_path: Path) -> None:
    fake = FakeProvider(lambda body: "Much was done at the mill. " * 30, keep=400)

    async def talk() -> None:
        async with assembled(fake, tmp_path, window=4_000, tools=False) as agent:
            await agent.run("From now on, answer in German. Never push to main.")
            for number in range(60):
                await agent.run(f"And then {number}? " + "The wheel turns and turns. " * 40)

    asyncio.run(talk())
    asked = [str(call.body["messages"]) for call in fake.requests if "checkpoint" not in str(call.body["messages"][-1])]
    assert len(asked) > 50
    assert [at for at, body in enumerate(asked) if "From now on, answer in German." not in body] == []
    assert [at for at, body in enumerate(asked) if "Never push to main." not in body] == []
