"""How the tests are dealt to the workers of pytest-xdist: several at a time, groups whole."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

__all__ = ["Dealing"]

AHEAD = 24
"""The most tests that wait at one worker, where they are no group."""


class Dealing(LoadGroupScheduling):  # type: ignore[misc]
    """`--dist loadgroup` for thousands of tests of a few milliseconds.

    xdist's own gives a worker its next test when it begins the last but one, so that short tests wait for the process
    that deals; and it looks through all that a worker ever had at each test that ends.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._places: dict[str, int] = {}

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a test has ended, forget what is whole, and deal on."""
        name = self.registered_collections[node][item_index]
        scope = self._split_scope(name)
        unit = self.assigned_work[node][scope]
        unit[name] = True
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down or not self.workqueue:
            super()._reschedule(node)
            return
        # Towards the end fewer, so that nobody holds a row of them while the others have none.
        ahead = max(3, min(AHEAD, len(self.workqueue) // (4 * len(self.nodes))))
        if self._pending_of(self.assigned_work[node]) > max(2, ahead // 2):
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) < ahead:
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = unit
        if not self._places:
            self._places = {name: place for place, name in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._places[name] for name, ended in unit.items() if not ended])
