from __future__ import annotations

from typing import Any

from foldline.agent.settings.block_reader import checked_file
from foldline.agent.settings.layers import Tree, flat, merged, plain
from foldline.agent.settings.yaml_lines import YamlDocument


def tree(file: str = "f", **fields: Any) -> Tree:
    found = checked_file(YamlDocument({"defaults": fields}, {}), file=file)
    assert found.faults == ()
    return found.defaults


def laid(*layers: dict[str, Any]) -> Any:
    out: Tree = {}
    for layer in layers:
        out = merged(out, tree(**layer))
    return plain(out)


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
    out = merged(
        tree("weak", compact_threshold=0.5, tools={"off": ["recall"]}), tree("strong", tools={"off": ["fetch_url"]})
    )
    assert {name: given.source for name, given in flat(out)} == {"compact_threshold": "weak", "tools.off": "strong"}
