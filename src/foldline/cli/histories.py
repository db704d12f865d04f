"""The commands on one history, `fit`, `check` and `count`; and the reading of histories for all commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from foldline.cli.console import json_out, log
from foldline.codecs import DIALECTS
from foldline.codecs.dialect import form_of
from foldline.engine.one_shot import Fit
from foldline.engine.one_shot import check as check_messages
from foldline.engine.one_shot import count as count_messages
from foldline.engine.one_shot import fit as fit_messages
from foldline.engine.presets import POLICIES, VARIANTS
from foldline.errors import DoesNotFit, InvalidInput
from foldline.recorded.files import parse_session, read_session
from foldline.recorded.sessions import Session
from foldline.text.formatting import plural
from foldline.tokens import ESTIMATE, Counter

__all__ = ["STDIN", "check", "count", "counter_for", "fit", "read_history", "sessions_in", "with_file"]

STDIN = "-"

# A badly damaged file can have thousands of damaged places. The first ones show the kind; the rest are counted.
_MOST_NAMED: Final = 20

_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")

Command = TypeVar("Command", bound=Callable[..., Any])

_FILE = click.argument("file", metavar="FILE", type=click.Path())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
_MODEL = click.option("--model", metavar="NAME", help="The model the request is for (see `foldline models`).")
_EXACT = click.option("--exact", is_flag=True, help="Count with a real vocabulary (needs the extra `exact`).")
_DIALECT = click.option("--dialect", type=click.Choice(DIALECTS), help="The form of the messages; detected by default.")


def read_history(path: str, dialect: str | None, *, lenient: bool = False) -> Session:
    """Read a history from a file, or from standard input for "-". Raises InvalidInput with the file named.

    With `lenient`, the sound parts of a damaged file are read, and the others named on standard error.
    """
    if path == STDIN:
        data = sys.stdin.buffer.read()
        session = parse_session(data, place="standard input", dialect=dialect, lenient=lenient)
    else:
        session = read_session(path, dialect=dialect, lenient=lenient)
    for one in session.unread[:_MOST_NAMED]:
        log(f"left out: {one}")
    if len(session.unread) > _MOST_NAMED:
        log(f"left out of {path}: {len(session.unread) - _MOST_NAMED:,} more")
    return session


def sessions_in(folder: str) -> list[str]:
    """List the files of recorded sessions in a folder and its subfolders, sorted by path.

    Raises InvalidInput if there is none.
    """
    files = [
        os.path.join(parent, file)
        for parent, _, files in os.walk(folder)
        for file in files
        if file.endswith(_ENDINGS) and not file.startswith(".")
    ]
    if not files:
        raise InvalidInput(f"holds no session: no file that ends in {', '.join(_ENDINGS)}", place=folder)
    return sorted(files)


def counter_for(exact: bool, model: str | None) -> Counter:
    """Return the token counter. Raises MissingExtra with the install line."""
    if not exact:
        return ESTIMATE
    # Imported here: the package is an extra, and most runs count by the estimate.
    from foldline.providers.exact import exact_counter

    return exact_counter(model)


def with_file(error: InvalidInput, file: str) -> InvalidInput:
    """Return the same error, with the file named."""
    if error.place is not None and error.place.startswith(file):
        return error
    return InvalidInput(error.reason, place=f"{file}: {error.place}" if error.place else file)


@click.command()
@_FILE
@click.option("--max-tokens", type=click.IntRange(min=1), required=True, metavar="N", help="The whole window.")
@click.option(
    "--max-output-tokens",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Reserved for the reply. [default: 0]",
)
@click.option(
    "--policy",
    type=click.Choice((*POLICIES, *VARIANTS)),
    default="balanced",
    show_default=True,
    metavar="NAME",
    help=f"How to fold: {', '.join((*POLICIES, *VARIANTS))}.",
)
@_DIALECT
@_MODEL
@_EXACT
@_JSON
def fit(
    *,
    file: str,
    max_tokens: int,
    max_output_tokens: int,
    policy: str,
    dialect: str | None,
    model: str | None,
    exact: bool,
    as_json: bool,
) -> None:
    """Make a history fit into a window.

    Prints the request in the form that FILE has. With --json: "messages", "system", and the folds and repairs. If what
    must stay is larger than the window, its parts are named and nothing is printed.
    """
    session = read_history(file, dialect)
    counter = counter_for(exact, model or session.model)
    try:
        fitted = fit_messages(
            session.messages,
            max_tokens=max_tokens,
            max_output_tokens=max_output_tokens,
            dialect=session.dialect,
            policy=policy,
            model=model,
            system=session.system,
            tools=session.tools,
            counter=counter,
        )
    except InvalidInput as error:
        raise with_file(error, file) from error
    except DoesNotFit as error:
        if as_json:
            parts = [{"name": part.name, "tokens": part.tokens, "message": part.seq} for part in error.parts]
            json_out({"fits": False, "floor_tokens": error.floor_tokens, "limit": error.limit, "parts": parts})
        raise
    # Counted by the same counter as the fit, or the two figures would not compare.
    before = _count(session, counter, file)
    limit = max_tokens - max_output_tokens
    changes = f"{plural(len(fitted.folds), 'fold')}, {plural(len(fitted.repairs), 'repair')}"
    log(f"{before:,} → {fitted.tokens:,} tokens (limit {limit:,}): {changes}")
    json_out(_report(fitted, session, before, limit) if as_json else _request(fitted, session))


def _report(fitted: Fit, session: Session, before: int, limit: int) -> dict[str, Any]:
    folds = [
        {
            "start": fold.start,
            "stop": fold.stop,
            "reducer": fold.reducer,
            "reason": fold.reason,
            "before_tokens": fold.before_tokens,
            "tokens": fold.tokens,
        }
        for fold in fitted.folds
    ]
    return {
        "fits": True,
        "dialect": session.dialect,
        "tokens_before": before,
        "tokens": fitted.tokens,
        "limit": limit,
        "folds": folds,
        "repairs": [asdict(repair) for repair in fitted.repairs],
        "system": fitted.system,
        "messages": fitted.messages,
        # Tools are in the report only if they were changed: the caller has the others.
        **({"tools": fitted.tools} if fitted.tools is not session.tools else {}),
    }


def _request(fitted: Fit, session: Session) -> Any:
    """Return the fitted messages in the form of the input: a list, or the object with all its other fields."""
    # A bare list has no place for a system text, so an added one turns the output into an object.
    if session.body is None and fitted.system is None:
        return fitted.messages
    # All other fields of the input stay: it may be the body of a request, ready to send.
    body = dict(session.body or {})
    form = form_of(body)
    field, system_field = ("messages", "system") if form is None else (form.messages, form.system or "")
    body[field] = fitted.messages
    if fitted.system is not None or system_field in body:
        body[system_field] = fitted.system if form is None else form.system_json(fitted.system, body.get(system_field))
    if fitted.tools is not session.tools:
        body["tools"] = fitted.tools
    return body


@click.command()
@_FILE
@_DIALECT
@_JSON
def check(file: str, dialect: str | None, as_json: bool) -> None:
    """List what the provider would refuse in a history.

    Prints one line for each violation: the message, the fault, the rule and the document that states it. Exit code 1 if
    there is any, else 0.
    """
    session = read_history(file, dialect)
    try:
        found = check_messages(session.messages, dialect=session.dialect, system=session.system, tools=session.tools)
    except InvalidInput as error:
        raise with_file(error, file) from error
    if as_json:
        json_out({"valid": not found, "dialect": session.dialect, "violations": [asdict(each) for each in found]})
    for each in () if as_json else found:
        click.echo(each)
    size = plural(len(session.messages), "message")
    log(f"{plural(len(found), 'violation')} in {size} ({session.dialect})")
    # 1 as grep and linters use it: the command worked, and it found something.
    if found:
        sys.exit(1)


@click.command()
@_FILE
@_DIALECT
@_MODEL
@_EXACT
@_JSON
def count(file: str, dialect: str | None, model: str | None, exact: bool, as_json: bool) -> None:
    """Count the tokens of a history, system text and tools included."""
    session = read_history(file, dialect)
    counter = counter_for(exact, model or session.model)
    tokens = _count(session, counter, file)
    if as_json:
        size = len(session.messages)
        json_out({"tokens": tokens, "messages": size, "dialect": session.dialect, "counter": counter.name})
    else:
        click.echo(tokens)


def _count(session: Session, counter: Counter, file: str) -> int:
    try:
        return count_messages(
            session.messages, dialect=session.dialect, system=session.system, tools=session.tools, counter=counter
        )
    except InvalidInput as error:
        raise with_file(error, file) from error
