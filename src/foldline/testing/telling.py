"""What a model server tells about itself: its models, its window."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from foldline.testing.forms.base import EPOCH

__all__ = ["model_card", "model_list", "props"]

_RELEASED: Final = "2026-01-01T00:00:00Z"


def model_card(name: str, window_tokens: int | None, *, anthropic: bool) -> Mapping[str, Any]:
    """One model; with its window where the server tells it (vLLM's `max_model_len`, Anthropic's `max_input_tokens`)."""
    if anthropic:
        card: dict[str, Any] = {"type": "model", "id": name, "display_name": name, "created_at": _RELEASED}
        return card if window_tokens is None else card | {"max_input_tokens": window_tokens}
    card = {"id": name, "object": "model", "created": EPOCH, "owned_by": "foldline"}
    return card if window_tokens is None else card | {"max_model_len": window_tokens}


def model_list(names: Collection[str], window_tokens: int | None, *, anthropic: bool) -> Mapping[str, Any]:
    """All models, in the form of either house."""
    cards = [model_card(name, window_tokens, anthropic=anthropic) for name in names]
    if not anthropic:
        return {"object": "list", "data": cards}
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]} if cards else {"first_id": None, "last_id": None}
    return {"data": cards, "has_more": False, **ends}


def props(window_tokens: int, model: str) -> Mapping[str, Any]:
    """What llama.cpp's server tells under /props, as far as clients read it."""
    return {
        "default_generation_settings": {"id": 0, "n_ctx": window_tokens, "params": {}},
        "total_slots": 1,
        "model_alias": model,
        "model_path": f"{model}.gguf",
    }
