from __future__ import annotations

from foldline.conversations.request_plan import LimitsByClient, WarmReturns


def test_what_one_client_was_told_says_nothing_of_another() -> None:
    limits = LimitsByClient()
    limits.learn_window(b"a", "m", 3_000)
    limits.learn_output(b"a", "m", 500)
    assert (limits.window_tokens(b"a", "m", 9_000), limits.window_tokens(b"a", "m", 2_000)) == (3_000, 2_000)
    assert limits.window_tokens(b"b", "m", 9_000) == limits.window_tokens(b"a", "n", 9_000) == 9_000
    assert (limits.max_output_tokens(b"a", "m"), limits.max_output_tokens(b"b", "m")) == (500, None)


def test_a_limit_far_below_what_was_taken_is_doubted_for_an_hour_and_for_this_client() -> None:
    now = [0.0]
    limits = LimitsByClient(clock=lambda: now[0])
    limits.record_answer(b"a", "m", 10_000, 11_000)
    limits.record_answer(b"a", "m", 500, None)  # a smaller one says nothing against it
    assert limits.doubts(b"a", "m", 3_000) and not limits.doubts(b"a", "m", 11_000)
    assert not limits.doubts(b"b", "m", 3_000) and not limits.doubts(b"a", "n", 3_000)
    now[0] = 3_601.0
    assert not limits.doubts(b"a", "m", 3_000)
    limits.record_answer(b"a", "m", 500, None)
    assert not limits.doubts(b"a", "m", 400)


def test_a_report_of_far_more_than_was_sent_raises_no_doubt() -> None:
    limits = LimitsByClient()
    limits.record_answer(b"a", "m", 1_000, 180_000)
    assert not limits.doubts(b"a", "m", 2_000) and limits.doubts(b"a", "m", 500)


def test_memory_of_made_up_names_is_bounded() -> None:
    limits = LimitsByClient(max_names=10)
    for number in range(100):
        name = f"made-up-{number}"
        limits.learn_window(b"a", name, 3_000)
        limits.learn_output(b"a", name, 3_000)
        limits.record_answer(b"a", name, 5_000, None)
    assert [len(kept) for kept in (limits._windows, limits._outputs, limits._answered)] == [10, 10, 10]


def test_a_cache_pays_for_a_client_that_returned_warm_in_more_than_one_of_five_cases() -> None:
    returns = WarmReturns()
    assert not returns.pay
    returns.record(299.0, "claude-sonnet-4-5")
    assert returns.pay
    for _ in range(3):
        returns.record(300.0, "claude-sonnet-4-5")
    assert returns.pay
    returns.record(300.0, "claude-sonnet-4-5")
    assert not returns.pay


def test_a_cache_that_the_upstream_refused_does_not_pay() -> None:
    assert not WarmReturns(3, 3, refused=True).pay
