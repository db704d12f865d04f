"""The dialects as a server speaks them."""
