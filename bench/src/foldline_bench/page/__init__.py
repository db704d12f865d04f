"""The HTML page of a bench."""
