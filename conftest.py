"""How many examples the property tests run, and the fixtures of tests that talk to real servers.

Profiles, chosen with pytest's --hypothesis-profile: `dev` (200, the default), `ci` (200, the same ones each time, so
that a red run can be repeated) and `fuzz` (100,000). FOLDLINE_EXAMPLES, a number, overrides the count of any of them.
Those whose every example takes long run a quarter or an eighth of that each day, and the promises run new ones each day
(tests/property/depth.py).
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.dealing import Dealing

pytest_plugins = ["tests.real.chromium", "tests.real.postgresql", "tests.real.telegram_api", "tests.store.fresh"]

EXAMPLES = {"dev": 200, "ci": 200, "fuzz": 100_000}

for name, examples in EXAMPLES.items():
    settings.register_profile(
        name,
        max_examples=int(os.environ.get("FOLDLINE_EXAMPLES", examples)),
        deadline=None,  # a busy machine is not a bug
        derandomize=name == "ci",
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # whole sessions take longer to make than numbers
    )
settings.load_profile("dev")

# The tests and the processes they start speak plain HTTP on loopback, or trust a certificate of their own. To read the
# authorities of the whole world takes each client of httpx and each import of aiohttp 50 milliseconds, thousands of
# times; here they look for them in a folder that has none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.path.dirname(__file__)

# Stores sync each record: 5 ms on a disk, and the tests write tens of thousands. A folder in memory takes the same
# calls. A process that is killed loses nothing there either; what a power cut loses no test can see.
MEMORY, MIN_FREE_BYTES = "/dev/shm", 4 * 2**30


def memory_is_usable() -> bool:
    """Whether files of MEMORY are writable, can be run, and have room for all that the tests keep at one time."""
    if sys.platform == "win32":
        return False
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return False
    runs = not found.f_flag & os.ST_NOEXEC
    return runs and os.access(MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= MIN_FREE_BYTES


if "TMPDIR" not in os.environ and memory_is_usable():
    os.environ["TMPDIR"] = MEMORY  # for the processes of the tests too
    tempfile.tempdir = None

# The library under httpx looks for this package, which is optional and not there, at every lock: a fifth of a request.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write a test's xdist_group behind its id, by which `--dist loadgroup` finds it.

    pytest-xdist 3.8 does so itself, in an attribute that pytest 9.2 does not read any more: the tests of a group, which
    share what takes seconds to make, would be dealt to all workers, and nobody told.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Deal the tests as tests/dealing.py says."""
    return Dealing(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and leave what is there then out of its later rounds.

    Thousands of tests and modules are made and all of them stay: to look through them again and again was two fifths
    of the time that each worker takes before its first test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
