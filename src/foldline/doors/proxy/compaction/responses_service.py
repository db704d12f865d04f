"""Compaction for OpenAI Responses: `context_management`, `compaction_trigger`, `/responses/compact`, items of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from foldline.conversations.compaction.condense import Condensed
from foldline.conversations.compaction.expansion import Expanded
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.responses_items import expand_items, item_of, kept_words, read_request
from foldline.doors.proxy.compaction.answer_edits import ResponseEdit
from foldline.doors.proxy.compaction.asked import Asked
from foldline.doors.proxy.compaction.whole_answers import compacted_window, item_response
from foldline.messages import Json

__all__ = ["serve_compact", "serve_responses"]

_BY_DIGEST: Final = "the summary is a digest: {}"


async def serve_responses(asked: Asked) -> None:
    """Serve a request of Responses. Raises CompactionRefused, and InvalidInput for items that cannot be read."""
    body, key = asked.body, asked.parts.key
    request = read_request(body.fields, body.messages)
    expanded = expand_items(body.messages, key, asked.client, native=False)
    if request.now:
        _check_here(asked)
        found = await _window(asked, replace(expanded, messages=expanded.messages[:-1]), "")
        if found is not None:
            item = item_of(key, asked.client, found, window=True)
            await asked.answer(item_response(body, item, asked.usages), warning=_warning(found))
        return
    away = body.elsewhere
    if request.threshold is None or away:
        warning = f"not compacted: the server holds a part of the conversation ({away})" if away else ""
        await asked.go_on(expanded.messages, warning=warning)
        return
    due = asked.due(request.threshold)
    if not asked.may_have(due) or await asked.counted(expanded.messages) < due:
        await asked.go_on(expanded.messages, sent_tokens=asked.counted_tokens)
        return
    found = await asked.condensed(expanded)
    if found is None:
        await asked.go_on(expanded.messages)
        return
    item = item_of(key, asked.client, found, window=False)
    # The items that the next request will have in its place: the prompt stays the same, and cached.
    shown = expand_items([item], key, asked.client, native=False).messages
    await asked.go_on(shown, ResponseEdit(item), warning=_warning(found))


async def serve_compact(asked: Asked) -> None:
    """Serve a request at `/responses/compact`. Raises CompactionRefused, InvalidInput."""
    body, key = asked.body, asked.parts.key
    _check_here(asked)
    expanded = expand_items(body.messages, key, asked.client, native=False)
    path, mark, query = asked.exchange.target.partition("?")
    found = await _window(asked, expanded, path.rstrip("/").removesuffix("/compact") + mark + query)
    if found is None:
        return
    words: list[Json] = list(kept_words(expanded.messages, expanded.summaries, asked.window_tokens))
    window = [*words, item_of(key, asked.client, found, window=True)]
    await asked.answer(compacted_window(window, asked.usages), warning=_warning(found))


async def _window(asked: Asked, expanded: Expanded, target: str) -> Condensed | None:
    """Condense the whole conversation; None if that was answered with a refusal."""
    if not expanded.messages:
        raise CompactionRefused("There is nothing to compact.", place="input", code="empty_array")
    found = await asked.summarised(expanded, target=target)
    if (denied := asked.denied()) is not None:
        await asked.answer(denied)
        return None
    return found


def _check_here(asked: Asked) -> None:
    """Raise CompactionRefused for a request whose messages are partly at the provider."""
    if away := asked.body.elsewhere:
        reason = f"'{away}' names messages that are not here: send all of them in 'input'"
        raise CompactionRefused(reason, place=away, code="unsupported_parameter")


def _warning(found: Condensed) -> str:
    return _BY_DIGEST.format(found.failure) if found.failure else ""
