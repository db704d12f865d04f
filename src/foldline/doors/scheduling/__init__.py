"""Runs of the agent at set times: what is due, the run, and who is told how it ended."""
