"""Which requests are so small that nothing will be folded of them: told from their text, before they are taken up.

Such a request is sent at once and taken up while the upstream is at work on it, so that what the engine does with it
takes none of the client's time.
"""

from __future__ import annotations

import re
from typing import Final

from foldline.conversations.conversation import CALM, Conversation, waits
from foldline.conversations.matching import Asked
from foldline.engine.policy import Policy

__all__ = ["is_small"]

_LARGER: Final = re.compile(r'"type"\s*:\s*"[a-z_]*(?:image|file|document|audio|video)')
"""Parts that may be larger than their text: a picture is named by its address, a file by its id."""

_SIGN_TOKENS: Final = 4
"""Tokens that one sign of another script takes at most: it has four bytes, and a token at least one."""

_BESIDE_TOKENS: Final = 1_000
"""For what has no text: the frames of messages, and what providers put before tools by themselves."""


def is_small(asked: Asked, conversation: Conversation | None, policy: Policy) -> bool:
    """Whether a request stays well below its limits, by what its conversation has and the text that is new. O(new).

    Every token has a byte of text at least. An output cap that would be lowered makes a request one that is changed.
    """
    body, limits = asked.body, asked.limits
    if not waits(policy) or (body.cap_tokens or 0) > limits.max_output_tokens:
        return False
    if conversation is None:
        new, tokens, ratio = body.text, 0, 1.0
    else:
        if not conversation.is_calm(limits):
            return False
        spans = body.item_spans[conversation.count :]
        new = body.text[spans[0][0] : spans[-1][1]] if spans else "" if body.item_spans else body.text
        view = conversation.context.view
        tokens, ratio = view.tokens, max(1.0, view.meter.ratio)
    most_tokens = tokens + ratio * len(new) * (1 if new.isascii() else _SIGN_TOKENS) + _BESIDE_TOKENS
    return most_tokens <= CALM * limits.input_tokens and _LARGER.search(new) is None
