"""LiteLLM's `trim_messages`, which takes and gives OpenAI Chat messages.

`max_tokens` is the budget, as docs/completion/message_trimming of its manual shows; `trim_ratio` is for callers who
name a model instead and does nothing beside `max_tokens`. The model is named all the same: it picks the tokeniser.
A counter cannot be handed in, so there is no setting with the neutral one. The function counts all messages again at
each step, which is slow; it deep-copies them, and it returns its input untouched when an error arises inside it: it
logs the error and raises nothing. The content of an assistant message that only calls tools is null in OpenAI's form,
and that is such an error. So there are two settings: the messages as they were recorded, and with "" in place of
null, which is the form that the function can work with.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

# Without it the package asks its own server for a price list while it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.utils import trim_messages

from foldline.messages import Wire
from foldline_bench.peers.adapters import OriginalMessages
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import Count, MakeSystem

__all__ = ["OWN_COUNTER", "PACKAGES", "SYSTEMS"]

PACKAGES: Final = ("litellm",)

MODEL: Final = "gpt-4o"

logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)  # it prints each error that it swallows, with the messages


class _TrimMessages:
    """`trim_messages` on the whole history, each time."""

    def __init__(
        self, budget_tokens: int, count: Count, summariser: FixedSummariser, *, null_as_text: bool = False
    ) -> None:
        self._budget_tokens = budget_tokens
        self._null_as_text = null_as_text
        self._originals = OriginalMessages()
        self._given: list[dict[str, Any]] = []
        self._plain: dict[int, Wire] = {}

    def prepare(self, history: Sequence[Wire]) -> None:
        self._originals.learn(history)
        for wire in history[len(self._given) :]:
            given = dict(wire)
            if self._null_as_text and given.get("content") is None:
                given["content"] = ""
            self._given.append(given)

    def view(self, history: Sequence[Wire]) -> Any:
        return trim_messages(list(self._given), model=MODEL, max_tokens=self._budget_tokens)

    def finish(self, out: Any) -> list[Wire]:
        return [self._original(message) for message in out]

    def _original(self, message: dict[str, Any]) -> Wire:
        found = self._originals.of(message)
        if found is message and message.get("content") == "":
            found = self._originals.of({**message, "content": None})
        return found


SYSTEMS: Final[Mapping[str, MakeSystem]] = {}
"""None: a counter cannot be handed in."""

OWN_COUNTER: Final[Mapping[str, MakeSystem]] = {
    "litellm trim_messages (own counter)": _TrimMessages,
    'litellm trim_messages (own counter, "" for null)': partial(_TrimMessages, null_as_text=True),
}
