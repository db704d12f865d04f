"""Texts, whatever they are texts of: what they name, how they are shortened, searched, redacted and printed."""
