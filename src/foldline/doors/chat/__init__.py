"""The chat in the terminal: input, output, and the loop between them."""
