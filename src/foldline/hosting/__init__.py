"""Agent sessions hosted in one process: open them, run their turns in order, bound their memory, stop them cleanly."""
