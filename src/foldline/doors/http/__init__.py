"""Sessions over HTTP: `foldline serve`."""
