"""Compaction that clients ask their provider for, done here: edits of a request, summaries, signed blocks and items."""
