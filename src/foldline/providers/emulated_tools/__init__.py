"""Tool calls of models that have none: a turn is text in a JSON schema."""
