"""Conversations of clients that resend everything: found again, folded, and spliced into the bytes that came."""
