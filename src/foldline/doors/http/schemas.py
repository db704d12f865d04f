"""The JSON objects of answers, as types.

They are the only definition: mypy holds `payloads.py` to them, and `openapi.py` derives the document from them. The
document names each type without "Json".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypeAlias, TypedDict

from foldline.agent.events import EndReason
from foldline.messages import Json

__all__ = [
    "BranchJson",
    "BranchesJson",
    "CallJson",
    "CancelledJson",
    "CompactedJson",
    "ContextJson",
    "ContextPartsJson",
    "ContextRowJson",
    "EntryJson",
    "EntryState",
    "FiguresJson",
    "FoldJson",
    "FoldsJson",
    "HealthJson",
    "HistoryJson",
    "PinnedJson",
    "Pressure",
    "ProblemJson",
    "ReadyJson",
    "ResultJson",
    "ReturnedJson",
    "RewoundJson",
    "RuleJson",
    "SessionFields",
    "SessionJson",
    "SessionRowJson",
    "SessionsJson",
    "ToolSizeJson",
    "TurnJson",
    "TurnRowJson",
    "TurnsJson",
    "UndoneJson",
    "UsageJson",
    "WholeEntryJson",
]

EntryState: TypeAlias = Literal["shown", "hidden", "shortened", "pinned", "repaired"]
"""The state of a message in the view of the model."""

Pressure: TypeAlias = Literal["none", "soft", "hard"]
"""Whether the window is due to be folded."""


class ProblemJson(TypedDict):
    """A problem (RFC 9457). Some kinds have figures as further members."""

    type: str
    title: str
    status: int
    detail: str
    field: NotRequired[str]


class FiguresJson(TypedDict):
    """The fill of the window."""

    max_context_tokens: int
    current_context_tokens: int
    last_prompt_tokens: int
    last_completion_tokens: int
    total_prompt_tokens: int
    total_completion_tokens: int
    ask_at_tokens: int
    used_tokens: int
    utilization: float


class SessionFields(TypedDict):
    """The fields that a list and a single session share."""

    id: str
    title: str
    created: str
    updated: str
    dialect: str
    policy: str
    model: str | None
    parent: str | None
    turns: int
    messages: int
    folds: int
    tokens: int
    window_tokens: int
    queued: int
    state: Literal["idle", "running"]


class SessionRowJson(SessionFields):
    """A session in a list. `damage` says why its figures are 0: its log cannot be read."""

    damage: NotRequired[str]


class SessionsJson(TypedDict):
    """A page of the list of sessions."""

    sessions: list[SessionRowJson]
    next: str | None


class UsageJson(TypedDict):
    """Tokens of a session, over all model calls."""

    prompt_tokens: int
    completion_tokens: int


class ResumeJson(TypedDict):
    """What the next request costs as input: read anew, and from the provider's cache. `cold`: it has expired."""

    tokens: int
    cold_usd: float
    warm_usd: float
    cold: bool


class SessionJson(SessionFields):
    """One session. `resume` is null where no price is known."""

    figures: FiguresJson
    usage: UsageJson
    pressure: Pressure
    limit_tokens: int
    resume: ResumeJson | None


class TurnJson(TypedDict):
    """The end of a turn. `seq` is the user's message."""

    session: str
    reason: EndReason
    text: str
    message: str
    iterations: int
    seq: int | None
    figures: FiguresJson | None


class TurnRowJson(TypedDict):
    """A turn in a list."""

    number: int
    start: int
    stop: int
    prompt_tokens: int
    completion_tokens: int
    began: str
    ended: str
    reason: str
    folds: list[int]


class TurnsJson(TypedDict):
    """The newest turns."""

    turns: list[TurnRowJson]


class FoldJson(TypedDict):
    """A fold, with the text that it shows."""

    id: int
    start: int
    stop: int
    before_tokens: int
    tokens: int
    reducer: str
    reason: str
    shown: str
    form: bool
    in_effect: bool
    archive: str | None


class FoldsJson(TypedDict):
    """The folds in effect."""

    folds: list[FoldJson]


class CallJson(TypedDict):
    """A call of a tool."""

    id: str
    name: str
    arguments: str


class ResultJson(TypedDict):
    """The result of a call."""

    call_id: str
    text: str


class EntryJson(TypedDict):
    """A recorded message. `cut`: its texts are shortened to CUT_CHARS."""

    seq: int
    tokens: int
    role: str
    kind: str
    at: str
    text: str
    cut: bool
    calls: list[CallJson]
    results: list[ResultJson]
    state: EntryState
    fold: int | None


class WholeEntryJson(EntryJson):
    """A recorded message in full, with every fold over it."""

    folds: list[FoldJson]


class HistoryJson(TypedDict):
    """A page of the recorded messages."""

    messages: list[EntryJson]
    first: int
    next: int | None


class ContextRowJson(TypedDict):
    """A message of the next request, and the recorded messages [start, stop) behind it."""

    start: int
    stop: int
    tokens: int
    role: str
    kind: str
    text: str
    fold: int | None
    state: EntryState


class ContextPartsJson(TypedDict):
    """Tokens of each part of the next request."""

    system: int
    tools: int
    folded: int
    messages: int


class RuleJson(TypedDict):
    """A rule that stays word for word: its source, the message that holds it, and its tokens."""

    source: str
    seq: int
    tokens: int
    text: str


class ToolSizeJson(TypedDict):
    """The tokens of a tool definition; `server` is its MCP server, "" for none or an unknown one."""

    name: str
    server: str
    tokens: int


class ContextJson(TypedDict):
    """The next request as the model would see it."""

    tokens: int
    window_tokens: int
    max_output_tokens: int
    dialect: str
    model: str | None
    messages: list[Mapping[str, Json]]
    system: Json
    tools: Json
    rows: list[ContextRowJson]
    parts: ContextPartsJson
    rules: list[RuleJson]
    tool_sizes: list[ToolSizeJson]
    pressure: Pressure


class CompactedJson(TypedDict):
    """The outcome of a compaction."""

    before: FiguresJson
    after: FiguresJson
    folds: list[FoldJson]
    summary: str


class UndoneJson(TypedDict):
    """The undone folds."""

    unfolded: list[int]


class RewoundJson(TypedDict):
    """How many messages were left."""

    left: int


class StretchJson(TypedDict):
    """Messages [start, stop)."""

    start: int
    stop: int


class BranchJson(StretchJson):
    """A branch that is sent no more since `at`: its `messages`, from `start` on; the last is before `stop`."""

    messages: int
    at: str


class BranchesJson(TypedDict):
    """The branches that a session has left, oldest first, and the messages that are sent, folded or not."""

    branches: list[BranchJson]
    current: list[StretchJson]


class ReturnedJson(TypedDict):
    """How many messages of a left branch are back."""

    back: int


class PinnedJson(TypedDict):
    """Whether a message is kept whole."""

    seq: int
    pinned: bool


class CancelledJson(TypedDict):
    """Whether a turn was stopped."""

    cancelled: bool


class HealthJson(TypedDict):
    """Whether the process is well."""

    status: Literal["ok", "stopping"]
    version: str


class ReadyJson(TypedDict):
    """The sessions can be reached."""

    status: Literal["ready"]
