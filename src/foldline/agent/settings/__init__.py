"""The settings of an agent: read from files and flags, checked by pydantic, with where each value comes from."""

from foldline.agent.settings.model import AgentSettings

__all__ = ["AgentSettings"]
