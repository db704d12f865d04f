"""Chat platforms in front of an agent: one desk for all of them, one module for each."""
