from __future__ import annotations

import pytest

from foldline.catalog.models import CACHE_RULES
from foldline.errors import InvalidInput
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, replay
from foldline_bench.measure.speed import session as long_session
from foldline_bench.workers.jobs import BenchJob, SessionFile, neutral_counter
from foldline_bench.workers.offers import OWN_SYSTEMS, own_system, sender_maker

MESSAGES = tuple(wire for wires in long_session(160) for wire in wires)


def test_ours_are_known_by_name() -> None:
    assert [own_system(name).policy for name in OWN_SYSTEMS[:2]] == ["none", "autopilot"]
    assert own_system("economical").rule == CACHE_RULES["anthropic"]
    told = own_system("economical+summary-apart@openai")
    assert (told.policy, told.rule, told.summary) == ("economical", CACHE_RULES["openai"], "summary-apart")


@pytest.mark.parametrize("name", ["", "best", "none+summary", "balanced+magic", "balanced@nobody"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="unknown"):
        own_system(name)


def test_a_job_goes_over_the_wire_as_it_is() -> None:
    job = BenchJob(system="balanced", budget_tokens=4_000, exact=True, sessions=(SessionFile("a", "b/a.json"),))
    assert BenchJob.from_json(job.as_json()) == job


@pytest.mark.parametrize(
    ("name", "own_counter", "has"), [("cost", False, True), ("cost", True, False), ("none", False, False)]
)
def test_the_best_in_hindsight_is_known_where_all_sizes_are_by_one_counter(
    name: str, own_counter: bool, has: bool
) -> None:
    counter = neutral_counter(exact=False)
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=MESSAGES), counter)
    job = BenchJob(system=name, budget_tokens=4_000, told_rule="anthropic", own_counter=own_counter)
    made = sender_maker(job, counter)(recording, watched=True)
    assert (made.best is not None) == has
    if made.best is not None:
        done = replay(recording, name, window=4_000, rule=CACHE_RULES["anthropic"], sender=made.sender)
        assert 1 <= made.best(done)["ratio"] <= made.best(done)["needs_ratio"]


@pytest.mark.parametrize("name", ["balanced+summary", "balanced+summary-apart"])
def test_a_policy_with_a_summariser_has_its_calls_on_the_bill(name: str) -> None:
    counter = neutral_counter(exact=False)
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=MESSAGES), counter)
    made = sender_maker(BenchJob(system=name, budget_tokens=4_000, told_rule="anthropic"), counter)(recording)
    done = replay(recording, name, window=4_000, rule=CACHE_RULES["anthropic"], sender=made.sender)
    asked = [call for turn in done.turns for call in turn.summary_calls]
    assert asked
    assert all(0 <= call.cached_tokens <= call.prompt_tokens and call.output_tokens > 0 for call in asked)
    assert any(fold.reducer == "summarize" for turn in done.turns for fold in turn.folds)
    if name.endswith("apart"):
        assert not any(call.cached_tokens for call in asked)
