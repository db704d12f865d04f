"""The agent: a loop over a model and tools, inside its window by the engine, on disk by the store."""
