"""The commands on stored sessions."""
