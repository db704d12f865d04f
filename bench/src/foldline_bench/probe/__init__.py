"""Questions to a real model about a session, from its folded and from its full view: `foldline bench --probe`."""
