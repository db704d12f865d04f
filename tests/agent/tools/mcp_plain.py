"""A small MCP server without any package, which starts in no time and is not well-behaved."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

LONG = "dotted.name with spaces/" + "x" * 80

TOOLS: list[dict[str, Any]] = [
    {"name": "hang", "inputSchema": {"type": "object"}},
    {"name": "refuse", "title": "Refuses", "inputSchema": {"type": "object"}},
    {"name": "chatter", "description": "Talks.", "inputSchema": {"type": "object", "anyOf": [{"$ref": "#/nowhere"}]}},
    *({"name": name, "inputSchema": {"type": "object"}} for name in (LONG, "same.name", "same_name", "die")),
]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(number: object, method: str, given: dict[str, Any]) -> None:
    match method, given.get("name"):
        case "initialize", _:
            info = {"name": "plain", "version": "1"}
            version = given["protocolVersion"]
            say(id=number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list", _:
            say(id=number, result={"tools": TOOLS, "nextCursor": "again"})
        case "tools/call", "refuse":
            say(id=number, error={"code": -32_000, "message": "not today"})
        case "tools/call", "chatter":
            sys.stdout.write("debug: this is no JSON\n")
            say(method="notifications/tools/list_changed")
            say(method="notifications/message", params={"level": "error", "data": "compact_context"})
            say(id="99", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
            say(id=number, result={"content": [{"type": "text", "text": "words"}]})
        case "tools/call", "hang":
            Path(given["arguments"].get("path", os.devnull)).touch()
        case "tools/call", "die":
            os.write(2, b"out of cheese\n")
            os._exit(7)
        case "tools/call", name:
            say(id=number, result={"content": [{"type": "text", "text": name}]})
        case _:
            say(id=number, error={"code": -32_601, "message": "no such method"})


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            answer(message["id"], message["method"], message.get("params") or {})
