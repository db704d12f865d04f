"""Messages as real clients send them, in each dialect, and the same messages damaged at a random place."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

Wire = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="

words = st.text(min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
ids = st.sampled_from(["call_1", "toolu_02", "c-3", "d"])
names = st.sampled_from(["read_file", "bash", "web_fetch"])
objects = st.dictionaries(words, st.one_of(words, st.integers(), st.none(), st.booleans()), max_size=3)
extras = st.dictionaries(st.sampled_from(["x-mine", "cache_control", "metadata"]), objects, max_size=1)


def also(base: st.SearchStrategy[Wire]) -> st.SearchStrategy[Wire]:
    """The object, perhaps with a field that nobody knows."""
    return st.builds(lambda wire, extra: {**wire, **extra}, base, extras)


def block(kind: str, **fields: Any) -> st.SearchStrategy[Wire]:
    return also(st.fixed_dictionaries({"type": st.just(kind), **fields}))


def lists(*blocks: st.SearchStrategy[Wire]) -> st.SearchStrategy[list[Wire]]:
    return st.lists(st.one_of(*blocks), min_size=1, max_size=4)


unknown = block("from_the_future", blob=objects)

# --- Chat Completions ------------------------------------------------------------------------------------------------

chat_text = block("text", text=words)
chat_image = block(
    "image_url",
    image_url=st.fixed_dictionaries(
        {"url": st.sampled_from([f"data:image/png;base64,{PIXEL}", "https://example.org/a.png"])},
        optional={"detail": st.sampled_from(["low", "high"])},
    ),
)
chat_file = block(
    "file", file=st.fixed_dictionaries({"filename": words, "file_data": st.just("data:application/pdf;base64,AA==")})
)
chat_audio = block("input_audio", input_audio=st.just({"data": "AAAA", "format": "wav"}))
chat_function = block(
    "function", id=ids, function=st.fixed_dictionaries({"name": names, "arguments": objects.map(json.dumps)})
)
chat_custom = block("custom", id=ids, custom=st.fixed_dictionaries({"name": names, "input": words}))
chat_calls = st.lists(st.one_of(chat_function, chat_custom), min_size=1, max_size=3, unique_by=lambda call: call["id"])
chat_wires: st.SearchStrategy[Wire] = st.one_of(
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("user"),
                "content": st.one_of(words, lists(chat_text, chat_image, chat_file, chat_audio, unknown)),
            },
            optional={"name": names},
        )
    ),
    also(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["system", "developer"]),
                "content": st.one_of(words, lists(chat_text, unknown)),
            },
            optional={"name": names},
        )
    ),
    also(
        st.fixed_dictionaries(
            {"role": st.just("assistant"), "content": st.one_of(words, lists(chat_text, unknown))},
            optional={"tool_calls": chat_calls, "reasoning_content": words, "refusal": st.none()},
        )
    ),
    also(
        st.fixed_dictionaries(
            {"role": st.just("assistant"), "content": st.sampled_from([None, ""]), "tool_calls": chat_calls},
            optional={"reasoning_details": lists(block("reasoning.text", text=words)), "function_call": st.none()},
        )
    ),
    also(st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none(), "refusal": words})),
    also(st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none(), "audio": st.just({"id": "a"})})),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("assistant"),
                "content": st.none(),
                "function_call": st.just({"name": "f", "arguments": ""}),
            }
        )
    ),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("tool"),
                "tool_call_id": ids,
                "content": st.one_of(st.just(""), words, lists(chat_text, chat_image)),
            }
        )
    ),
)

# --- Messages --------------------------------------------------------------------------------------------------------

claude_text = block("text", text=words)
claude_image = block(
    "image",
    source=st.sampled_from(
        [
            {"type": "base64", "media_type": "image/png", "data": PIXEL},
            {"type": "url", "url": "https://example.org/a.png"},
            {"type": "file", "file_id": "file_1"},
        ]
    ),
)
claude_document = block(
    "document",
    source=st.sampled_from(
        [
            {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            {"type": "text", "media_type": "text/plain", "data": "all of it"},
            {"type": "content", "content": [{"type": "text", "text": "a piece"}]},
        ]
    ),
)
claude_thinking = st.one_of(  # without `also`: no cache marker may stand on thinking
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": words, "signature": st.just("c2ln")}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": st.just("Zz")}),
)
claude_call = block("tool_use", id=ids, name=names, input=objects)
claude_server = st.one_of(
    block("server_tool_use", id=st.just("s1"), name=st.just("web_search"), input=objects),
    block("web_search_tool_result", tool_use_id=st.just("s1"), content=st.just([])),
)
claude_result = st.one_of(
    block("tool_result", tool_use_id=ids),
    block("tool_result", tool_use_id=ids, content=st.one_of(st.just(""), words, lists(claude_text, claude_image))),
    block("tool_result", tool_use_id=ids, is_error=st.just(True), content=words),
)


def _once(blocks: list[Wire], field: str) -> list[Wire]:
    kept = {each[field]: each for each in reversed(blocks) if field in each}
    return list(reversed(kept.values()))


claude_wires: st.SearchStrategy[Wire] = st.one_of(
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("user"),
                "content": st.one_of(words, lists(claude_text, claude_image, claude_document, unknown)),
            }
        )
    ),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("user"),
                "content": st.builds(
                    lambda results, rest: [*_once(results, "tool_use_id"), *rest],
                    lists(claude_result),
                    st.lists(st.one_of(claude_text, claude_image), max_size=2),
                ),
            }
        )
    ),
    also(st.fixed_dictionaries({"role": st.just("assistant"), "content": words})),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("assistant"),
                "content": st.builds(
                    lambda thoughts, said, calls: [*thoughts, *said, *_once(calls, "id")],
                    st.lists(claude_thinking, max_size=1),
                    lists(claude_text, claude_server, unknown),
                    st.lists(claude_call, max_size=2),
                ),
            }
        )
    ),
)

# --- Responses -------------------------------------------------------------------------------------------------------

item_text = block("input_text", text=words)
item_image = block("input_image", image_url=st.just(f"data:image/png;base64,{PIXEL}"), detail=st.just("auto"))
item_file = block("input_file", filename=words, file_data=st.just("data:application/pdf;base64,AA=="))
said = block("output_text", text=words, annotations=st.just([]))
refused = block("refusal", refusal=words)
item_wires: st.SearchStrategy[Wire] = st.one_of(
    also(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "system", "developer"]),
                "content": st.one_of(words, lists(item_text, item_image, item_file, unknown)),
            },
            optional={"type": st.just("message")},
        )
    ),
    block("message", role=st.just("assistant"), content=lists(said, refused), id=st.just("msg_1")),
    block("function_call", id=st.just("fc_1"), call_id=ids, name=names, arguments=objects.map(json.dumps)),
    block("custom_tool_call", call_id=ids, name=names, input=words),
    block("computer_call", call_id=ids, action=st.just({"type": "click", "x": 1, "y": 2})),
    block("local_shell_call", call_id=ids, action=st.just({"type": "exec", "command": ["ls"]})),
    block("shell_call", call_id=ids, action=st.just({"commands": ["ls"]})),
    block("apply_patch_call", call_id=ids, operation=st.just({"type": "delete_file", "path": "a"})),
    block("function_call_output", call_id=ids, output=st.one_of(words, lists(item_text, item_image, item_file))),
    block("custom_tool_call_output", call_id=ids, output=words),
    block(
        "computer_call_output",
        call_id=ids,
        output=st.just({"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL}"}),
    ),
    block(
        "shell_call_output",
        call_id=ids,
        output=st.lists(st.fixed_dictionaries({"stdout": words, "stderr": words, "outcome": objects}), max_size=2),
    ),
    block("local_shell_call_output", id=ids, output=words),
    block("apply_patch_call_output", call_id=ids, status=st.just("completed")),
    block("reasoning", id=st.just("rs_1"), summary=lists(block("summary_text", text=words)), encrypted_content=words),
    block("web_search_call", id=st.just("ws_1"), status=st.just("completed")),
    block("item_reference", id=words),
    block("compaction", encrypted_content=words),
    block("mcp_approval_response", approval_request_id=words, approve=st.booleans()),
)

# --- Gemini ----------------------------------------------------------------------------------------------------------


def part(**fields: Any) -> st.SearchStrategy[Wire]:
    return also(st.fixed_dictionaries(fields))


signatures = st.just("c2ln")
gemini_text = part(text=words)
gemini_data = part(
    inlineData=st.sampled_from(
        [{"mimeType": "image/png", "data": PIXEL}, {"mimeType": "application/pdf", "data": "AAAA"}]
    )
)
gemini_file = part(fileData=st.just({"mimeType": "image/png", "fileUri": "https://example.org/a.png"}))
gemini_thought = part(text=words, thought=st.just(True))
gemini_signed = part(text=st.one_of(words, st.just("")), thoughtSignature=signatures)
gemini_code = st.one_of(
    part(executableCode=st.just({"language": "PYTHON", "code": "1"})),
    part(codeExecutionResult=st.just({"outcome": "OUTCOME_OK", "output": "1"})),
)
gemini_call = also(
    st.fixed_dictionaries(
        {"functionCall": st.fixed_dictionaries({"name": names, "args": objects}, optional={"id": ids})},
        optional={"thoughtSignature": signatures},
    )
)
gemini_response = part(
    functionResponse=st.fixed_dictionaries(
        {
            "name": names,
            "response": st.one_of(
                words.map(lambda text: {"output": text}),
                words.map(lambda text: {"error": text}),
                st.fixed_dictionaries({"lines": st.lists(words), "count": st.integers()}),
            ),
        },
        optional={"id": ids},
    )
)
gemini_wires: st.SearchStrategy[Wire] = st.one_of(
    also(
        st.fixed_dictionaries(
            {"parts": lists(gemini_text, gemini_data, gemini_file)}, optional={"role": st.just("user")}
        )
    ),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("user"),
                "parts": st.builds(
                    lambda results, rest: [*results, *rest], lists(gemini_response), st.lists(gemini_text, max_size=1)
                ),
            }
        )
    ),
    also(
        st.fixed_dictionaries(
            {
                "role": st.just("model"),
                "parts": st.builds(
                    lambda said, calls: [*said, *calls],
                    lists(gemini_thought, gemini_text, gemini_signed, gemini_code),
                    st.lists(gemini_call, max_size=3),
                ),
            }
        )
    ),
)

WIRES: dict[str, st.SearchStrategy[Wire]] = {
    "openai-chat": chat_wires,
    "openai-responses": item_wires,
    "anthropic": claude_wires,
    "gemini": gemini_wires,
}
any_dialect = st.sampled_from(sorted(WIRES))

# --- damage ----------------------------------------------------------------------------------------------------------

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([float("nan"), "", " ", "half \ud83d", [], {}, [None], ["bare"], {"type": None}, "tool", "a.b:c"]),
    st.text(max_size=4),
)


@st.composite
def damaged(draw: st.DrawFn, wires: st.SearchStrategy[Wire]) -> Wire:
    """A legal message in which one to three values, at any depth, were replaced, removed or doubled."""
    wire = copy.deepcopy(draw(wires))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = wire
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            how = draw(st.sampled_from(["replace", "remove", "double"]))
            if how == "replace":
                place[key] = copy.deepcopy(draw(junk))
            elif how == "remove":
                del place[key]
            elif isinstance(place, list):
                place.append(copy.deepcopy(place[key]))
            break
    return wire


@st.composite
def in_dialect(draw: st.DrawFn, *, broken: bool = False) -> tuple[str, Wire]:
    """A dialect and a message of it, legal or damaged."""
    dialect = draw(any_dialect)
    return dialect, draw(damaged(WIRES[dialect]) if broken else WIRES[dialect])
