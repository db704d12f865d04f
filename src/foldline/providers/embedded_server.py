"""The child process of the embedded model: llama.cpp's own server from the wheel of `xllamacpp`.

    python -m foldline.providers.embedded_server MODEL WINDOW_TOKENS

Standard input has one line with the key of requests (empty for none). The process ends when it is closed, so it cannot
outlive its parent, however that one ends. Standard output has one line with the address, once the model is loaded.
llama.cpp writes to both outputs; all of that goes to standard error.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

__all__ = ["main"]

_ERRORS_ONLY: Final = 1  # verbosity of llama.cpp, which logs each request by default
_MAX_THREADS: Final = 4
_CACHE_MIB: Final = 256  # prompts saved while another one runs (a sub-agent); llama.cpp's default is 8 GiB


def main(arguments: list[str]) -> None:
    """Serve the model until standard input ends. Exits with a message on failure."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        sys.exit("usage: python -m foldline.providers.embedded_server MODEL WINDOW_TOKENS")
    answers = os.dup(1)
    os.dup2(2, 1)
    key = sys.stdin.buffer.readline().decode().strip()
    ended = threading.Thread(target=_wait_for_the_end, daemon=True)
    ended.start()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments[0]
    params.n_ctx = int(arguments[1])
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [key] if key else []
    params.n_parallel = 1
    params.verbosity, params.cache_ram_mib, params.ui = _ERRORS_ONLY, _CACHE_MIB, False
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads, cpu.poll = _threads(), 0
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:  # llama.cpp has logged the reason
        sys.exit(str(error))
    os.write(answers, f"{server.listening_address}\n".encode())
    ended.join()


def _threads() -> int:
    """Return one less than the number of cores."""
    # Threads wait for one another at each layer, so all are as slow as one that shares its core. Measured on two cores
    # with two other busy processes: two threads 0.6 tokens a second, one thread 5.1.
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MAX_THREADS, own - 1))


def _wait_for_the_end() -> None:
    while sys.stdin.buffer.read(4_096):
        pass
    os._exit(0)  # immediately, even while loading or generating: there is nothing to save


if __name__ == "__main__":
    main(sys.argv[1:])
