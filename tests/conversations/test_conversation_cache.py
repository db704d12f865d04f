"""The conversation cache, compared with a dictionary that does the same the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from foldline.conversations.conversation import Conversation
from foldline.conversations.conversation_cache import CachedConversation, ConversationCache, common
from foldline.conversations.incoming_request import exact_links
from foldline.conversations.persistence import LateArchive

ROOMY = 10**12


@dataclass
class Weight:
    """Stands for a conversation: only its weight matters here."""

    weight_bytes: int


def held(weight_bytes: int = 1_000) -> CachedConversation:
    return CachedConversation(cast("Conversation", Weight(weight_bytes)), LateArchive(), b"")


def exact(messages: Sequence[str]) -> list[bytes]:
    return exact_links("openai-chat", messages)


def tolerant(messages: Sequence[str]) -> list[bytes]:
    return exact_links("anthropic", [message.lower() for message in messages])


def put(cache: ConversationCache, one: CachedConversation, messages: str) -> list[CachedConversation]:
    return cache.add(one, exact(messages), tolerant(messages))


def found(cache: ConversationCache, messages: str) -> tuple[CachedConversation, int] | None:
    match = cache.match_links(exact(messages), lambda: tolerant(messages))
    return None if match is None else (match.cached, match.depth)


def shared(one: str, other: str) -> int:
    """How many leading letters are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


histories = st.text("aAb", min_size=1, max_size=6)
steps = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "go on", "go on", "drop"]), histories), max_size=12)


@given(steps, histories, st.sampled_from([ROOMY, 12_000, 6_000]))
def test_it_finds_what_a_dictionary_would(steps: list[tuple[str, str]], asked: str, most_bytes: int) -> None:
    cache, naive = ConversationCache(most_bytes), dict[CachedConversation, str]()
    for step, messages in steps:
        if step == "put":
            one = held()
            naive[one] = messages
        elif not naive:
            continue
        else:
            one = max(naive, key=lambda other: shared(naive[other], messages))
            if step == "drop":
                cache.drop(one)
                del naive[one]
                continue
            naive[one] = naive.pop(one) + messages
        gone = put(cache, one, naive[one])
        for old in gone:
            assert old is next(iter(naive)), "the longest unused goes first"
            del naive[old]
        assert cache.bytes <= most_bytes or len(cache) == 1
        if gone:
            assert cache.bytes + gone[-1].weight_bytes > most_bytes, "none goes without need"
    assert list(cache) == list(naive)
    assert cache.bytes == sum(one.weight_bytes for one in naive)
    for one, messages in naive.items():
        assert one in cache and one.exact == exact(messages) and one.tolerant == tolerant(messages)
    match = cache.match_links(exact(asked), lambda: tolerant(asked))
    most_exact = max((shared(messages, asked) for messages in naive.values()), default=0)
    most = max((shared(messages.lower(), asked.lower()) for messages in naive.values()), default=0)
    if match is None:
        assert most == 0
        return
    its = naive[match.cached]
    assert shared(its.lower(), asked.lower()) >= match.depth
    assert match.is_whole == (match.depth == len(its))
    ends = match.is_whole and shared(its, asked) == match.depth == most_exact
    assert match.depth == most or ends, "what is not the longest is the end of one to the letter"


def test_the_longest_beginning_in_common_is_found() -> None:
    cache, one, other = ConversationCache(ROOMY), held(), held()
    put(cache, one, "abcd")
    put(cache, other, "abxy")
    assert found(cache, "abcdef") == (one, 4)
    assert found(cache, "abxz") == (other, 3)
    assert found(cache, "abq") == (other, 2), "the one that was made last"
    assert found(cache, "bcd") is None
    assert found(cache, "") is None


def test_a_beginning_is_found_as_long_as_one_conversation_has_it() -> None:
    cache, one, other = ConversationCache(ROOMY), held(), held()
    put(cache, one, "abcd")
    put(cache, other, "abxy")
    cache.drop(other)
    assert found(cache, "abq") == (one, 2)
    assert found(cache, "abx") == (one, 2)
    cache.drop(one)
    assert found(cache, "abcd") is None
    assert cache.bytes == 0 and len(cache) == 0


def test_a_conversation_that_was_spelled_anew_is_found_by_both_chains_of_now() -> None:
    cache, one = ConversationCache(ROOMY), held()
    put(cache, one, "abc")
    assert found(cache, "aBc") == (one, 3)
    put(cache, one, "aBcd")
    assert found(cache, "aBcd") == (one, 4)
    assert found(cache, "abcd") == (one, 4), "by the tolerant chain"
    calls = []
    cache.match_links(exact("aBcdx"), lambda: calls.append(1) or [])  # type: ignore[func-returns-value]
    assert not calls, "the tolerant chain is dear, and made only where the exact one does not lead on"


def test_dropping_twice_is_dropping_once() -> None:
    cache, one = ConversationCache(ROOMY), held()
    put(cache, one, "a")
    cache.drop(one)
    cache.drop(one)
    assert cache.bytes == 0
    put(cache, one, "ab")
    assert found(cache, "ab") == (one, 2) and found(cache, "ax") == (one, 1)
    cache.drop(one)
    assert found(cache, "a") is None


def test_one_stays_however_large_it_is() -> None:
    cache, small, large = ConversationCache(5_000), held(), held(10**9)
    assert put(cache, small, "a") == []
    assert put(cache, large, "b") == [small]
    assert put(cache, large, "bc") == []
    assert len(cache) == 1 and large in cache


def test_what_was_used_last_goes_last() -> None:
    cache, first, second = ConversationCache(4_000), held(), held()
    put(cache, first, "a")
    put(cache, second, "b")
    put(cache, first, "ac")
    assert put(cache, held(), "d") == [second]
    assert first in cache


def test_a_conversation_that_grew_weighs_more() -> None:
    cache, one = ConversationCache(ROOMY), held()
    put(cache, one, "a")
    before = cache.bytes
    cast("Weight", one.conversation).weight_bytes = 5_000
    put(cache, one, "ab")
    assert cache.bytes == one.weight_bytes > before + 4_000


@given(histories, histories)
def test_common_counts_leading_links(one: str, other: str) -> None:
    assert common(exact(one), exact(other)) == shared(one, other)
