"""The settings of an agent: read from files and flags, checked by pydantic, with where each value comes from."""

from __future__ import annotations

from importlib.util import find_spec

from foldline.errors import MissingExtra

# Here, before any module of the package imports it: the error must name the extra, not a module.
if find_spec("pydantic") is None:
    raise MissingExtra("chat", "reading settings")

from foldline.agent.settings.model import AgentSettings

__all__ = ["AgentSettings"]
