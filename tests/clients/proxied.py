"""The whole way of a request: client, relay, `foldline proxy`, a FakeProvider with a small window."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.clients.provided import ASGIApp, as_it_is
from tests.clients.reader import Reader
from tests.clients.relay import Relay
from tests.real.leash import held
from tests.serving import serve

from foldline.testing import FakeProvider

__all__ = ["Way", "proxied", "proxy_before"]

WINDOWS: Final = 5
"""How many times the window a conversation must reach."""


@dataclass(frozen=True, slots=True)
class Way:
    """`url` is what the client is pointed at."""

    url: str
    window_tokens: int
    fake: FakeProvider
    relay: Relay
    reader: Reader

    def faults(self, *, forgiven: Collection[str] = ()) -> list[str]:
        """What breaks the promise: five windows, every request valid, none refused by anyone, nothing lost on the way.

        `forgiven` are kinds of refusal that the client provokes and gets over; "route" is "/api/show", asked for the
        window.
        """
        fake, relay, reader = self.fake, self.relay, self.reader
        found = [f"the provider refused: {one}" for one in fake.refused if one.kind not in {"route", *forgiven}]
        forgiven_count = sum(fake.refusals[kind] for kind in forgiven)
        answers = [one for one in relay.asked if one.status != 200]
        found += [f"{one.path} answered {one.status}: {one.error}" for one in answers[forgiven_count:]]
        found += [f"a warning: {text}" for one in relay.asked if (text := one.answered.get("x-foldline-warning"))]
        figures = {
            f"the client left {fake.disconnected} times": fake.disconnected == 0,
            f"the client's largest request had {relay.largest_tokens:,} tokens": (
                relay.largest_tokens >= WINDOWS * self.window_tokens
            ),
            f"{reader.read} of {reader.parts} parts were read": reader.read == reader.parts,
            f"the provider took {fake.largest_tokens:,} tokens": fake.largest_tokens <= self.window_tokens,
        }
        return found + [what for what, holds in figures.items() if not holds]

    @property
    def growth(self) -> str:
        """What went by, in a line."""
        asked = self.relay.asked
        return (
            f"{len(asked)} requests up to {self.relay.largest_tokens:,} tokens through a window of "
            f"{self.window_tokens:,}; sent on: up to {self.fake.largest_tokens:,}, "
            f"{self.fake.cached_tokens / max(1, self.fake.input_tokens):.0%} from the cache; "
            f"{asked[-1].answered.get('x-foldline-folds')} folds at the end"
        )


@contextmanager
def proxied(reader: Reader, *, window_tokens: int, provider: Callable[[ASGIApp], ASGIApp] = as_it_is) -> Iterator[Way]:
    """A way through a proxy that was told nothing of the window: it asks, or learns. `provider` may wrap the fake."""
    fake = FakeProvider(reader, window_tokens=window_tokens, keep=1_000)
    with serve(provider(fake)) as upstream, proxy_before(upstream.url) as proxy:
        relay = Relay(proxy)
        with serve(relay) as served:
            yield Way(served.url, window_tokens, fake, relay, reader)


@contextmanager
def proxy_before(upstream: str, *options: str) -> Iterator[str]:
    """`foldline proxy` as a program of its own, in a home of its own: its URL."""
    folder = Path(tempfile.mkdtemp(prefix="foldline-proxy-"))
    home = ["env", f"HOME={folder}", f"XDG_DATA_HOME={folder}", f"XDG_CONFIG_HOME={folder}", f"XDG_STATE_HOME={folder}"]
    program = [str(Path(sys.executable).parent / "foldline"), "proxy"]
    command = [*home, *program, "--upstream", upstream, "--port", "0", *options]
    with held(command, folder, stop=signal.SIGINT) as server:
        yield server.said(r"http://127\.0\.0\.1:\d+")[0]
