"""Secrets leave what is logged and summed up; ordinary words stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.failures import redact
from foldline.failures.redaction import REDACTED

RUN = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC3dE5f"  # forty letters and digits, no secret of anybody
LINE = (RUN + RUN)[:64]
KIND = "PRIVATE KEY"  # put together here, so that no scanner takes this file for a key
PEM = f"-----BEGIN RSA {KIND}-----\n{LINE}\n{LINE}\nabc=\n-----END RSA {KIND}-----"

SECRETS = {
    "openai": f"sk-{RUN}",
    "openai project": f"sk-proj-{RUN[:20]}_{RUN[:12]}-{RUN}",
    "anthropic": f"sk-ant-api03-{RUN}-{RUN[:8]}_AA",
    "openrouter": f"sk-or-v1-{'0123456789abcdef' * 4}",
    "groq": f"gsk_{RUN}",
    "hugging face": f"hf_{RUN[:34]}",
    "stripe": f"sk_live_{RUN[:24]}",
    "aws": "AKIA" + "ABCDEFGHIJKLMNOP",
    "github": f"ghp_{RUN[:36]}",
    "github fine-grained": f"github_pat_{RUN[:22]}_{RUN}",
    "gitlab": f"glpat-{RUN[:20]}",
    "slack": f"xoxb-123456789012-{RUN[:24]}",
    "google": f"AIza{RUN[:35]}",
    "token of three parts": f"eyJhbGciOiJIUzI1NiJ9.{RUN}.{RUN}",
    "private key": PEM,
}

WORDS = [
    "pk_orders_customer_id is the primary key; sk-learn 1.4 and hf_transformers_version are installed",
    "Basic authentication is off; bearer tokens are refused; the bearer of bad news",
    "the password must be longer; password: none; secret = True; authorization: no",
    "see https://example.org:8080/path?page=2&key_count=3 and git@example.org:team/repo.git",
    "commit 3f2a9c1b7d4e5f60718293a4b5c6d7e8f9012345 by ann@example.org",
    "the file begins with -----BEGIN CERTIFICATE----- and eyJ is how base64 of an object begins",
    "mask-rcnn-resnet50-fpn-v2, task_20240101_abcdef123456, disk-0123456789abcdef",
    "README.md src/app.py test_login 404 sha256:0f1e2d",
]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "the key is {}.", '{{"key": "{}"}}', "export KEY={}\nnext line", "({})"])
def test_a_key_leaves_and_what_stands_around_it_stays(secret: str, around: str) -> None:
    assert redact(around.format(secret)) == around.format(REDACTED)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Authorization: Bearer abcDEF1234567890", "Authorization: [redacted]"),
        ('{"password": "hunter2", "user": "ann"}', '{"password": "[redacted]", "user": "ann"}'),
        ('{\\"api_key\\": \\"abcd1234efgh\\"}', '{\\"api_key\\": \\"[redacted]\\"}'),
        ("postgres://ann:hunter2@db.example:5432/app", "postgres://[redacted]@db.example:5432/app"),
        ("redis://:hunter2@cache.example/0", "redis://[redacted]@cache.example/0"),
        ("https://api.example/v1?key=abcd1234&page=2", "https://api.example/v1?key=[redacted]&page=2"),
        ("client_secret=abcd1234efgh", "client_secret=[redacted]"),
        ("Incorrect API key provided: sk-abc***********xyz.", "Incorrect API key provided: [redacted]"),
    ],
)
def test_a_secret_is_known_by_its_place(text: str, safe: str) -> None:
    assert redact(text) == safe


def test_a_private_key_in_json_text_and_one_that_was_cut_off_leave_too() -> None:
    inside = json.dumps({"key": PEM, "after": "stays"})
    assert redact(inside) == json.dumps({"key": REDACTED, "after": "stays"})
    assert redact(f"{PEM[:120]}") == REDACTED
    encrypted = PEM.replace("-----\n", f"-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{RUN}\n\n", 1)
    assert redact(f"before {encrypted} after") == f"before {REDACTED} after"


@pytest.mark.parametrize("text", WORDS)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text


@given(st.lists(st.sampled_from([*SECRETS.values(), *WORDS, " ", "\n", "-", ":", "password=", "://", "@"])))
def test_what_is_redacted_stays_as_it_is(pieces: list[str]) -> None:
    once = redact(" ".join(pieces))
    assert redact(once) == once
    assert RUN[:20] not in once.replace(f"disk-{RUN}", "")


@pytest.mark.parametrize(
    "unit",
    [
        "eyJaaaaaaaa-",
        "sk-",
        "sk-a",
        "password=",
        "bearer ",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "AKIA",
        "?key=",
        "a",
    ],
)
def test_the_work_grows_as_the_text_does(unit: str) -> None:
    """Beginnings of secrets, one after the other: with work that grew by its square this test would not end."""
    text = unit * (300_000 // len(unit))
    assert len(redact(text)) <= len(text)
