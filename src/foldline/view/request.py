"""One request of a session, as it is to be sent."""

from __future__ import annotations

from dataclasses import dataclass

from foldline.messages import Wire
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold, Repair, Unfold, Usage

__all__ = ["Request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it is to be sent.

    `tokens` is its size as the provider would count it, system text and tools included. The first `stable_until`
    messages are those of the request before (0 when its system text was another). `folds` are the folds and unfolds
    since then, `repairs` all that are in effect, `asked` what calls of a model for summaries reported since then.

    The newest `once` messages are sent this one time (a question for a summary): what is written to a cache behind them
    is never read. Of the messages before a question the newest `kept` stay in view whatever the answer is.
    """

    messages: list[Wire]
    system: System
    tools: Tools
    tokens: int
    max_output_tokens: int
    stable_until: int
    folds: tuple[Fold | Unfold, ...]
    repairs: tuple[Repair, ...]
    asked: tuple[Usage, ...] = ()
    once: int = 0
    kept: int = 0
