"""Scheduled runs of the agent: what is due, the run, and the delivery of its outcome."""
