from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import InvalidInput
from foldline.recorded.files import parse_session, read_session
from foldline.recorded.sessions import Session, detect_dialect

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "sessions").glob("*.json.gz"))
HELLO = {"role": "user", "content": "hello"}
REPLY = {"role": "assistant", "content": "hi"}


def write(folder: Path, name: str, value: Any) -> Path:
    """A file with one JSON value, or one value per line for .jsonl; gzip for .gz."""
    lines = value if name.removesuffix(".gz").endswith(".jsonl") else [value]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    path = folder / name
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return path


def parse(value: Any, **options: Any) -> Session:
    return parse_session(json.dumps(value).encode(), place="s.json", **options)


def parse_lines(*values: Any, **options: Any) -> Session:
    return parse_session("\n".join(map(json.dumps, values)).encode(), place="s.jsonl", **options)


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_session(data, place="s.json", **options)
    return str(caught.value)


# ------------------------------------------------------------------ formats


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_sessions_are_read_whole(path: Path) -> None:
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    session = read_session(path)
    assert list(session.messages) == recorded["messages"]
    assert (session.name, session.source, session.dialect) == (recorded["id"], recorded["source"], "openai-chat")
    assert session.licence == recorded["licence"]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl", "a.jsonl.gz", "a.txt", "a"])
def test_a_list_of_messages_is_read_under_any_file_name(tmp_path: Path, name: str) -> None:
    session = read_session(write(tmp_path, name, [HELLO, REPLY]))
    assert session.messages == (HELLO, REPLY)
    assert session.name == ("a" if name != "a.txt" else "a.txt")


def test_one_message_on_one_line_is_a_session() -> None:
    assert parse_lines(HELLO).messages == (HELLO,)


def test_blank_lines_and_windows_line_ends_are_no_records() -> None:
    data = b'\r\n{"role": "user", "content": "a"}\r\n\r\n{"role": "assistant", "content": "b"}\r\n'
    assert [m["content"] for m in parse_session(data, place="s").messages] == ["a", "b"]


def test_a_line_separator_inside_a_text_does_not_end_the_line() -> None:
    odd = {"role": "user", "content": "one\u2028two\x85three"}
    data = "\n".join(json.dumps(m, ensure_ascii=False) for m in (odd, REPLY)).encode()
    assert parse_session(data, place="s").messages == (odd, REPLY)


def test_a_byte_order_mark_is_no_character() -> None:
    assert parse_session(b"\xef\xbb\xbf" + json.dumps([HELLO]).encode(), place="s").messages == (HELLO,)


def test_system_text_and_tools_of_an_object_are_read() -> None:
    tool = {"name": "ls", "input_schema": {"type": "object"}}
    session = parse({"messages": [HELLO], "system": "Be brief.", "tools": [tool], "model": "m", "dialect": "anthropic"})
    assert (session.system, session.tools, session.model) == ("Be brief.", (tool,), "m")
    assert session.dialect == "anthropic"


def test_the_body_of_a_responses_request_is_read() -> None:
    session = parse({"input": [HELLO], "instructions": "Be brief.", "model": "m"})
    assert (session.dialect, session.messages, session.system) == ("openai-responses", (HELLO,), "Be brief.")


def test_unknown_fields_stay_in_the_messages() -> None:
    odd = {"role": "user", "content": [{"type": "hologram", "depth": 3}], "x-id": [1, None]}
    assert parse([odd]).messages == (odd,)


@pytest.mark.parametrize(
    ("message", "dialect"),
    [
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "openai-chat"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, "openai-chat"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, "openai-chat"),
        ({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, "openai-responses"),
        ({"type": "reasoning", "summary": []}, "openai-responses"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "openai-responses"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "source": {}}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "openai-chat"),
    ],
)
def test_the_dialect_is_detected_by_shapes_that_only_one_has(message: dict[str, Any], dialect: str) -> None:
    assert detect_dialect([HELLO, message, REPLY]) == dialect


def test_a_list_of_system_blocks_tells_anthropic() -> None:
    assert parse({"messages": [HELLO], "system": [{"type": "text", "text": "s"}]}).dialect == "anthropic"


def test_a_given_dialect_wins_over_the_shapes() -> None:
    assert parse([HELLO], dialect="anthropic").dialect == "anthropic"
    assert parse({"messages": [HELLO], "dialect": "openai-chat"}, dialect="anthropic").dialect == "anthropic"


# ------------------------------------------------------------------ Claude Code


def claude(kind: str, content: Any, *, uuid: str, reply: str | None = None, **extra: Any) -> dict[str, Any]:
    """A record as Claude Code 1.0 and 2.0 write it, reduced to the fields that matter here."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if reply:
        message |= {"id": reply, "type": "message", "model": "claude-sonnet-4-5", "stop_reason": None, "usage": {}}
    record = {"type": kind, "message": message, "uuid": uuid, "isSidechain": False, "sessionId": "s", "version": "2.0"}
    return record | extra


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "Glob", "input": {"pattern": "**/*.md"}}


def answer(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": f"files of {call}"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_claude_code_file_gives_the_messages_that_were_sent() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    session = parse_lines(
        {"type": "summary", "summary": "A title", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        claude("user", "Find the guides.", uuid="1"),
        claude("user", [text("The command's own text")], uuid="2", isMeta=True),
        claude("assistant", [thinking], uuid="3", reply="msg_1"),
        claude("assistant", [text("Two searches.")], uuid="4", reply="msg_1"),
        claude("assistant", [use("t1")], uuid="5", reply="msg_1"),
        claude("assistant", [use("t2")], uuid="6", reply="msg_1"),
        claude("user", [answer("t1")], uuid="7", toolUseResult={"filenames": []}),
        claude("user", [answer("t2")], uuid="8", toolUseResult={"filenames": []}),
        {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted", "uuid": "9"},
        claude("assistant", [text("Done.")], uuid="10", reply="msg_2"),
    )
    assert session.messages == (
        {"role": "user", "content": "Find the guides."},
        {"role": "user", "content": [text("The command's own text")]},
        {"role": "assistant", "content": [thinking, text("Two searches."), use("t1"), use("t2")]},
        {"role": "user", "content": [answer("t1"), answer("t2")]},
        {"role": "assistant", "content": [text("Done.")]},
    )
    assert (session.dialect, session.model) == ("anthropic", "claude-sonnet-4-5")


def test_a_reply_that_goes_on_after_its_first_result_is_one_message() -> None:
    session = parse_lines(
        claude("user", "go", uuid="1"),
        claude("assistant", [use("t1")], uuid="2", reply="m"),
        claude("user", [answer("t1")], uuid="3"),
        claude("assistant", [use("t2")], uuid="4", reply="m"),
        claude("user", [answer("t2"), text("<reminder>")], uuid="5"),
    )
    assert [m["content"] for m in session.messages[1:]] == [
        [use("t1"), use("t2")],
        [answer("t1"), answer("t2"), text("<reminder>")],
    ]


def test_repeated_and_internal_records_of_claude_code_are_omitted() -> None:
    first = claude("user", "go", uuid="1")
    session = parse_lines(
        first,
        first,
        claude("assistant", [use("t1")], uuid="2", reply="m"),
        claude("assistant", [use("t1")], uuid="3", reply="m"),
        claude("user", [answer("t1")], uuid="4"),
        claude("user", "side", uuid="5", isSidechain=True),
        claude("assistant", [text("side reply")], uuid="6", reply="side", isSidechain=True),
        claude("user", "This session is being continued", uuid="7", isCompactSummary=True),
        claude("assistant", [text("API Error: 529")], uuid="8", isApiErrorMessage=True),
    )
    assert session.messages == (
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use("t1")]},
        {"role": "user", "content": [answer("t1")]},
    )


def test_a_file_that_is_all_side_chain_is_a_session() -> None:
    session = parse_lines(
        claude("user", "task", uuid="1", isSidechain=True),
        claude("assistant", [text("ok")], uuid="2", reply="m", isSidechain=True),
    )
    assert len(session.messages) == 2


# ------------------------------------------------------------------ Codex


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2025-12-08T00:37:46.102Z", "type": kind, "payload": payload}


CALL = {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def test_a_codex_rollout_gives_its_response_items() -> None:
    session = parse_lines(
        codex("session_meta", id="s", cwd="/p", cli_version="0.65.0", base_instructions={"text": "You are Codex."}),
        codex("response_item", **ASKED),
        codex("event_msg", type="user_message", message="list"),
        codex("turn_context", cwd="/p", model="gpt-5-codex"),
        codex("response_item", **THOUGHT),
        codex("response_item", **CALL),
        codex("response_item", **OUTPUT),
        codex("response_item", type="ghost_snapshot", ghost_commit={}),
        codex("compacted", message="summary"),
        codex("event_msg", type="token_count", info=None),
    )
    assert session.messages == (ASKED, THOUGHT, CALL, OUTPUT)
    assert (session.dialect, session.model, session.system) == ("openai-responses", "gpt-5-codex", "You are Codex.")


def test_an_older_codex_file_of_bare_items_is_read() -> None:
    session = parse_lines(
        {"id": "s", "timestamp": "2025-08-01T00:00:00Z", "instructions": None, "git": {}},
        {"record_type": "state"},
        {**ASKED, "id": None},
        CALL,
        {**OUTPUT, "output": {"content": "a.py", "success": True}},
    )
    assert session.messages == (ASKED, CALL, OUTPUT)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "s.json: is empty"),
        (b" \n\t", "s.json: is empty"),
        (b"hello", "s.json: line 1 column 1: not JSON: expecting value"),
        (b'[{"role": "user",\n  "content": "a"', "s.json: line 2 column 17: not JSON"),
        (b'[{"role": "user", "content": NaN}]', "NaN is not a JSON number"),
        (b"[" * 100_000, "s.json: line 1 column 1: nested too deeply"),
        (b'{"role": "user"} {"role": "user"}', "s.json: line 1 column 17: not JSON: more text after the end"),
        (b'{"role": "user"}\n{"role": "user"}, 1', "s.json: line 2: not one JSON value on this line"),
        (b'{"role": "user"}\n{"role"', "s.json: line 2 column 8: not JSON"),
        (b'{"a": [1\n2]}', "s.json: line 2 column 1: not JSON"),
        (b"[" + b"9" * 5_000 + b"]", "s.json: line 1 column 1: not JSON"),
        (b"\xff\xfe[]", "s.json: byte 0: not UTF-8 text"),
        ('[{"role": "user", "content": "é"}]'.encode("latin-1"), "s.json: byte 30: not UTF-8 text"),
        (gzip.compress(b"[]" * 1_000, mtime=0)[:-9], "s.json: the gzip data is cut off after"),
        (gzip.compress(b"[]", mtime=0)[:-8] + b"\0" * 8, "s.json: the gzip data is damaged"),
        (b"[]", "s.json: holds an empty list, no messages"),
        (b"42", "s.json: not a message list: a number"),
        (b'"text"', "s.json: not a message list: text"),
        (b"null", "s.json: not a message list: null"),
        (b"{}", 's.json: not a message list: "messages" is missing'),
        (b'{"messages": {}}', 's.json: not a message list: "messages" is an object, not a list'),
        (b'{"messages": []}', 's.json: "messages" is an empty list'),
        (b'{"messages": ["a"]}', "s.json: message 0: not a message: text"),
        (b'[{"role": "user", "content": "a"}, 7]', "s.json: message 1: not a message: a number"),
        (b'[{"content": "a"}]', 's.json: message 0: "role" is missing'),
        (b'[{"role": 3, "content": "a"}]', 's.json: message 0: "role" is a number, not text'),
        (b'[{"role": "user", "content": true}]', 's.json: message 0: "content" is true or false, not text or a list'),
        (b'{"messages": [{"role": "user"}], "system": 1}', 's.json: "system" is a number, not text or a list'),
        (b'{"messages": [{"role": "user"}], "tools": {}}', 's.json: "tools" is not a list of objects'),
        (b'{"messages": [{"role": "user"}], "dialect": "x"}', "s.json: unknown dialect 'x'; known are openai-chat, "),
        (b'{"type": "session_meta", "payload": {}}', "s.json: holds no messages of a conversation"),
        (b'{"type": "session_meta", "payload": {}}\n7', "s.json: line 2: not a record: a number"),
        (b'{"type": "response_item", "payload": 7}', 's.json: "payload" is not an object'),
        (b'{"type": "user", "message": {"content": 7}}', 's.json: "message.content" is not text or a list of blocks'),
    ],
)
def test_bad_input_is_refused_with_file_and_place(data: bytes, said: str) -> None:
    assert said in refusal(data)
    assert "\n" not in refusal(data)


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    assert refusal(b"[]", dialect="cohere") == (
        "dialect: unknown dialect 'cohere'; known are openai-chat, openai-responses, anthropic, gemini"
    )


def test_a_claude_code_session_is_not_mistaken_for_another_dialect() -> None:
    data = json.dumps(claude("user", "go", uuid="1")).encode()
    assert refusal(data, dialect="openai-chat") == "s.json: this session is anthropic, not openai-chat"


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.json", "no such file or directory"), (tmp_path, "is a directory")):
        with pytest.raises(InvalidInput) as caught:
            read_session(path)
        assert str(caught.value) == f"{path}: {reason}"
        assert caught.value.place == str(path)


# ------------------------------------------------------------------ anything at all

WORDS = st.sampled_from(
    "role type content messages message input payload user assistant tool_result tool_use text session_meta "
    "response_item record_type state model uuid isSidechain output id call_id base_instructions".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=6,
)


def read_or_refuse(data: bytes) -> None:
    """Read it or raise InvalidInput; nothing else is allowed."""
    try:
        session = parse_session(data, place="x.json")
    except InvalidInput as error:
        said = str(error)
    else:
        assert session.messages
        assert all(isinstance(message, dict) for message in session.messages)
        return
    assert said.startswith("x.json")
    assert "\n" not in said


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refuse(data)
    read_or_refuse(gzip.compress(data, mtime=0))


@costly
@given(VALUES)
def test_any_json_value_is_read_or_refused(value: Any) -> None:
    read_or_refuse(json.dumps(value).encode())


@costly
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_any_json_lines_are_read_or_refused(values: list[Any]) -> None:
    read_or_refuse("\n".join(map(json.dumps, values)).encode())


RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "session_meta", "response_item", "turn_context"])},
    optional={
        "message": st.dictionaries(WORDS, VALUES, max_size=3),
        "payload": st.dictionaries(WORDS, VALUES, max_size=3) | VALUES,
        "uuid": VALUES,
        "isSidechain": VALUES,
    },
)


@costly
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_any_records_of_agents_are_read_or_refused(values: list[Any]) -> None:
    read_or_refuse("\n".join(map(json.dumps, values)).encode())
