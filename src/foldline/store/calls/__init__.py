"""The log of model calls, and what is read from it."""
