"""Figures of one session, of one system over many sessions, and of one turn."""
