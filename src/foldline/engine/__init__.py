"""When to fold and how: policies, the engine that runs them, and `Context`, the object that callers drive."""
