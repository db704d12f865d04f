"""Requests that are sure to need no fold, judged without counting them."""

from __future__ import annotations

import re
from typing import Final

from foldline.conversations.conversation import Conversation
from foldline.conversations.incoming_request import IncomingRequest
from foldline.conversations.request_plan import NO_FOLD_SHARE, folds_by_share_only, is_surely_refused
from foldline.engine.policy import Policy

__all__ = ["is_small"]

# Parts that may be larger than their text: an image is named by its address, a file by its id.
_LARGE_PART: Final = re.compile(r'"type"\s*:\s*"[a-z_]*(?:image|file|document|audio|video)|"file(?:Data|_data)"\s*:')
# The most tokens of a character outside ASCII: it has up to four bytes, and each token has at least one.
_CHAR_TOKENS: Final = 4
# Tokens without text of their own: message frames, and what providers add for tools.
_OVERHEAD_TOKENS: Final = 1_000


def is_small(request: IncomingRequest, conversation: Conversation | None, policy: Policy) -> bool:
    """Whether a request stays well below its limits, judging by its conversation and the length of new text. O(new).

    A request that would be mended before it is sent is none. O(messages) in dialects where that is done.
    """
    body, limits = request.body, request.limits
    # An output cap that would be lowered means changed bytes.
    if not folds_by_share_only(policy) or (body.cap_tokens or 0) > limits.max_output_tokens:
        return False
    if conversation is None:
        new, tokens, ratio = body.text, 0, 1.0
    else:
        if not conversation.has_headroom(limits):
            return False
        spans = body.item_spans[conversation.count :]
        new = body.text[spans[0][0] : spans[-1][1]] if spans else "" if body.item_spans else body.text
        view = conversation.context.view
        tokens, ratio = view.tokens, max(1.0, view.meter.ratio)
    # Every token has at least one byte of text, so this is an upper bound that needs no counting.
    most_tokens = tokens + ratio * len(new) * (1 if new.isascii() else _CHAR_TOKENS) + _OVERHEAD_TOKENS
    if most_tokens > NO_FOLD_SHARE * limits.input_tokens or _LARGE_PART.search(new) is not None:
        return False
    return not is_surely_refused(body.dialect, body.messages)
