"""Two tools of one name."""

from __future__ import annotations

import asyncio

from tests.agent.tools.people import scope

from foldline.agent.tools.recall import Recall
from foldline.agent.tools.renaming import renamed
from foldline.agent.tools.toolbox import Toolbox
from foldline.messages import ToolCall


def test_the_later_one_gets_a_mark_that_is_the_same_each_time() -> None:
    one, again = renamed(Recall(), {"recall"}), renamed(Recall(), {"recall"})
    assert one.name == again.name
    assert one.name.startswith("recall_")
    assert len(renamed(Recall(name="r" * 64), {"r" * 64}).name) == 64
    other = renamed(Recall(), {"recall", one.name})
    assert other.name not in {"recall", one.name}
    toolbox = Toolbox([Recall(), one, other])
    outcome = asyncio.run(toolbox.run(ToolCall("1", one.name, "{}"), scope()))
    assert "There is no tool" not in outcome.text
