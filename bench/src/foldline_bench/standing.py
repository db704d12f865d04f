"""Rules that stay: whether each of a set of rules is in every request after ten compactions, word for word.

The set has rules of users, of files of instructions, of reminders and of settings, in the forms in which Claude Code
and Codex send them, and hostile texts of tools, pages and files that must never become rules. conpact's fifteen
constraints are a second set, where its package is there. The model that summarises forgets every rule. No model is
asked.

    python -m foldline_bench.standing [--compactions 10] [--python PYTHON] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from foldline.agent.session import AgentSession
from foldline.agent.session_context import RunSettings
from foldline.conversations.conversation import Conversation
from foldline.conversations.request_body import FORMS, read_body
from foldline.conversations.request_plan import ConversationSettings, limits_for
from foldline.engine.context import Context
from foldline.engine.presets import policy
from foldline.errors import FoldlineError
from foldline.messages import Wire
from foldline.view.archive import MemoryArchive
from foldline.view.standing_rules import RULES_SHARE, StandingRule
from foldline.view.transcript import Fold
from foldline_bench.constraints import constraints_of
from foldline_bench.rule_cases import CASES, RuleCase, conversation, reply, user

__all__ = ["Kept", "measure", "table", "ways"]

WINDOW_TOKENS: Final = 24_000
OUTPUT_TOKENS: Final = 1_000


_WORDS_OF_HOSTILE: Final = (
    "obey this page", "evil.example", "follow the page", "run tests again", "trust the file", "delete backups",
    "warn the user", "log out", "run as root", "answer the miller",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """One way of keeping a conversation: requests looked at, rules that were in all of them, those lost, and hostile
    texts that were taken for rules.
    """

    way: str
    cases: str
    compactions: int
    requests: int
    rules: int
    kept: int
    lost: tuple[str, ...]
    taken: tuple[str, ...]


def forgetful(messages: Sequence[Mapping[str, str]], limit: int) -> str:
    """A summary that forgets every rule."""
    del messages, limit
    return "The miller looked at the mill and wrote down what he saw. The work goes on with the wheel."


async def _forgetful(messages: Sequence[Mapping[str, str]], limit: int) -> str:
    return forgetful(messages, limit)


# --- ways of keeping it -----------------------------------------------------------------------------------------------


Looked = Callable[[Sequence[Any], Sequence[StandingRule], int], None]
"""Called with the messages of each request, the rules that are listed, and the number of compactions so far."""


def _library(
    dialect: str, name: str, cases: Sequence[RuleCase], compactions: int, look: Looked, *, share: float = RULES_SHARE
) -> None:
    context = Context(
        dialect=dialect, policy=name, window=WINDOW_TOKENS, max_output_tokens=OUTPUT_TOKENS, rules_share=share
    )
    for number, wires in enumerate(conversation(dialect, cases, compactions), 1):
        context.extend(wires)
        context.compact(summarize=forgetful if number % 2 else None)
        context.append(user(dialect, f"And then {number}?"))
        look(context.prepare().messages, context.rules, number)
        context.append(reply(dialect, "Then more."))


def _agent(dialect: str, name: str, cases: Sequence[RuleCase], compactions: int, look: Looked) -> None:
    settings = RunSettings(
        dialect=dialect,
        model="",
        policy=policy(name),
        window=WINDOW_TOKENS,
        max_output_tokens=OUTPUT_TOKENS,
        system="You help.",
        tools=None,
    )
    session = AgentSession(settings)

    async def run() -> None:
        for number, wires in enumerate(conversation(dialect, cases, compactions), 1):
            session.record(wires)
            await session.compact(None, _forgetful)
            session.add_user_message(f"And then {number}?")
            request = await session.prepare(_forgetful)
            look(request.messages, session.context.rules, number)
            session.record([reply(dialect, "Then more.")])

    asyncio.run(run())


def _policy(dialect: str, name: str, cases: Sequence[RuleCase], compactions: int, look: Looked) -> None:
    """Folds as the policy makes them, with no one asking: until there were as many batches of them."""
    context = Context(dialect=dialect, policy=name, window=WINDOW_TOKENS // 2, max_output_tokens=OUTPUT_TOKENS)
    batches: set[int] = set()
    rounds = conversation(dialect, cases, 40 * compactions)
    while len(batches) <= compactions and (wires := next(rounds, None)) is not None:
        for wire in wires:
            if wire.get("role") == "user" or wire.get("type") == "function_call_output":
                context.append(wire)
                continue
            look(context.prepare(forgetful).messages, context.rules, len(batches))
            context.append(wire)
        batches |= {event.batch for event in context.events if isinstance(event, Fold) and not event.form}


def _proxy(dialect: str, name: str, cases: Sequence[RuleCase], compactions: int, look: Looked) -> None:
    """A client that sends its whole history with each request, through a conversation of the proxy."""
    form = FORMS[dialect]
    history: list[Wire] = []
    kept: Conversation | None = None
    settings = ConversationSettings(policy=policy(name), learned={})
    batches: set[int] = set()
    rounds = conversation(dialect, cases, 40 * compactions)
    while len(batches) <= compactions and (wires := next(rounds, None)) is not None:
        for wire in wires:
            if not (wire.get("role") == "user" or wire.get("type") == "function_call_output"):
                fields = {"model": "some-model", form.messages: history, "max_tokens": OUTPUT_TOKENS}
                body = read_body(form, json.dumps(fields).encode())
                limits = limits_for(body, WINDOW_TOKENS // 2)
                if kept is None:
                    kept = Conversation("measured", body, settings, limits, archive=MemoryArchive())
                kept.append(body)
                plan = kept.plan(body, limits, forgetful)
                look(json.loads(plan.data)[form.messages], kept.context.rules, len(batches))
                batches |= {fold.batch for fold in plan.new_folds if not fold.form}
            history.append(wire)


def ways() -> dict[str, Callable[[Sequence[RuleCase], int, Looked], None]]:
    """The ways that are measured, by name."""

    def way(run: Callable[..., None], dialect: str, name: str) -> Callable[[Sequence[RuleCase], int, Looked], None]:
        return lambda cases, compactions, look: run(dialect, name, cases, compactions, look)

    found = {
        "library, without rules": lambda cases, compactions, look: _library(
            "openai-chat", "balanced", cases, compactions, look, share=0
        )
    }
    found |= {f"library, {dialect}": way(_library, dialect, "balanced") for dialect in ("openai-chat", "anthropic")}
    found["agent, openai-chat"] = way(_agent, "openai-chat", "balanced")
    for name in ("balanced", "economical", "cost", "layered", "sliding", "autopilot"):
        found[f"policy {name}"] = way(_policy, "anthropic", name)
    found["proxy, as Claude Code"] = way(_proxy, "anthropic", "balanced")
    found["proxy, as Codex"] = way(_proxy, "openai-responses", "balanced")
    return found


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(way: str, name: str, cases: Sequence[RuleCase], compactions: int) -> Kept:
    """Keep one conversation in one way, and look for each rule in each request since it was said."""
    missing: dict[str, int] = {}
    taken: set[str] = set()
    seen: set[str] = set()
    requests = most = 0

    def look(messages: Sequence[Any], rules: Sequence[StandingRule], number: int) -> None:
        nonlocal requests, most
        requests, most = requests + 1, max(most, number)
        text = "\n".join(_strings(messages))
        for case in cases:
            if case.words in text:
                seen.add(case.words)
            elif case.words in seen:
                missing.setdefault(case.words, number)
        listed = "\n".join(rule.text for rule in rules)
        taken.update(words for words in _WORDS_OF_HOSTILE if words in listed)

    ways()[way](cases, compactions, look)
    never = [case.words for case in cases if case.words not in seen]
    lost = (*missing, *never)
    return Kept(way, name, most, requests, len(cases), len(cases) - len(lost), lost, tuple(sorted(taken)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def table(results: Sequence[Kept]) -> str:
    """Each way with the rules that were in every request, and the hostile texts that were taken for rules."""
    lines = [f"{'way':<24}{'set':<10}{'compactions':>12}{'requests':>10}{'kept':>9}{'hostile taken':>15}"]
    for one in results:
        kept = f"{one.kept}/{one.rules}"
        lines.append(
            f"{one.way:<24}{one.cases:<10}{one.compactions:>12}{one.requests:>10}{kept:>9}{len(one.taken):>15}"
        )
    lines += [f"lost by {one.way}: {words!r}" for one in results for words in one.lost]
    lines += [f"taken by {one.way}: {words!r}" for one in results for words in one.taken]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all ways and print the table. Takes about a minute."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.standing", description=(__doc__ or "")[:92])
    parser.add_argument("--compactions", type=int, default=10, help="compactions of each conversation")
    parser.add_argument("--python", type=Path, help="interpreter that has conpact: its constraints are measured too")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args(argv)
    try:
        sets = {"own": CASES}
        if options.python is not None:
            sets["conpact"] = tuple(RuleCase(one.stated, "user") for one in constraints_of(options.python))
        results = [measure(way, name, cases, options.compactions) for name, cases in sets.items() for way in ways()]
    except FoldlineError as error:
        sys.stderr.write(f"foldline_bench.standing: {error}\n")
        sys.exit(2)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1), encoding="utf-8")
    sys.stdout.write(table(results))


if __name__ == "__main__":
    main()
