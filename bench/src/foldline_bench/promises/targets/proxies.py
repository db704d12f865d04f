"""A proxy as a target: the suite is its client and its upstream."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from foldline.codecs.dialect import DIALECTS
from foldline.errors import InvalidInput
from foldline.messages import Wire
from foldline.testing.forms.base import form_of
from foldline.testing.script import Refusal
from foldline_bench.promises.targets.base import Ability, DeclinedError, Opening, SentRequest, SessionUnderTest, Target
from foldline_bench.promises.targets.client import ApiAnswer, ApiClient
from foldline_bench.promises.targets.upstream import MODELS, FakeUpstream
from foldline_bench.promises.wire_forms import FORMS

__all__ = ["OWN_PROXY", "ProxySession", "ProxyTarget", "StartedProxy", "free_port"]

OWN_PROXY: Final = (
    f"{shlex.quote(sys.executable)} -m foldline proxy --upstream {{upstream}} --port {{port}} --window {{window}} "
    "--no-store --no-summaries"
)
"""How `foldline:proxy` is started."""

_START_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 60.0


class StartedProxy:
    """A proxy that the suite starts: `{upstream}`, `{port}` and `{window}` in its command are filled in."""

    def __init__(self, command: str, *, upstream: str, port: int, window_tokens: int) -> None:
        try:
            words = [word.format(upstream=upstream, port=port, window=window_tokens) for word in shlex.split(command)]
        except (KeyError, IndexError, ValueError) as error:
            raise InvalidInput(
                f"only {{upstream}}, {{port}} and {{window}} are filled in: {error}", place="--start"
            ) from None
        if not words:
            raise InvalidInput("names no command", place="--start")
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InvalidInput(f"{words[0]}: {error.strerror or error}", place="--start") from None
        self._port = port

    def wait(self) -> None:
        """Wait until it listens. Raises InvalidInput where it ends first, or takes longer than a minute."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if (code := self._process.poll()) is not None:
                raise InvalidInput(f"the proxy ended with code {code}", place="--start")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(0.05)
        raise InvalidInput(f"nothing listens on port {self._port} after {_START_SECONDS:.0f} s", place="--start")

    def close(self) -> None:
        """End it, and what it has started."""
        if self._process.poll() is None:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class ProxyTarget(Target):
    """A proxy whose upstream the suite plays."""

    kind = "proxy"
    abilities: frozenset[Ability] = frozenset({"system", "http"})
    counts_alike = True  # it is held to what the upstream takes

    def __init__(
        self,
        url: str,
        *,
        window_tokens: int,
        upstream_port: int = 0,
        start: str = "",
        name: str = "",
        dialects: Sequence[str] = (),
    ) -> None:
        self.name, self.window_tokens = name or url, window_tokens
        self.client = ApiClient(url, seconds=_ANSWER_SECONDS)
        self.upstream = FakeUpstream(window_tokens, upstream_port)
        self._started: StartedProxy | None = None
        try:
            if start:
                where = urlsplit(url)
                self._started = StartedProxy(
                    start, upstream=self.upstream.url, port=where.port or 80, window_tokens=window_tokens
                )
                self._started.wait()
            answers = {dialect: self._hello(dialect) for dialect in dialects or tuple(DIALECTS)}
            self.dialects = tuple(dialect for dialect, fault in answers.items() if not fault)
            missing = [dialect for dialect in dialects if answers[dialect]]
            if missing or not self.dialects:
                first = missing[0] if missing else next(iter(answers))
                raise InvalidInput(
                    f"a request in {first} did not come through to the upstream {self.upstream.url}: {answers[first]}",
                    place=url,
                )
        except BaseException:
            self.close()
            raise

    def open(self, opening: Opening) -> SessionUnderTest:
        """A conversation of a client."""
        return self.session(opening)

    def session(self, opening: Opening, *, model: str = MODELS[0], streamed: bool = False) -> ProxySession:
        """A conversation of a client with one of the models, streamed or not."""
        return ProxySession(self, opening, model=model, streamed=streamed)

    def close(self) -> None:
        """End the upstream, and the proxy if it was started here."""
        if self._started is not None:
            self._started.close()
        self.upstream.close()

    def _hello(self, dialect: str) -> str:
        """Why the dialect is not spoken; "" if it is."""
        try:
            answer = self.client.ask(dialect, FORMS[dialect].user("Are you there?"), None, model=MODELS[0])
        except DeclinedError as error:
            return str(error)
        if self.upstream.answered_by(answer.text) is not None:
            return ""
        return f"HTTP {answer.status}: {answer.text}" if answer.status >= 400 else "it answered by itself"


class ProxySession(SessionUnderTest):
    """A client's conversation: the whole history goes with each request, as a client sends it."""

    def __init__(self, target: ProxyTarget, opening: Opening, *, model: str, streamed: bool) -> None:
        self._target, self._opening = target, opening
        self._model, self._streamed = model, streamed
        self._history: list[Wire] = []
        self.answer = ApiAnswer(0, "")
        """The newest answer."""
        self.asked = 0
        """How many requests the upstream got for it."""

    def send(self, new: Sequence[Wire]) -> SentRequest:
        """Send the history with what is new."""
        self._history += new
        return self.again()

    def again(self) -> SentRequest:
        """Send the history as it is. Raises DeclinedError for an answer that is an error, or not the upstream's."""
        upstream, opening = self._target.upstream, self._opening
        asked, refusals = upstream.asked, upstream.refusals
        self.answer = self._target.client.ask(
            opening.dialect, self._history, opening.system, model=self._model, streamed=self._streamed
        )
        self.asked = upstream.asked - asked
        if self.answer.status >= 400:
            broken = upstream.refusal_since(refusals)
            raise DeclinedError(f"HTTP {self.answer.status}: {self.answer.text}", broken)
        answered = upstream.answered_by(self.answer.text)
        if answered is None:
            raise DeclinedError(f"an answer that is not the upstream's: {self.answer.text[:200]}")
        path = f"/v1beta/models/{self._model}:generateContent" if opening.dialect == "gemini" else ""
        prompt = form_of(opening.dialect).read(answered.body, path)
        if isinstance(prompt, Refusal):
            raise DeclinedError(f"the upstream got what it cannot read: {prompt.message}")
        return SentRequest(tuple(prompt.messages), prompt.system, answered.tokens, self.asked)

    def body(self) -> Mapping[str, object]:
        """The body that the newest answer belongs to."""
        answered = self._target.upstream.answered_by(self.answer.text)
        return {} if answered is None else answered.body
