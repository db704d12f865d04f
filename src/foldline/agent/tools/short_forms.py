"""Tool definitions in a short form: many large tools fit into a small window, and each is read in full when needed.

A short form has the name and the first sentence of a tool. The tool `load_tools` answers with whole definitions, and so
does a call that was wrong about them. From then on the model may call the tool: any arguments pass, and are checked
against the whole definition as always.

Definitions stand at the beginning of every request, so that a change costs the whole cached prefix. They change in
batches: at a fold, which breaks that prefix anyway, tools that were used lately become whole and others short. Only a
server that holds the model to the definitions (constrained decoding) needs a loaded tool at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.base import CallScope, Tool, ToolOutcome
from foldline.agent.tools.schema import portable
from foldline.codecs.dialect import dialect_named
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.shorten import clip_tokens, first_line
from foldline.tokens import Counter
from foldline.tokens.sizes import json_tokens

__all__ = ["DEFINITIONS_SHARE", "LOAD_TOOLS", "LoadTools", "ShortForms", "definition_text"]

LOAD_TOOLS: Final = "load_tools"

DEFINITIONS_SHARE: Final = 0.2
"""The share of the window up to which all definitions stay whole, and which those that are whole may take later."""

# The longest first sentence of a short form.
_SENTENCE_TOKENS: Final = 30

# The share of the window that one answer of `load_tools` may take.
_ANSWER_SHARE: Final = 0.12

_MARK: Final = " […]"
_ANY: Final[Mapping[str, Json]] = {"type": "object", "properties": {}}


class ShortForms:
    """Which tools are whole in a request, and which short.

    `tools` are those that may be shortened, `fixed_tokens` is the size of all others. `room_tokens` bounds the
    definitions. `at_once` makes a loaded tool whole with the next request, not with the next fold.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        dialect: str,
        counter: Counter,
        room_tokens: int,
        fixed_tokens: int = 0,
        at_once: bool = False,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._dialect, self._counter, self._at_once = dialect, counter, at_once
        self._short = {name: _short_wire(tool, dialect, counter) for name, tool in self._tools.items()}
        self._whole_tokens = {name: json_tokens(_wire(tool, dialect), counter) for name, tool in self._tools.items()}
        self._short_tokens = {name: json_tokens(wire, counter) for name, wire in self._short.items()}
        self._room_tokens = room_tokens - fixed_tokens
        self._used: list[str] = []  # the latest last
        self._loaded: set[str] = set()
        self.whole: frozenset[str] = self._chosen()

    @property
    def short(self) -> frozenset[str]:
        """The names of the tools in short form."""
        return frozenset(self._tools) - self.whole

    def wire(self, name: str) -> dict[str, Json] | None:
        """The short form of a tool for a request; None for one that is whole."""
        return None if name in self.whole else self._short.get(name)

    def use(self, name: str, *, loaded: bool = False) -> None:
        """Note that a tool was called, or loaded. O(tools)."""
        if name in self._tools:
            self._used = [*(other for other in self._used if other != name), name]
            if loaded:
                self._loaded.add(name)

    def definition(self, name: str) -> str | None:
        """The whole definition of a tool as text; None for one that may not be short."""
        tool = self._tools.get(name)
        return None if tool is None else definition_text(tool)

    def settle(self, *, folded: bool) -> bool:
        """Choose anew which tools are whole, at a fold or where a loaded one is needed at once; whether that changes.

        O(tools).
        """
        if not folded and not (self._at_once and self._loaded - self.whole):
            return False
        before, self.whole = self.whole, self._chosen()
        self._loaded.clear()
        return self.whole != before

    def shorten(self) -> bool:
        """Make all of them short from now on: the window is smaller than it was known to be. Whether that changes."""
        before, self._room_tokens = self.whole, 0
        self._used.clear()
        self.whole = self._chosen()
        return self.whole != before

    def _chosen(self) -> frozenset[str]:
        left = self._room_tokens - sum(self._short_tokens.values())
        whole: list[str] = []
        # Those used last first, then the small ones: so most tools are whole.
        rest = sorted(set(self._tools) - set(self._used), key=lambda name: (self._whole_tokens[name], name))
        for name in (*reversed(self._used), *rest):
            more = self._whole_tokens[name] - self._short_tokens[name]
            # What the model is held to must be there, whatever its size.
            if more <= left or more <= 0 or (self._at_once and name in self._loaded):
                whole.append(name)
                left -= max(0, more)
        return frozenset(whole)


def _wire(tool: Tool, dialect: str) -> dict[str, Json]:
    return dialect_named(dialect).tool(tool.name, tool.description, portable(tool.parameters))


def _short_wire(tool: Tool, dialect: str, counter: Counter) -> dict[str, Json]:
    line = first_line(tool.description.strip(), 400)
    sentence = line.partition(". ")[0].rstrip(".")
    head, _ = clip_tokens(sentence, _SENTENCE_TOKENS, counter, "head")
    return dialect_named(dialect).tool(tool.name, f"{head.strip()}{_MARK}", dict(_ANY))


def definition_text(tool: Tool) -> str:
    """The whole definition of a tool, for the model to read."""
    schema = json.dumps(portable(tool.parameters), ensure_ascii=False)
    return f"{tool.name}: {tool.description.strip()}\nIts parameters: {schema}"


def _load_schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "The names of all tools that you need next.",
            }
        },
        "required": ["names"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class LoadTools:
    """Answers with the whole definitions of tools that are listed in short form."""

    forms: ShortForms
    counter: Counter
    name: str = LOAD_TOOLS
    description: str = (
        "Shows the full description and the parameters of tools. Tools whose description ends in […] are listed in "
        "short form: load them before their first call, all that you need in one call."
    )
    parameters: Mapping[str, Json] = field(default_factory=_load_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Show the definitions. Raises InvalidInput where none of the names is known."""
        names = tuple(dict.fromkeys(arguments["names"]))
        room = int(_ANSWER_SHARE * scope.max_context_tokens)
        shown: list[str] = []
        later: list[str] = []
        unknown: list[str] = []
        for name in names:
            text = self.forms.definition(name)
            if text is None:
                unknown.append(name[:80])
                continue
            tokens = self.counter.text(text)
            # The first always: a tool that is larger than its share could never be called otherwise.
            if shown and tokens > room:
                later.append(name)
                continue
            room -= tokens
            shown.append(text)
            self.forms.use(name, loaded=True)
        if not shown:
            raise InvalidInput(_not_there(unknown))
        if later:
            shown.append(f"[not shown for want of room, load them by themselves: {', '.join(later)}]")
        if unknown:
            shown.append(f"[{_not_there(unknown)}]")
        return ToolOutcome("\n\n".join(shown))


def _not_there(names: Sequence[str]) -> str:
    return f"there are no tools in short form with these names: {', '.join(names)}"
