"""Settings reach reducers by what these can do, not by their class: a user's own like a built-in one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from foldline.engine.context import Context
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES
from foldline.reducers.arrival import ShortenNew
from foldline.reducers.base import Ask, Reducer, span_fold
from foldline.reducers.digest import Digest
from foldline.reducers.drop import DropGroups, SumUp
from foldline.reducers.summarize import Summarize
from foldline.view.budget import Need, TokenLimits, Trigger
from foldline.view.transcript import Fold, Usage
from foldline.view.view import View


@dataclass(frozen=True)
class Own:
    """A user's reducer with every optional method."""

    facts: tuple[str, ...] = ()
    window_tokens: int = 0
    exempt: frozenset[str] = frozenset()
    keep: float = 0.1
    share: float = 0.2
    of_result: float = 0.3
    name: str = "own"

    def with_facts(self, facts: tuple[str, ...], /) -> Own:
        return replace(self, facts=(*self.facts, *facts))

    def with_window(self, window_tokens: int, /) -> Own:
        return replace(self, window_tokens=window_tokens)

    def exempting(self, tools: frozenset[str], /) -> Own:
        return replace(self, exempt=self.exempt | tools)

    @property
    def kept_share(self) -> float:
        return self.keep

    def keeping(self, share: float, /) -> Own:
        return replace(self, keep=share)

    def arriving(self, share: float | None, of_result: float | None, /) -> Own:
        return replace(self, share=share or self.share, of_result=of_result or self.of_result)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold | Ask]:
        for span in view.spans(view.newest(0.3, need.target_tokens))[:1]:
            note = view.codec.note("what was done", kind="summary")
            fold = span_fold(view, span.start, span.stop, (note,), reducer=self.name, reason="summed up")
            if fold is not None:
                yield fold


@dataclass(frozen=True)
class Bare:
    """A user's reducer with what every reducer must have."""

    name: str = "bare"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold | Ask]:
        return ()


def policy_of(*reducers: Reducer) -> Policy:
    return Policy(name="p", guard=reducers, always=reducers, reducers=reducers)


def test_facts_reach_whatever_writes_summaries() -> None:
    summarize = Summarize(instructions="be brief")
    policy = policy_of(Own(facts=("a",)), Bare(), summarize, SumUp(DropGroups())).with_facts(("b",))
    own, bare, found, sum_up = policy.reducers
    assert (own, bare) == (Own(facts=("a", "b")), Bare())
    assert found == replace(summarize, facts=("b",))
    assert isinstance(sum_up, SumUp) and sum_up.summarize.facts == ("b",)
    assert policy.always == policy.reducers
    assert policy.compactor == replace(policy_of().compactor, facts=("b",))  # type: ignore[type-var]
    assert policy_of(Own()).with_facts(()).reducers == (Own(),)


def test_the_window_of_the_model_that_writes_reaches_whatever_it_reads_for() -> None:
    policy = policy_of(Own(), Bare(), SumUp(DropGroups())).with_window(9_000)
    own, bare, sum_up = policy.reducers
    assert (own, bare) == (Own(window_tokens=9_000), Bare())
    assert isinstance(sum_up, SumUp) and sum_up.summarize.window_tokens == 9_000


def test_tools_are_exempted_and_shares_set_where_results_are_shortened_on_arrival() -> None:
    policy = policy_of(Own(), Bare(), ShortenNew(share=0.05)).exempting(frozenset({"read_file"})).arriving(0.4)
    own, bare, new = policy.guard
    assert (own, bare) == (Own(exempt=frozenset({"read_file"}), share=0.4), Bare())
    assert isinstance(new, ShortenNew) and "read_file" in new.exempt
    assert (new.share, new.of_result, new.group) == (0.4, ShortenNew().of_result, ShortenNew().group)
    assert policy.arrival_shares == (0.4, 0.3)
    assert policy_of(Bare()).arrival_shares is None


def test_the_share_that_stays_whole_is_that_of_the_first_reducer_that_has_one() -> None:
    assert policy_of(Summarize(keep=0.2), Own(keep=0.15), Digest(keep=0.4)).kept_share == 0.15
    policy = policy_of(Summarize(), Bare(), Digest()).keeping(0.25)
    assert [getattr(reducer, "keep", None) for reducer in policy.reducers] == [0.25, None, 0.25]
    assert policy_of(Bare()).kept_share == 0.3


def test_figures_start_anew_at_a_summary_of_a_users_own_reducer() -> None:
    own = replace(POLICIES["sliding"], trigger=Trigger(tokens=600), reducers=(Own(),))
    context = Context(policy=own, window=4_000, max_output_tokens=200)
    for number in range(8):
        context.append({"role": "user", "content": f"step {number} " + "look at the next file " * 20})
        context.append({"role": "assistant", "content": "done " * 20})
        context.observe(Usage(input_tokens=100 + number))
    assert context.figures.total_prompt_tokens == sum(range(100, 108))
    assert any(isinstance(event, Fold) and event.reducer == "own" for event in context.prepare().folds)
    assert context.figures.total_prompt_tokens == 0


# --- the landing, and what has just come -----------------------------------------------------------------------------


def landing_after(sizes: list[int], *, decay: float) -> float:
    """Where a policy lands at 10,000 tokens when its newest groups have these sizes, the newest last."""
    policy = Policy(name="own", landing=0.4, newest_share=1.0, newest_decay=decay)
    context = Context(window=100_000, max_output_tokens=0)
    context.append({"role": "user", "content": "go"})
    for size in sizes:
        context.append({"role": "assistant", "content": "word " * size})
    return policy.with_newest(4_000.0, context.view, TokenLimits(window_tokens=11_112, max_output_tokens=0))


def test_small_groups_leave_the_landing_where_it_is() -> None:
    assert landing_after([50] * 9, decay=0.0) == landing_after([50] * 9, decay=0.7) == 4_000


def test_a_large_newest_group_raises_the_landing_by_itself() -> None:
    assert landing_after([50, 3_000], decay=0.0) > 5_000
    assert landing_after([3_000, 50], decay=0.0) == 4_000, "without a decay those before it do not count"


def test_with_a_decay_groups_before_the_newest_count_less_and_less() -> None:
    at = [landing_after([3_000, *[50] * behind], decay=0.7) for behind in range(1, 5)]
    assert at[0] > 4_500
    assert at == sorted(at, reverse=True)
    assert at[-1] < at[0]


def test_no_landing_rises_so_far_that_the_next_message_folds_again() -> None:
    assert landing_after([9_000] * 3, decay=0.9) == 0.92 * 10_000
