"""Files that a user sends to a session. Bytes and text are stored; the model reads as much as fits.

The size guard is the one for reading a file (S4.06, S4.09): the whole text if it is within the budget of one result,
else its figures, its first lines, and how to read on.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from foldline.agent.tools.files.file_text import HEAD_BYTES, decoded, is_pdf, notebook_text, pdf_text
from foldline.agent.workers import READERS, StopSignal, owned_by, run_in_thread
from foldline.display import Room, preview_lines, size_text
from foldline.errors import InvalidInput
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.messages import Json
from foldline.text.formatting import plain_line, plural
from foldline.tokens import ESTIMATE

__all__ = ["StoredDocument", "store_document"]

_NAME_CHARS: Final = 100
_CHUNK_LINES: Final = 200  # a page of a usual source file; more would often exceed the budget of one result


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A stored file.

    `original` is the archive key of its bytes, `text` that of its text ("" without any). `prompt_text` is what the
    model reads, `tokens` the size of the text, and `shown` says whether all of it is in `prompt_text`.
    """

    name: str
    size_bytes: int
    original: str
    text: str
    tokens: int
    shown: bool
    prompt_text: str


async def store_document(actor: SessionActor, name: str, data: bytes, *, used_tokens: int = 0) -> StoredDocument:
    """Store a file in the archive of a session, as safe as its log, and return what the model reads of it.

    `used_tokens` is the size of the other files of the same message. Raises what `SessionActor.archive` raises. A PDF
    takes half a second and more, in a process of its own.
    """
    name = plain_line(name, _NAME_CHARS) or "file"
    # The bytes first: if the text cannot be read, nothing that the user sent is lost.
    original = await actor.archive(data)
    upload = _ReceivedFile(json.dumps(name, ensure_ascii=False), len(data), original)
    try:
        # The reader process counts for this session, and is stopped with it.
        with owned_by(actor.id):
            # By its bytes, not its name: people rename files, and the sender chooses the name.
            if is_pdf(data[:HEAD_BYTES]):
                text, note = await READERS.run(lambda stop: _pdf_text(data, name, stop)), ""
            else:
                text, note = await run_in_thread(lambda _: _text(data, name))
    except InvalidInput as error:
        return upload.document(name, f"It {error.reason}; its bytes are kept.")
    if not text.strip():
        return upload.document(name, "There is no text in it.")
    # The text is an object of its own, so that `recall` reads it by lines without parsing the PDF again.
    key = await actor.archive(text.encode("utf-8", "surrogatepass"))
    # Asked last: other turns may have filled the window while the file was read.
    room, recalls = await actor.inspect(_room)
    room = Room(room.window_tokens, room.used_tokens + used_tokens)
    return upload.with_text(name, text, note, key, room, recalls=recalls)


@dataclass(frozen=True, slots=True)
class _ReceivedFile:
    """A file as received: its name as the model reads it, its size, and the key of its bytes."""

    quoted: str
    size_bytes: int
    original: str

    def document(self, name: str, what: str) -> StoredDocument:
        """Describe a file without text."""
        return self._build(name, f"[The user sent the file {self.quoted}, {size_text(self.size_bytes)}. {what}]")

    def with_text(self, name: str, text: str, note: str, key: str, room: Room, *, recalls: bool) -> StoredDocument:
        """Describe a file with text: whole, or its first lines and how to read on."""
        tokens = ESTIMATE.text(text)
        lines = text.removesuffix("\n").split("\n")
        about = f"[The user sent the file {self.quoted}, {size_text(self.size_bytes)}: ~{tokens:,} tokens of text"
        about += f" in {plural(len(lines), 'line')}."
        if note:
            about += f" {note[:1].upper()}{note[1:]}."
        if tokens <= room.budget_tokens:
            prompt_text = f"{about}]\n--- {name} ---\n{text.removesuffix(chr(10))}\n--- end of {name} ---"
            return self._build(name, prompt_text, key, tokens, shown=True)
        # Half the budget at most: the preview serves to choose where to read on.
        head = preview_lines(lines, min(2_000, room.budget_tokens // 2))
        on = (
            f"All of it is kept. To read on, call recall with action peek, saved {key}, start_line {len(head) + 1} and "
            f"lines {_CHUNK_LINES}; to search it, with action grep, the same saved, and a pattern."
            if recalls
            else "All of it is kept, but there is no tool here to read on: say so, and ask for the part that matters."
        )
        prompt_text = (
            f"{about} That is too much to be shown at once: the budget is ~{room.budget_tokens:,} tokens. {on}]\n"
            f"--- the first {plural(len(head), 'line')} of {name} ---\n"
            + "\n".join(head)
            + "\n--- end of the preview ---"
        )
        return self._build(name, prompt_text, key, tokens, shown=False)

    def _build(
        self, name: str, prompt_text: str, text: str = "", tokens: int = 0, *, shown: bool = True
    ) -> StoredDocument:
        return StoredDocument(
            name=name,
            size_bytes=self.size_bytes,
            original=self.original,
            text=text,
            tokens=tokens,
            shown=shown,
            prompt_text=prompt_text,
        )


def _pdf_text(data: bytes, name: str, stop: StopSignal) -> str:
    with tempfile.TemporaryFile() as file:  # its reader is another process
        file.write(data)
        return pdf_text(file, name, stop)


def _text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text of a file, and a note on how it was decoded. Raises InvalidInput for a file without text."""
    found = decoded(data, name)
    # The JSON of a notebook is mostly metadata and encoded output; people mean its cells.
    if name.lower().endswith(".ipynb"):
        try:
            return notebook_text(found.text), found.note.strip("[]")
        except InvalidInput as error:
            return found.text, f"not a notebook that can be read (it {error.reason}); shown as it is"
    return found.text, found.note.strip("[]")


def _room(state: SessionState) -> tuple[Room, bool]:
    """The tokens left in the window, and whether the model has a tool to read stored text."""
    context = state.context
    recalls = any(_name(tool) == "recall" for tool in state.tools or ())
    return Room(context.limits.window_tokens, context.view.tokens), recalls


def _name(tool: Json) -> Json:
    """The name of a tool, in any dialect."""
    fields = tool if isinstance(tool, Mapping) else {}
    inner = fields.get("function")
    return (inner if isinstance(inner, Mapping) else fields).get("name")
