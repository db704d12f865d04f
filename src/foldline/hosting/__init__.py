"""Sessions of an agent as a process hosts them: opened, taken in turns, bounded in memory, stopped in order."""
