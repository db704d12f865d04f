"""What going on with a session costs: from the catalogue, with the cache expired and while it is warm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foldline.catalog.models import CACHE_RULES, lookup
from foldline.display.resuming import resume_price, resume_text

MODEL = replace(lookup("claude-sonnet-5-5"), cache=CACHE_RULES["anthropic"], input_usd_per_million=4.0, known=True)


def test_a_cold_cache_is_written_anew_and_a_warm_one_is_read() -> None:
    price = resume_price(MODEL, 100_000)
    assert price is not None
    assert price.cold_usd == pytest.approx(100_000 * 1.25 * 4e-6)
    assert price.warm_usd == pytest.approx(100_000 * 0.1 * 4e-6)
    cold, warm = resume_text(price, cold=True), resume_text(price, cold=False)
    assert cold is not None and "has expired" in cold and "~$0.500 instead of ~$0.040" in cold
    assert warm is not None and "expired" not in warm and "~$0.040" in warm


def test_without_a_price_nothing_is_said() -> None:
    assert resume_price(lookup("a-model-that-nobody-knows"), 100_000) is None
    assert resume_price(replace(MODEL, input_usd_per_million=None), 100_000) is None
    assert resume_price(MODEL, 0) is None
    assert resume_text(None, cold=True) is None
