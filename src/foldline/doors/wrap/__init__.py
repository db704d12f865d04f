"""A client behind a proxy of its own: `foldline wrap`."""
