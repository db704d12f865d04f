"""Plain text: names in it, shortening, safe search, redaction, and formatting for people."""
