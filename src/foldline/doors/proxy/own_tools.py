"""The tools by which a client looks into its own conversation, at the proxy's own path.

Who may: the owner of the proxy, by a secret of its start (`foldline wrap`), or a client, by the credential that its
requests have. A client reaches its own conversations and no others.
"""

from __future__ import annotations

import hmac
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from foldline.conversations.conversation_cache import CachedConversation
from foldline.conversations.recall import TOOLS, call_tool
from foldline.conversations.service import Conversations
from foldline.doors.http.responses import json_response
from foldline.doors.proxy.request_head import client_of, session_name
from foldline.errors import SessionLost

__all__ = ["OWNER_HEADER", "ROOT", "tool_routes"]

ROOT: Final = "/foldline/tools"
OWNER_HEADER: Final = "x-foldline-owner"

_MAX_ARGUMENT_BYTES: Final = 65_536
_NAMES: Final = frozenset(tool.name for tool in TOOLS)
_NOBODY: Final = (
    "without a key every program of this machine is the same client: start the proxy with a token (--token-file), or "
    "send the key that the client sends"
)


def tool_routes(conversations: Conversations, *, owner: str | None, has_token: bool) -> list[Route]:
    """The routes of the tools. `owner` is the secret of whoever may read all conversations of this proxy, if any."""

    def is_owner(request: Request) -> bool:
        shown = request.headers.get(OWNER_HEADER, "")
        # In constant time: a comparison that stops at the first difference would reveal it byte by byte.
        return owner is not None and hmac.compare_digest(shown.encode(), owner.encode())

    def found(request: Request) -> CachedConversation | Response:
        headers = request.scope["headers"]
        client = None if is_owner(request) else client_of(headers)
        if client == b"" and not has_token:
            return _refusal(401, _NOBODY)
        cached = conversations.newest(client, lambda each: session_name(headers, each))
        return _refusal(404, "this client has no conversation here yet") if cached is None else cached

    async def latest(request: Request) -> Response:
        cached = found(request)
        if isinstance(cached, Response):
            return cached
        return json_response({"session": cached.conversation.name, "idle_seconds": cached.conversation.idle.seconds})

    async def call(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _NAMES:
            return _refusal(404, "there is nothing here")
        cached = found(request)
        if isinstance(cached, Response):
            return cached
        arguments = await _body(request)
        if arguments is None:
            return _refusal(413, "these arguments are too long")
        try:
            conversation = await conversations.readable(cached)
        except SessionLost:  # evicted a moment ago: its next request brings it back
            return _refusal(404, "this conversation is no longer in memory")
        outcome = await call_tool(conversation, name, arguments)
        return json_response({"text": outcome.text, "is_error": outcome.is_error})

    return [Route(ROOT, latest), Route(f"{ROOT}/{{name}}", call, methods=["POST"])]


async def _body(request: Request) -> str | None:
    """The arguments of a call; None if they are too long."""
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > _MAX_ARGUMENT_BYTES:
                return None
    except ClientDisconnect:
        return None
    return data.decode("utf-8", "replace")


def _refusal(status: int, detail: str) -> Response:
    return json_response({"detail": detail}, status)
