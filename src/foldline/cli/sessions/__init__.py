"""The commands about kept sessions."""
