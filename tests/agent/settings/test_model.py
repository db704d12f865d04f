from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from foldline import Context
from foldline.agent.settings.connections import McpSettings
from foldline.agent.settings.document import YamlDocument, check_document
from foldline.agent.settings.layers import settings_schema
from foldline.agent.settings.model import AgentSettings, ModelSettings, PolicySettings, SessionSettings, ToolSettings
from foldline.agent.tools.schema import faults
from foldline.engine.presets import POLICIES, POLICY_SETTINGS, policy_names
from foldline.engine.settings import ContextSettings
from foldline.errors import InvalidInput
from foldline.reducers.archive_results import ArchiveResults
from foldline.reducers.arrival import RepeatedLines
from foldline.reducers.digest import Digest
from foldline.reducers.mask import Mask
from foldline.reducers.summarize import Summarize
from foldline.reducers.truncate import OutputLimits, ResultLimit


def made(name: str, **settings: Any) -> Any:
    return PolicySettings(name=name, **settings).value(ContextSettings(), None)


def test_without_settings_the_policy_is_balanced_and_a_turn_has_fifty_rounds() -> None:
    settings = AgentSettings()
    assert settings.policy_value() == POLICIES["balanced"]
    assert settings.max_tool_iterations == 50
    assert AgentSettings(session=SessionSettings()).max_tool_iterations == 25


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_can_be_named_and_switched_off(name: str) -> None:
    assert made(name).name == name or name.startswith("autopilot")
    off = "auto_compact" if name == "checkpoint" else "auto"
    assert off in POLICY_SETTINGS[name]
    assert made(name, **{off: False}).auto is False


def test_each_preset_takes_its_own_settings() -> None:
    assert made("autopilot", max_context_bytes=30_000, keep_recent=4).trigger.bytes == 30_000
    [mask] = made("autopilot", keep_recent=4).reducers
    assert isinstance(mask, Mask)
    assert mask.keep_last == 4
    assert made("sliding", messages=40).trigger.messages == 40
    checkpoint = made("checkpoint", reserve_tokens=99, output_max_lines=7, tool_summary_strategy="heuristic")
    assert checkpoint.trigger.reserve.reserve_tokens == 99
    assert [r.max_lines for r in checkpoint.guard if isinstance(r, OutputLimits)] == [7]
    assert [r.strategy for r in checkpoint.always if isinstance(r, ArchiveResults)] == ["heuristic"]
    balanced = made("balanced", trigger=0.8, landing=0.5)
    assert (balanced.trigger.fraction, balanced.landing) == (0.8, 0.5)


def test_what_stays_and_what_arrives_can_be_set_for_our_policies() -> None:
    usual = made("economical")
    set_ = made("economical", keep=0.1, arrival_share=0.5, arrival_of_result=0.3)
    assert {r.keep for r in set_.reducers if isinstance(r, Digest | Summarize)} == {0.1}
    assert {r.name for r in set_.reducers} == {r.name for r in usual.reducers}
    arriving = set_.guard[1]
    assert (arriving.share, arriving.of_result, arriving.group) == (0.5, 0.3, 0.5)
    arriving = made("economical", arrival_share=0.03).guard[1]
    assert (arriving.share, arriving.of_result, arriving.group) == (0.03, usual.guard[1].of_result, 0.5)
    assert made("quality", keep=0.8) == POLICIES["quality"]


def sent(policy: Any) -> tuple[int, int]:
    """Characters of the first result of a session as it is first sent, and of the last request of all."""
    ctx = Context(policy=policy, window=6_000, max_output_tokens=0)
    ctx.append({"role": "user", "content": "read them"})
    requests = []
    for number in range(12):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ctx.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"value_{number}_{line} = {line}" for line in range(150))
        ctx.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
        requests.append(ctx.prepare().messages)
    return len(requests[0][-1]["content"]), sum(len(str(message["content"])) for message in requests[-1])


def test_a_larger_share_on_arrival_lets_more_of_a_result_in_and_a_smaller_landing_less_of_all() -> None:
    little, usual, much = (sent(made("balanced", arrival_share=share)) for share in (0.02, 0.06, 0.3))
    assert little[0] < usual[0] < much[0]
    whole = {"arrival_share": 1.0, "arrival_of_result": 1.0}
    assert sent(made("balanced", keep=0.1, landing=0.4, **whole))[1] < sent(made("balanced", keep=0.9, **whole))[1]


def test_a_setting_of_another_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInput, match=r"^landing: is no setting of sliding; known are tokens, messages"):
        PolicySettings(name="sliding", landing=0.5)
    with pytest.raises(InvalidInput, match=r"what layered takes is set as session\.context"):
        PolicySettings(name="layered", max_tokens=1)
    with pytest.raises(InvalidInput, match="what confirm takes is set as compact_threshold"):
        PolicySettings(name="confirm", trigger=0.5)


def test_a_policy_lands_below_its_trigger() -> None:
    with pytest.raises(InvalidInput, match=r"^landing: must land below its trigger: landing 0.9, trigger 0.8"):
        PolicySettings(name="balanced", trigger=0.8, landing=0.9)
    with pytest.raises(InvalidInput, match=r"^trigger: must land below"):
        PolicySettings(name="balanced", trigger=0.4)


def test_a_threshold_adds_the_question_to_any_policy() -> None:
    asked = AgentSettings(policy=PolicySettings(name="cost"), compact_threshold=0.8).policy_value()
    assert (asked.name, asked.consent_at) == ("cost", 0.8)
    assert AgentSettings(policy=PolicySettings(name="cost")).policy_value().consent_at is None


def test_limits_of_single_tools_go_before_the_guard_of_any_policy() -> None:
    tools = ToolSettings(max_result_tokens={"read_file": 50})
    policy = AgentSettings(tools=tools).policy_value()
    first, *rest = policy.guard
    assert isinstance(first, ResultLimit)
    assert isinstance(rest[0], RepeatedLines)
    ctx = Context(policy=policy, window=128_000)
    ctx.append({"role": "user", "content": "read them"})
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("read_file", "other")
    ]
    ctx.append({"role": "assistant", "content": None, "tool_calls": calls})
    text = "\n".join(f"line {number} of the file" for number in range(400))
    for name in ("read_file", "other"):
        ctx.append({"role": "tool", "tool_call_id": name, "content": text})
    sent = {m["tool_call_id"]: m["content"] for m in ctx.prepare().messages if m["role"] == "tool"}
    assert "[truncated: kept first ~50 of" in sent["read_file"]
    assert sent["other"] == text


def test_under_layered_they_are_the_limits_that_it_has_itself() -> None:
    settings = AgentSettings(
        policy=PolicySettings(name="layered"),
        tools=ToolSettings(max_result_tokens={"read_file": 50, "bash": 60}),
        session=SessionSettings(context=ContextSettings(tool_result_limits={"bash": 70})),
    )
    [guard] = settings.policy_value().guard
    assert isinstance(guard, ResultLimit)
    assert (guard.limit_tokens, dict(guard.per_tool)) == (8_000, {"read_file": 50, "bash": 70})


def test_an_mcp_server_has_a_command_or_an_address() -> None:
    with pytest.raises(InvalidInput, match="must have a command to start, or the url"):
        McpSettings()
    with pytest.raises(InvalidInput, match="and not both"):
        McpSettings(command="x", url="https://example.org")
    with pytest.raises(InvalidInput, match="headers: is of no use to a server with a command"):
        McpSettings(command="x", headers={"a": "b"})
    with pytest.raises(InvalidInput, match="args: is of no use to a server with a url"):
        McpSettings(url="https://example.org", args=("x",))


def test_values_of_the_environment_come_in_only_when_asked_for() -> None:
    server = McpSettings(command="x", env={"A": "Bearer ${TOKEN} and ${OTHER}", "B": "plain $HOME"})
    assert server.missing({"TOKEN": "1"}) == [("env.A", "OTHER")]
    with pytest.raises(InvalidInput, match=r"env\.A: the environment has no OTHER"):
        server.resolved({"TOKEN": "1"})
    # A value is put in as it is: one that looks like a variable is not looked up again.
    filled = server.resolved({"TOKEN": "${OTHER}", "OTHER": "o"})
    assert filled.env == {"A": "Bearer ${OTHER} and o", "B": "plain $HOME"}


def test_the_window_of_a_model_is_set_or_goes_with_its_name() -> None:
    assert ModelSettings(max_input_tokens=5).limit_tokens == 5
    assert ModelSettings(name="claude-sonnet-4-20250514").limit_tokens == 200_000
    assert ModelSettings().limit_tokens == 128_000


FILE = {
    "defaults": {"policy": "cost", "model": {"name": "m", "max_input_tokens": 9_000, "extra": {"temperature": 0.2}}},
    "agents": {"main": {"summariser": "off", "session": {"context": {"tool_result_limits": {"bash": 5}}}}},
    "profiles": {"cheap": {"mcp": {"a": {"url": "https://a.example", "allow": True}}}},
    "compact_threshold": 0.5,
    "other": {"schedule": {"a": {"cron": "* * * * *", "prompt": "Go", "deliver": [{"file": "x"}], "max_late": "12h"}}},
}


def test_the_schema_takes_what_the_file_reader_takes() -> None:
    assert check_document(YamlDocument(FILE, {}), file="agents.yaml").faults == ()
    assert faults(settings_schema(), FILE) == ()


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        ({"polcy": "cost"}, "defaults.polcy"),
        ({"compact_threshold": 7}, "defaults.compact_threshold"),
        ({"policy": {"messages": 1}}, "defaults.policy"),
        ({"session": {"max_tool_iterations": 0}}, "defaults.session"),
        ({"schedule": {"a": {"prompt": "Go"}}}, "defaults.schedule.a"),
        ({"tools": {"max_result_tokens": {"bash": "many"}}}, "defaults.tools.max_result_tokens.bash"),
    ],
)
def test_the_schema_refuses_what_the_file_reader_refuses(agent: dict[str, Any], place: str) -> None:
    [fault] = faults(settings_schema(), {"defaults": agent})
    assert fault.startswith(f"{place}: ")


def test_every_field_has_a_meaning() -> None:
    blocks = settings_schema()["$defs"]
    fields = {(block, name): field for block in blocks for name, field in blocks[block].get("properties", {}).items()}
    assert len(fields) > 80
    assert [where for where, field in fields.items() if not field.get("description")] == []


def test_settings_that_are_copied_with_changes_are_checked_again() -> None:
    settings = AgentSettings(tools=ToolSettings(allow=frozenset({"write_file"})))
    changed = replace(settings, tools=replace(settings.tools, off=frozenset({"recall"})))
    assert changed.tools == ToolSettings(allow=frozenset({"write_file"}), off=frozenset({"recall"}))
    with pytest.raises(InvalidInput, match=r"^keep_calls: must be from 1 to"):
        replace(settings, keep_calls=0)
    with pytest.raises(InvalidInput, match=r"^sumariser: is not a setting"):
        AgentSettings(sumariser=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("module", ["foldline", "foldline.cli.main", "foldline.engine.context"])
def test_pydantic_is_loaded_only_for_settings(module: str) -> None:
    code = f"import sys, {module}; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_pydantic_the_error_names_the_extra() -> None:
    code = (
        "import importlib.util as util; find = util.find_spec; "
        "util.find_spec = lambda name, *more: None if name == 'pydantic' else find(name, *more); "
        "import foldline.agent.settings.file"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra" in done.stderr
    assert "foldline[chat]" in done.stderr


def test_when_a_summary_is_written_ahead_can_be_set_and_switched_off() -> None:
    assert [made(name, ahead=0.5).ahead for name in ("balanced", "sliding", "checkpoint")] == [0.5, 0.5, 0.5]
    assert made("economical", ahead=0.0).ahead == 0.0
    with pytest.raises(InvalidInput, match="ahead: is no setting of autopilot"):
        PolicySettings(name="autopilot", ahead=0.5)
