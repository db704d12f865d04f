"""A server hands the interpreter from thread to thread soon, and looks for cycles in what is new."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from foldline.hosting.pace import SWITCH_SECONDS, set_pace


@pytest.fixture
def pace() -> Iterator[None]:
    switch_seconds, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(switch_seconds)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("pace")
def test_threads_that_work_give_the_interpreter_back_soon_and_what_is_loaded_is_looked_through_no_more() -> None:
    set_pace()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert SWITCH_SECONDS <= 0.001
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > 10_000
