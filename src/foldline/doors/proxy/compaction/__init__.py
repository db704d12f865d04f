"""Compaction as a service of the proxy: it answers what a client asks of its provider, where the upstream cannot."""
