"""The lowest bills that were possible, with hindsight."""
