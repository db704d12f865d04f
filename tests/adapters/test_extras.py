"""Without its framework, an adapter says in one line what installs it."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

from foldline.errors import MissingExtra

ADAPTERS = {
    "agent_framework": ("agent-framework", "agent_framework"),
    "google_adk": ("google-adk", "google.adk"),
    "langchain": ("langchain", "langchain"),
    "llama_index": ("llama-index", "llama_index"),
    "litellm": ("litellm", "litellm"),
    "openai_agents": ("openai-agents", "agents"),
    "smolagents": ("smolagents", "smolagents"),
    "strands": ("strands", "strands"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
}
"""By module of `foldline.adapters`: its extra, and a package that comes with it."""


@pytest.mark.parametrize("module", ADAPTERS)
def test_a_missing_framework_is_one_line_with_the_one_that_installs_it(module: str) -> None:
    extra, package = ADAPTERS[module]
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    with pytest.raises(MissingExtra) as caught:
        importlib.import_module(f"foldline.adapters.{module}")
    assert str(caught.value).endswith(f"needs an extra: pip install 'foldline[{extra}]'")
    assert "\n" not in str(caught.value)
