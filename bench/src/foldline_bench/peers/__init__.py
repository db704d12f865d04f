"""Other people's ways of keeping an agent inside its window, each as a system that the bench can run.

One module per package, `NAME_peer.py`, and beside it `NAME.txt` with the exact versions that were read and measured. A
module imports its package at the top: it is loaded only by the Python of `.bench/NAME`, an environment of its own, so
none of these packages is ever a dependency of this one.

Every module has `SYSTEMS`, from the name of a setting to what makes it for one session, and `PACKAGES`, the
distributions whose versions a result names.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PEERS", "PLAIN"]

PEERS: Final = ("langchain", "litellm", "pydantic_ai", "strands", "agent_framework", "cliffcompaction")
"""The peers, in the order in which they run."""

PLAIN: Final = "plain"
"""Rules without a package: a peer that is always there."""
