"""How full the window is: the usage of the last reply, the totals, and their share of the window."""

from __future__ import annotations

from collections.abc import Container, Reversible
from dataclasses import dataclass

from foldline.transcript import Event, Fold, Usage

__all__ = ["Figures", "figures_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Tokens of a session since its last checkpoint, and of its window.

    `last_…` are those of the last reply, `total_…` of all replies; all four are 0 until a reply was reported.
    `current_context_tokens` is the size of the request as it stands now. `ask_at_tokens` is the size at which a policy
    that folds only with consent asks for it; 0 for other policies.
    """

    max_context_tokens: int
    current_context_tokens: int = 0
    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    total_prompt_tokens: int = 0
    total_completion_tokens: int = 0
    ask_at_tokens: int = 0

    @property
    def used_tokens(self) -> int:
        """Prompt tokens of the last reply; the size of the request as it stands where none was reported."""
        return self.last_prompt_tokens or self.current_context_tokens

    @property
    def utilization(self) -> float:
        """Share of the window that is used: 0.097 is 9.7 %."""
        return self.used_tokens / self.max_context_tokens if self.max_context_tokens > 0 else 0.0

    @property
    def asks(self) -> bool:
        """Whether it is time to ask the user for a compaction."""
        return 0 < self.ask_at_tokens <= self.used_tokens


def figures_of(
    events: Reversible[Event],
    *,
    checkpoint: str,
    in_effect: Container[int],
    max_context_tokens: int,
    current_context_tokens: int,
    ask_at_tokens: int = 0,
) -> Figures:
    """The figures of a log. They begin anew with each fold by the reducer `checkpoint` that is `in_effect`.

    O(events since then).
    """
    last = Usage(input_tokens=0)
    prompt = completion = 0
    for event in reversed(events):
        if isinstance(event, Fold) and event.reducer == checkpoint and event.id in in_effect:
            break
        if isinstance(event, Usage):
            if not (prompt or completion):
                last = event
            prompt += event.input_tokens
            completion += event.output_tokens
    return Figures(
        max_context_tokens=max_context_tokens,
        current_context_tokens=current_context_tokens,
        last_prompt_tokens=last.input_tokens,
        last_completion_tokens=last.output_tokens,
        total_prompt_tokens=prompt,
        total_completion_tokens=completion,
        ask_at_tokens=ask_at_tokens,
    )
