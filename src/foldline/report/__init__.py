"""HTML pages about sessions, replays and the growth of requests."""
