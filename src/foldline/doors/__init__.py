"""The doors to an agent and an engine: terminal, HTTP, Telegram, schedule, and the proxy."""
