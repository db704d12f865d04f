"""Where a model is served, and what the environment says of it."""

from __future__ import annotations

import pytest
from tests.providers.serving import endpoint

from foldline.catalog.models import lookup
from foldline.errors import InvalidInput
from foldline.providers.endpoint import HOSTED, Endpoint, endpoint_from_environment


def test_no_key_is_in_a_repr() -> None:
    shown = repr(endpoint(api_key="sk-very-secret", headers={"x-token": "also-secret"}))
    assert "secret" not in shown
    assert "127.0.0.1" in shown


@pytest.mark.parametrize(
    ("given", "dialect", "kept"),
    [
        ("https://api.example.com/v1/", "openai-chat", "https://api.example.com/v1"),
        ("https://api.example.com", "openai-chat", "https://api.example.com"),
        ("http://localhost:11434", "openai-chat", "http://localhost:11434/v1"),
        ("http://192.168.0.9:8000/", "openai-responses", "http://192.168.0.9:8000/v1"),
        ("http://[::1]:8080", "openai-chat", "http://[::1]:8080/v1"),
        ("http://127.0.0.1:8080/v1/chat/completions", "openai-chat", "http://127.0.0.1:8080/v1"),
        ("https://api.anthropic.com/v1", "anthropic", "https://api.anthropic.com"),
        ("https://api.anthropic.com/v1/messages", "anthropic", "https://api.anthropic.com"),
        ("http://127.0.0.1:8080", "anthropic", "http://127.0.0.1:8080"),
    ],
)
def test_an_address_is_understood_however_much_of_it_was_pasted(given: str, dialect: str, kept: str) -> None:
    assert endpoint(given, dialect).base_url == kept


@pytest.mark.parametrize(
    "given",
    [
        "",
        "api.example.com/v1",
        "ftp://x",
        "http://",
        "http://a:99999",
        "http://a b/v1",
        "http://u:pw@h/v1",
        "http://h?key=pw",
    ],
)
def test_a_bad_address_is_refused_without_showing_what_may_be_a_password(given: str) -> None:
    with pytest.raises(InvalidInput, match="base_url") as caught:
        endpoint(given)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("field", ["api_key", "header"])
def test_a_key_that_no_header_can_carry_is_named_and_not_shown(field: str) -> None:
    settings = {"api_key": "sk-abc\n"} if field == "api_key" else {"headers": {"x-key": "sk-abc\r\nx: y"}}
    with pytest.raises(InvalidInput, match="line break") as caught:
        endpoint(**settings)
    assert "abc" not in str(caught.value)


def test_what_the_session_sets_cannot_be_set_beside_it() -> None:
    with pytest.raises(InvalidInput, match="messages, stream"):
        endpoint(extra={"stream": False, "messages": []})


def test_a_local_address_is_known_as_one() -> None:
    assert all(
        endpoint(f"http://{host}").is_local for host in ("localhost", "127.0.0.1", "10.0.0.3", "ollama", "a.local")
    )
    assert not endpoint("https://api.openai.com/v1").is_local
    assert not endpoint("https://8.8.8.8/v1").is_local


def test_an_empty_environment_gives_nothing() -> None:
    assert endpoint_from_environment({"PATH": "/bin", "OPENAI_API_KEY": "  "}) is None


@pytest.mark.parametrize("hosted", HOSTED, ids=lambda hosted: hosted.name)
def test_a_key_is_enough(hosted: object) -> None:
    entry = next(each for each in HOSTED if each is hosted)
    found = endpoint_from_environment({entry.variable: " key-1234 \n"})
    assert found is not None
    assert (found.name, found.dialect, found.api_key) == (entry.name, entry.dialect, "key-1234")
    assert (found.base_url, found.model) == (entry.base_url, entry.model)


@pytest.mark.parametrize("hosted", HOSTED, ids=lambda hosted: hosted.name)
def test_default_models_are_in_the_catalogue(hosted: object) -> None:
    entry = next(each for each in HOSTED if each is hosted)
    assert lookup(entry.model).known


def test_the_first_provider_of_the_table_is_taken_unless_one_is_named() -> None:
    environ = {"MISTRAL_API_KEY": "mmmm", "ANTHROPIC_API_KEY": "aaaa"}
    found, named = endpoint_from_environment(environ), endpoint_from_environment(environ, name="mistral", model="x")
    assert found is not None and found.name == "anthropic"
    assert named is not None and (named.name, named.model, named.api_key) == ("mistral", "x", "mmmm")
    assert endpoint_from_environment(environ, name="openai") is None


def test_a_base_url_of_ones_own_is_a_chat_server_without_default_model() -> None:
    found = endpoint_from_environment({"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"})
    assert found is not None
    assert (found.dialect, found.model, found.api_key) == ("openai-chat", "", "")
    named = endpoint_from_environment({"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "OPENAI_MODEL": "qwen"})
    assert named is not None and named.model == "qwen"


def test_the_providers_own_address_alone_is_no_endpoint() -> None:
    assert endpoint_from_environment({"OPENAI_BASE_URL": "https://api.openai.com/v1"}) is None


def test_a_bad_value_names_its_variable() -> None:
    with pytest.raises(InvalidInput, match="OPENAI_BASE_URL: must begin with http"):
        endpoint_from_environment({"OPENAI_BASE_URL": "127.0.0.1:8000"})
    with pytest.raises(InvalidInput, match="ANTHROPIC_API_KEY"):
        endpoint_from_environment({"ANTHROPIC_API_KEY": "sk\u2013ant"})


def test_the_key_goes_where_the_dialect_wants_it() -> None:
    chat = endpoint("https://x.example/v1", api_key="k", headers={"X-Title": "t"}).request_headers
    messages = endpoint("https://x.example", "anthropic", api_key="k").request_headers
    assert chat == {"user-agent": "foldline", "authorization": "Bearer k", "x-title": "t"}
    assert messages == {"user-agent": "foldline", "anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert "authorization" not in endpoint().request_headers


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dialect"):
        Endpoint(name="x", dialect="grpc", base_url="http://127.0.0.1", model="m")
