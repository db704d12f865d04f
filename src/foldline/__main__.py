"""`python -m foldline` is the command `foldline`, where that is not on the path."""

from __future__ import annotations

from foldline.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
