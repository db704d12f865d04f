"""Recorded sessions of any agent, read from files."""
