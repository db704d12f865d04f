"""What a provider can do that FakeProvider cannot: a layer around it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from foldline.testing.asgi import Message, Receive, Scope, Send, read_body

__all__ = ["ASGIApp", "MidConversationSystem", "as_it_is"]

ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def as_it_is(app: ASGIApp) -> ASGIApp:
    """No layer."""
    return app


class MidConversationSystem:
    """Takes messages with the role "system" inside a conversation, as Anthropic does for those who ask for its beta.

    Such a message may say how much effort what follows is worth; one of another role may not.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: what the fake is handed has user messages in their place."""
        if scope["type"] != "http" or scope["path"] != "/v1/messages":
            await self._app(scope, receive, send)
            return
        data = await read_body(receive, None)
        assert data is not None
        waiting = [self._as_users(data)]

        async def receive_again() -> Message:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

        await self._app(scope, receive_again, send)

    def _as_users(self, data: bytes) -> bytes:
        body = json.loads(data)
        for message in body["messages"]:
            if message["role"] == "system":
                message["role"] = "user"
                message.pop("output_config", None)
            elif "output_config" in message:
                message["role"] = "output_config: Extra inputs are not permitted"  # the fake refuses that
        return json.dumps(body).encode()
