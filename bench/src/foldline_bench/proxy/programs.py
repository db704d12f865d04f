"""The ways from a client to the upstream that are compared: none, and proxies as they are started by their commands."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foldline_bench.proxy.processes import ServerProcess, free_port, running

__all__ = ["KEY", "PROGRAMS", "THROUGH", "WAYS", "Program", "ProxyPath", "start_foldline", "start_litellm"]

KEY: Final = f"sk-{secrets.token_hex(32)}"
"""What every client sends. LiteLLM does not start without one; foldline asks for none on loopback."""

THROUGH: Final = "/through"
"""The path on which LiteLLM only passes on what comes."""

_LITELLM: Final = """
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: {upstream}/v1
      api_key: sk-bench
general_settings:
  master_key: {key}
  pass_through_endpoints:
    - path: {through}
      target: {upstream}/v1/chat/completions
      forward_headers: true
litellm_settings:
  set_verbose: false
  request_timeout: 600
  num_retries: 0
  telemetry: false
"""


def _quiet(folder: Path) -> dict[str, str]:
    """An environment in which nothing of the user's own settings is found."""
    passed = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    home = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    return {**passed, **home, "NO_PROXY": "*"}


@contextmanager
def start_foldline(upstream: str, folder: Path, command: str) -> Iterator[ServerProcess]:
    """`foldline proxy` with its defaults, and the window: the upstream of the benchmark does not report one."""
    port = free_port()
    given = [command, "proxy", "--upstream", upstream, "--port", str(port), "--window", "128000"]
    with running(given, port, ready="/foldline/state", folder=folder, environment=_quiet(folder)) as up:
        yield up


@contextmanager
def start_litellm(upstream: str, folder: Path, command: str) -> Iterator[ServerProcess]:
    """LiteLLM's proxy in one process, without a database, set as its manual advises for production.

    https://docs.litellm.ai/docs/proxy/prod, read on 2026-11-28: LITELLM_MODE, LITELLM_LOG, set_verbose. The table of
    prices is its own copy, so that it asks nobody.
    """
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM.format(upstream=upstream, key=KEY, through=THROUGH), "utf-8")
    quiet = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    environment = {**_quiet(folder), **quiet}
    given = [command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    with running(given, port, ready="/health/liveliness", folder=folder, environment=environment) as up:
        yield up


def _sibling_script(name: str) -> str:
    """A command of the environment that runs this."""
    return str(Path(sys.executable).with_name(name))


@dataclass(frozen=True, slots=True)
class Program:
    """A proxy: how it is started (upstream, folder, command), and its command unless another one is given."""

    start: Callable[[str, Path, str], AbstractContextManager[ServerProcess]]
    command: str


@dataclass(frozen=True, slots=True)
class ProxyPath:
    """A path of a proxy."""

    program: str
    path: str = "/v1/chat/completions"


PROGRAMS: Final = {
    "foldline": Program(start_foldline, _sibling_script("foldline")),
    "litellm": Program(start_litellm, ".bench/litellm-proxy/bin/litellm"),
}
WAYS: Final = {
    "foldline": ProxyPath("foldline"),
    "litellm": ProxyPath("litellm"),
    "litellm-through": ProxyPath("litellm", THROUGH),
}
"""The ways through a proxy by name. The last one is LiteLLM's own that passes bytes on instead of reading them."""
