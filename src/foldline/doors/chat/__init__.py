"""The chat in the terminal: what is typed, what is shown, and what runs between them."""
