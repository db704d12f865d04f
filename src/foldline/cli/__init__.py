"""The commands of `foldline`."""
