"""The tools of an agent: their definitions for a request, and the execution of calls.

Every call gets a result. A wrong call or an error in a tool becomes a result that the model can act on; only a
cancellation leaves `run`.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from foldline.agent.tools.base import CallScope, Tool, ToolOutcome
from foldline.agent.tools.schema import faults, has_patterns, portable
from foldline.agent.tools.short_forms import LOAD_TOOLS, ShortForms
from foldline.agent.workers import run_in_thread
from foldline.codecs import codec
from foldline.codecs.dialect import dialect_named
from foldline.errors import InvalidInput
from foldline.messages import Json, ToolCall
from foldline.text.shorten import clip_bytes

__all__ = ["RESULT_BYTES", "Toolbox", "renamed"]

RESULT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a result that enter a session. Built-in tools stay far below; a foreign tool may not know any bound."""

# Longer arguments are checked in a thread, so that a check does not hold up the event loop.
LONG_CHARS: Final = 100_000

_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # OpenAI's rule for function names; Anthropic takes 128 characters
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Toolbox:
    """Tools by name.

    Raises InvalidInput for a name that is not legal or given twice, and for parameters that are no schema of an object.
    """

    def __init__(self, tools: Sequence[Tool], forms: ShortForms | None = None) -> None:
        self.forms = forms
        self._tools: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda each: each.name):
            if not _LEGAL.fullmatch(tool.name):
                raise InvalidInput('a name has 1 to 64 letters, digits, "_" and "-"', place=f"tool {tool.name[:80]!r}")
            if tool.name in self._tools:
                raise InvalidInput("two tools have this name", place=f"tool {tool.name!r}")
            if not isinstance(tool.parameters, Mapping) or tool.parameters.get("type", "object") != "object":
                raise InvalidInput("its parameters must be the schema of an object", place=f"tool {tool.name!r}")
            self._tools[tool.name] = tool
        # Checked in a thread: the patterns of a foreign schema may be hostile.
        self._slow = {name for name, tool in self._tools.items() if has_patterns(tool.parameters)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools, in the order of `wires`."""
        return tuple(self._tools)

    def wires(self, dialect: str) -> list[dict[str, Json]]:
        """Return the tools as a request carries them, sorted by name to keep cached prefixes stable.

        Some are in short form (`forms`). Raises InvalidInput for an unknown dialect.
        """
        codec(dialect)
        forms, tools = self.forms, self._tools.items()
        if forms is None:
            return [_wire(tool, dialect) for _, tool in tools]
        # What loads tools is offered where there is one to load.
        offered = ((name, tool) for name, tool in tools if name != LOAD_TOOLS or forms.short)
        return [forms.wire(name) or _wire(tool, dialect) for name, tool in offered]

    @property
    def servers(self) -> dict[str, str]:
        """The MCP server of each tool that has one."""
        named = ((name, getattr(tool, "server", "")) for name, tool in self._tools.items())
        return {name: server for name, server in named if server}

    async def run(self, call: ToolCall, scope: CallScope) -> ToolOutcome:
        """Run a call. Raises CancelledError and nothing else.

        No tool sees arguments that its schema does not allow. A result over `RESULT_BYTES` keeps its beginning and end.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return _bounded(ToolOutcome(self._unknown(call.name), is_error=True))
        try:
            arguments = _arguments(call.arguments)
            # In a thread only where it may take long: the switch costs more than most checks.
            if call.name in self._slow or len(call.arguments) > LONG_CHARS:
                found = await run_in_thread(lambda stop: faults(tool.parameters, arguments, stop.check))
            else:
                found = faults(tool.parameters, arguments)
            wrong = "; ".join(found)
        except InvalidInput as error:
            wrong = str(error)
        except RecursionError:
            wrong = "its arguments are nested too deep"
        wrong = self._with_definition(call.name, wrong)
        if wrong:
            return _bounded(ToolOutcome(f"{call.name} was not run: {wrong}", is_error=True))
        return _bounded(await _run_tool(tool, arguments, scope))

    def _with_definition(self, name: str, wrong: str) -> str:
        """A fault of a call, with the definition where the model had only the short form."""
        if self.forms is None:
            return wrong
        self.forms.use(name, loaded=bool(wrong))
        text = self.forms.definition(name) if wrong and name in self.forms.short else None
        return wrong if text is None else f"{wrong}\n{text}"

    def _unknown(self, name: str) -> str:
        # All names, nearest first: a model that sees only the nearest may be led to the wrong tool.
        near = difflib.get_close_matches(name[:64], self._tools, n=len(self._tools) or 1, cutoff=0.4)
        listed = [*near, *(other for other in self._tools if other not in near)]
        hint = f"there are {', '.join(listed)}" if listed else "there are no tools"
        return f"There is no tool {name[:80]!r}; {hint}."


def _wire(tool: Tool, dialect: str) -> dict[str, Json]:
    return dialect_named(dialect).tool(tool.name, tool.description, portable(tool.parameters))


def _arguments(text: str) -> dict[str, Json]:
    """Parse the arguments of a call, a JSON object. Some servers send an empty text for no arguments."""
    if not text.strip():
        return {}
    try:
        # NaN and Infinity are no JSON (RFC 8259, section 6), though Python reads them: a tool must not get them.
        value = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        around = text[max(0, error.pos - 20) : error.pos + 20]
        where = f"line {error.lineno}, column {error.colno}, near {around!r}"
        raise InvalidInput(f"its arguments are not valid JSON: {error.msg} at {where}") from None
    except ValueError as error:  # NaN and the like, or a number of thousands of digits
        raise InvalidInput(f"its arguments cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"its arguments must be a JSON object, not {text.strip()[:80]}")
    return value


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


async def _run_tool(tool: Tool, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
    """Run a tool and return its outcome, or its error. Code of users and MCP servers runs here and nowhere else."""
    try:
        outcome = await tool.run(arguments, scope)
    except InvalidInput as error:
        return ToolOutcome(str(error), is_error=True)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The turn was not cancelled: something that the tool awaited was.
        return ToolOutcome(f"{tool.name} failed: what it waited for was cancelled", is_error=True)
    except Exception as error:  # noqa: BLE001 - the errors of a foreign tool cannot be listed
        return ToolOutcome(f"{tool.name} failed: {_error_text(error)}", is_error=True)
    if not isinstance(outcome, ToolOutcome) or not isinstance(outcome.text, str):
        return ToolOutcome(
            f"{tool.name} failed: it answered {type(outcome).__name__}, not a ToolOutcome", is_error=True
        )
    return outcome


def _error_text(error: BaseException) -> str:
    """Return the type and message of an error, of a group those of the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _bounded(outcome: ToolOutcome) -> ToolOutcome:
    """Return the outcome with a text that can be stored: no lone surrogates, at most `RESULT_BYTES`."""
    # A lone surrogate is no Unicode text: no store or provider could encode it.
    text = outcome.text if outcome.text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", outcome.text)
    size_bytes = len(text.encode())
    if size_bytes > RESULT_BYTES:
        # Both ends, as for programs: the start of a result says what it is, its end how it ended.
        head, tail = (clip_bytes(text, RESULT_BYTES // 2, end=end) for end in (False, True))
        left_out = size_bytes - len(head.encode()) - len(tail.encode())
        text = f"{head}\n[… {left_out:,} of {size_bytes:,} bytes are left out here …]\n{tail}"
    return outcome if text is outcome.text else replace(outcome, text=text)


NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class _Renamed:
    """The tool `inner` as `name`."""

    inner: Tool
    name: str

    @property
    def description(self) -> str:
        """The tool's own."""
        return self.inner.description

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The tool's own."""
        return self.inner.parameters

    @property
    def server(self) -> str:
        """The MCP server of the tool; "" for none."""
        return str(getattr(self.inner, "server", ""))

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Run the tool."""
        return await self.inner.run(arguments, scope)


def renamed(tool: Tool, used: Collection[str]) -> Tool:
    """Return the tool under a free name: its own, cut, with six digits of a hash. The same in every session."""
    # By hash, not by a counter: names are part of cached prefixes, and the order of servers must not change them.
    mark, name = "", tool.name
    while name in used:
        mark = hashlib.sha256(f"{tool.description}{mark}{name}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
        name = f"{tool.name[: NAME_CHARS - 7]}_{mark}"
    return _Renamed(tool, name)
