"""Worker processes: what they are started with, what they run, and how they report it."""
