from __future__ import annotations

from typing import Any

import pytest

from foldline.agent.settings.checks import Tree, leaves, looks_secret, values_of
from foldline.agent.settings.document import YamlDocument, check_document, read_yaml
from foldline.agent.settings.layers import FileSettings, merge, validate_merged


def tree(file: str = "f", **fields: Any) -> Tree:
    found = check_document(YamlDocument({"defaults": fields}, {}), file=file)
    assert found.faults == ()
    return found.defaults


def laid(*layers: dict[str, Any]) -> Any:
    out: Tree = {}
    for layer in layers:
        out = merge(out, tree(**layer))
    return values_of(out)


def test_blocks_are_laid_over_each_other_field_by_field() -> None:
    weak = {"session": {"context": {"max_history_tokens": 1, "tool_result_keep_last": 2}}, "compact_threshold": 0.5}
    strong = {"session": {"context": {"max_history_tokens": 9}}}
    assert laid(weak, strong) == {
        "session": {"context": {"max_history_tokens": 9, "tool_result_keep_last": 2}},
        "compact_threshold": 0.5,
    }


def test_a_model_that_is_named_replaces_the_weaker_one_whole() -> None:
    weak = {"model": {"provider": "anthropic", "name": "a", "max_output_tokens": 5}}
    assert laid(weak, {"model": "b"}) == {"model": {"name": "b"}}
    assert laid(weak, {"model": {"max_output_tokens": 6}})["model"] == {
        "provider": "anthropic",
        "name": "a",
        "max_output_tokens": 6,
    }


def test_a_policy_that_is_named_loses_the_settings_of_the_weaker_one() -> None:
    weak = {"policy": {"name": "sliding", "messages": 40}}
    assert laid(weak, {"policy": "cost"}) == {"policy": {"name": "cost"}}
    assert laid(weak, {"policy": {"messages": 50}}) == {"policy": {"name": "sliding", "messages": 50}}


def test_a_summariser_can_be_switched_off_and_on_again() -> None:
    assert laid({"summariser": "x"}, {"summariser": "off"}) == {"summariser": "off"}
    assert laid({"summariser": False}, {"summariser": {"name": "x"}}) == {"summariser": {"name": "x"}}


def test_a_tool_is_what_the_strongest_layer_that_names_it_says() -> None:
    weak = {"tools": {"allow": ["write_file", "run_command"], "off": ["fetch_url", "recall"]}}
    strong = {"tools": {"allow": ["fetch_url"], "off": ["run_command"]}}
    found = laid(weak, strong)["tools"]
    assert set(found["allow"]) == {"write_file", "fetch_url"}
    assert set(found["off"]) == {"recall", "run_command"}
    assert laid(weak, {"tools": {"off": []}})["tools"]["off"] == ["fetch_url", "recall"]


def test_an_mcp_server_with_a_command_replaces_the_one_of_its_name() -> None:
    weak = {"mcp": {"a": {"command": "x", "args": ["1"], "env": {"K": "v"}}, "b": {"url": "https://b.example"}}}
    found = laid(weak, {"mcp": {"a": {"url": "https://a.example"}}})["mcp"]
    assert found == {"a": {"url": "https://a.example"}, "b": {"url": "https://b.example"}}
    refined = laid(weak, {"mcp": {"a": {"allow": True}}})["mcp"]["a"]
    assert refined == {"command": "x", "args": ["1"], "env": {"K": "v"}, "allow": True}


def test_a_system_text_and_its_file_replace_each_other() -> None:
    assert laid({"system": "x"}, {"system_file": "y"}) == {"system_file": "y"}
    assert laid({"system_file": "y"}, {"system": "x"}) == {"system": "x"}


def test_after_laying_over_each_value_still_knows_its_file() -> None:
    out = merge(
        tree("weak", compact_threshold=0.5, tools={"off": ["recall"]}), tree("strong", tools={"off": ["fetch_url"]})
    )
    assert {name: given.source for name, given in leaves(out)} == {"compact_threshold": "weak", "tools.off": "strong"}


def checked(text: str) -> FileSettings:
    return check_document(read_yaml(text.encode(), file="agents.yaml"), file="agents.yaml")


def faults(text: str) -> list[str]:
    return [str(fault) for fault in checked(text).faults]


def only(text: str) -> str:
    [fault] = faults(text)
    return fault


def values(tree: dict[str, object]) -> dict[str, object]:
    return {name: given.value for name, given in leaves(tree)}


def test_a_word_stands_for_the_name_of_a_model_or_policy() -> None:
    found = checked("defaults: {model: gpt-4.1-mini, policy: cost, summariser: off}\n")
    assert found.faults == ()
    assert values(found.defaults) == {"model.name": "gpt-4.1-mini", "policy.name": "cost", "summariser": "off"}


def test_every_leaf_knows_its_place() -> None:
    found = checked("agents:\n  main:\n    session:\n      context:\n        max_history_tokens: 7\n")
    [(name, given)] = leaves(found.agents["main"])
    assert name == "session.context.max_history_tokens"
    assert (given.value, given.source, given.name) == (7, "agents.yaml:5", f"agents.main.{name}")


def test_an_agent_may_stand_at_top_level_and_so_may_fields_for_all() -> None:
    found = checked("main: {compact_threshold: 0.8}\nmodel: {name: x}\ncompact_threshold: 0.7\n")
    assert found.faults == ()
    assert values(found.agents["main"]) == {"compact_threshold": 0.8}
    assert values(found.defaults) == {"model.name": "x", "compact_threshold": 0.7}


def test_what_is_said_twice_is_a_fault() -> None:
    assert only("agents: {main: {}}\nmain: {}\n") == "agents.yaml: line 2: main: is given in agents too"
    fault = only("defaults: {policy: cost}\npolicy: quality\n")
    assert fault == "agents.yaml: line 2: policy: stands in defaults too (agents.yaml:1)"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("agent: {main: {}}", "line 1: agent: is not a setting; nearest is 'agents'"),
        ("profile: {x: {}}", "line 1: profile: is not a setting; nearest is 'profiles'"),
        ("compact_treshold: 1", "line 1: compact_treshold: is not a setting; nearest is 'compact_threshold'"),
        ("x: 1", "line 1: x: is not a setting; known are defaults, agents, profiles, or the name of an agent"),
        ("main: {polcy: cost}", "line 1: main.polcy: is not a setting; nearest is 'policy'"),
        ("main: {zzz: 1}", "line 1: main.zzz: is not a setting; known are model, policy, compact_threshold,"),
        ("main: {tools: {alow: []}}", "line 1: main.tools.alow: is not a setting; nearest is 'allow'"),
        ("main: {model: {max_tokens: 5}}", "main.model.max_tokens: is not a setting; nearest is 'max_"),
        ("main: {policy: best}", "line 1: main.policy: must be one of autopilot, sliding,"),
        ("main: {policy: {messages: 1}}", "main.policy.messages: must be from 2 to 100,000,000, not 1"),
        ("main: {compact_threshold: 90}", "main.compact_threshold: must be above 0 and at most 1, not 90"),
        ("main: {compact_threshold: }", "main.compact_threshold: must be above 0 and at most 1, not nothing"),
        ("main: {model: {max_input_tokens: '5'}}", "main.model.max_input_tokens: must be a whole number, not '5'"),
        ("main: {model: {max_input_tokens: true}}", "main.model.max_input_tokens: must be a whole number, not True"),
        ("main: {model: {base_url: localhost:1}}", "main.model.base_url: must be an http or https address"),
        ("main: {model: {base_url: 'http://x:99999999'}}", "main.model.base_url: must be an http or https address"),
        ("main: {model: {base_url: 'https://me@host'}}", "main.model.base_url: must hold no user or password"),
        ("main: {model: {dialect: openai}}", "main.model.dialect: must be one of openai-chat, openai-responses"),
        ("main: {model: {tools: auto}}", "main.model.tools: must be one of native, schema, not 'auto'"),
        ("main: {model: {api_key_env: $KEY}}", "must be the name of an environment variable, not '$KEY'"),
        ("main: {model: [a]}", "main.model: must be a block of fields, not ['a']"),
        ("main: {session: {on_disconnect: stop}}", "main.session.on_disconnect: must be one of pause, continue"),
        ("main: {session: {max_tool_iterations: 0}}", "main.session.max_tool_iterations: must be greater than 0"),
        ("main: {session: {context: {summarize_omitted: maybe}}}", "summarize_omitted: must be true or false"),
        ("main: {tools: {off: fetch_url}}", "main.tools.off: must be a list of names of tools, not 'fetch_url'"),
        ("main: {tools: {off: [x], allow: [x]}}", "main.tools.off: x is in allow too"),
        ("main: {tools: {command_timeout_seconds: 0}}", "must be above 0 and at most 86,400, not 0"),
        ("main: {subagents: {max_depth: -1}}", "main.subagents.max_depth: must be from 0 to 8, not -1"),
        ("main: {mcp: {git: }}", "main.mcp.git: must have a command to start, or the url of a server"),
        ("main: {mcp: {'a b': {command: x}}}", "main.mcp.a b: is no name"),
        (f"main: {{mcp: {{{'a' * 33}: {{command: x}}}}}}", "is no name"),
        ("main: {mcp: {git: {command: x, args: y}}}", "main.mcp.git.args: must be a list of texts, not 'y'"),
        ('main: {mcp: {git: {command: "x\\e[2J"}}}', "main.mcp.git.command: must be a text of one line"),
        ("main: {system: a, system_file: b}", "main.system_file: system is set too: one of them"),
        ("agents: {main: 3}", "agents.main: must be a block of fields, not 3"),
        ("agents: [main]", "line 1: agents: must be a block of names, not ['main']"),
        ("- main", "agents.yaml: must hold blocks of settings, not ['main']"),
    ],
)
def test_a_wrong_field_is_named_with_the_reason(text: str, fault: str) -> None:
    assert fault in only(text)


def test_all_faults_are_found_and_the_good_fields_stay() -> None:
    found = checked("main:\n  policy: best\n  zzz: 1\n  compact_threshold: 0.5\n  session: {context: {zz: 1}}\n")
    assert [str(each).partition(": ")[2].partition(":")[0] for each in found.faults] == ["line 2", "line 3", "line 5"]
    assert values(found.agents["main"]) == {"compact_threshold": 0.5}


@pytest.mark.parametrize(
    "text",
    [
        "main: {model: {name: x, extra: {api: sk-abcdefghijklmnop1234}}}",
        "main: {model: {base_url: 'https://x/?k=ghp_abcdefghijklmnopqrstuvwxyz0123'}}",
        "main: {mcp: {a: {url: 'https://x', headers: {Authorization: Bearer abcdefgh12345678}}}}",
        "main: {mcp: {a: {command: x, env: {PASSWORD: abcdefgh-abc}}}}",
        "main: {model: {base_url: 'https://me:abcdefgh@host'}}",
        "main: {mcp: {a: {command: x, env: {K: AKIAABCDEFGHIJKLMNOP}}}}",
        "main: {mcp: {a: {command: x, args: [--token=glpat-abcdefghijklmnopqrst]}}}",
        "main: {model: {api_key: sk-abcdefghijklmnop1234}}",
        "main: {tools: {allow: [sk-abcdefghijklmnop1234]}}",
    ],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(text: str) -> None:
    fault = only(text)
    assert "keys are not written here" in fault
    assert "abcdefgh" not in fault.lower()


@pytest.mark.parametrize(
    "text",
    [
        "task-list-of-many-long-words",
        "Bearer ${TRACKER_TOKEN_2}",
        "api_key=${TRACKER_TOKEN_2}",
        "gpt-4.1-mini",
        "risk-assessment",
    ],
)
def test_a_plain_text_is_no_key(text: str) -> None:
    assert not looks_secret("name", text)


def test_yes_and_no_are_understood_where_a_truth_value_is_asked_for() -> None:
    found = checked("main: {tools: {allow_private_urls: on}, session: {context: {summarize_omitted: yes}}}\n")
    assert found.faults == ()
    block = validate_merged(found.agents["main"])
    assert block.tools.allow_private_urls
    assert block.session is not None
    assert block.session.context.summarize_omitted
