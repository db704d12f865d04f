"""How many examples the property tests run, and the fixtures of tests that talk to real servers.

Profiles, chosen with pytest's --hypothesis-profile: `dev` (200, the default), `ci` (400, the same ones each time, so
that a red run can be repeated) and `fuzz` (100,000). FOLDLINE_EXAMPLES, a number, overrides the count of any of them.
Those on whole sessions run a quarter of that each day (tests/property/depth.py).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.real.chromium", "tests.real.postgresql", "tests.real.telegram_api", "tests.store.fresh"]

EXAMPLES = {"dev": 200, "ci": 400, "fuzz": 100_000}

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
