"""The peers of `foldline bench` as targets: `peer:NAME/SETTING`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from foldline.engine.one_shot import count
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Wire
from foldline_bench.peers import PEERS, PLAIN
from foldline_bench.promises.targets.base import Target
from foldline_bench.promises.targets.callables import target_of
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import MakeSystem

__all__ = ["HostedPeer", "peer_named", "settings_of"]


class HostedPeer:
    """A system of the bench with the methods of a class under test; summaries are those of the fixed summariser."""

    make: ClassVar[MakeSystem]
    dialects = ("openai-chat",)
    counts_alike = True

    def __init__(self, window: int) -> None:
        self._sizes: dict[int, tuple[Wire, int]] = {}
        self._system = type(self).make(window, self._count, FixedSummariser())
        self._history: list[Wire] = []

    def append(self, message: Wire) -> None:
        """Add a message to the history."""
        self._history.append(message)

    def prepare(self) -> Sequence[Wire]:
        """What the system would send."""
        self._system.prepare(self._history)
        return self._system.finish(self._system.view(self._history))

    def _count(self, wire: Wire) -> int:
        known = self._sizes.get(id(wire))
        if known is None:
            known = self._sizes[id(wire)] = (wire, count([wire]))  # held, so that its id is not given again
        return known[1]


def settings_of(name: str) -> Mapping[str, tuple[MakeSystem, bool]]:
    """The settings of a peer, and whether each counts by the suite's counter."""
    if name not in {*PEERS, PLAIN}:
        raise InvalidInput(f"there is no such peer; there are {', '.join((*PEERS, PLAIN))}", place=f"peer:{name}")
    try:
        module: Any = import_module(f"foldline_bench.peers.{name}_peer")
    except ImportError as error:
        install = f"python bench/tools/bench_peers.py {name}, and --python .bench/{name}/bin/python"
        raise MissingExtra(name, f"peer:{name}", install=install, needs=f"its package ({error})") from None
    found = {setting: (make, True) for setting, make in module.SYSTEMS.items()}
    return found | {setting: (make, False) for setting, make in getattr(module, "OWN_COUNTER", {}).items()}


def peer_named(spec: str) -> Target:
    """The peer and setting of a name: `NAME/SETTING`. Raises InvalidInput, MissingExtra."""
    name, _, setting = spec.partition("/")
    settings = settings_of(name)
    if setting not in settings:
        raise InvalidInput(f"has no such setting; there are: {'; '.join(settings)}", place=f"peer:{name}")
    make, counts_alike = settings[setting]
    made = type("PeerUnderTest", (HostedPeer,), {"make": staticmethod(make), "counts_alike": counts_alike})
    return target_of(f"peer:{spec}", made)
