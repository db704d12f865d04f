"""Chat platforms in front of an agent: one gateway logic for all of them, one module for each platform."""
