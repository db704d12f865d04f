"""A wrong argument is named before anything is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.one_shot import check, count, fit
from foldline.errors import InvalidInput

USER = {"role": "user", "content": "hi"}

WRONG: list[tuple[str, Any]] = [
    ("max_output_tokens", "x"),
    ("max_output_tokens", True),
    ("max_output_tokens", 1.5),
    ("max_output_tokens", -1),
    ("max_request_bytes", "x"),
    ("max_request_bytes", 0),
    ("policy", ["balanced"]),
    ("policy", "nope"),
    ("dialect", [1]),
    ("dialect", "nope"),
    ("system", 5),
    ("tools", 5),
    ("tools", "abc"),
    ("tools", ["abc"]),
    ("model", 5),
]


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("max_tokens", 0), ("max_tokens", "9"), ("max_tokens", True)])
def test_fit_names_the_argument_that_is_wrong(name: str, value: object) -> None:
    arguments: dict[str, Any] = {"max_tokens": 1_000, name: value}
    with pytest.raises(InvalidInput, match=name):
        fit([USER], **arguments)


@pytest.mark.parametrize(
    ("name", "value"), [*WRONG, ("window", "x"), ("window", 0), ("facts", "abc"), ("learned", []), ("on_event", 3)]
)
def test_a_context_names_the_argument_that_is_wrong(name: str, value: object) -> None:
    arguments: dict[str, Any] = {"window": 1_000, "max_output_tokens": 10, name: value}
    with pytest.raises(InvalidInput, match=name):
        Context(**arguments)


@pytest.mark.parametrize(("name", "value"), [("dialect", [1]), ("system", 5), ("tools", "abc")])
def test_check_and_count_name_the_argument_that_is_wrong(name: str, value: object) -> None:
    arguments: dict[str, Any] = {name: value}
    for function in (check, count):
        with pytest.raises(InvalidInput, match=name):
            function([USER], **arguments)


def test_count_names_a_model_that_is_no_name() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidInput, match="model"):
        count([USER], model=wrong)


def test_a_list_of_messages_is_no_text() -> None:
    for value in ("abc", 5, None):
        wrong: Any = value
        with pytest.raises(InvalidInput, match="messages"):
            check(wrong)
