"""The commands that change something: /undo, /pin, /model, /policy, /resume, /export, /clear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from foldline.doors.chat.commands import whole_number
from foldline.doors.chat.inspect_commands import entry_of
from foldline.errors import InvalidInput, SummaryError
from foldline.hosting.session_text import local_time, seq_range
from foldline.text.formatting import plain_line, plural
from foldline.view.user_words import speaks

if TYPE_CHECKING:
    from foldline.doors.chat.chat_loop import ChatLoop

__all__ = ["branches", "clear", "export", "fold", "model", "pin", "policy", "resume", "rewind", "undo"]

_LISTED: Final = 10  # the newest; `foldline sessions list` has all of them


async def undo(chat: ChatLoop, argument: str) -> None:
    """Undo the last batch of folds."""
    if argument:
        raise InvalidInput("takes nothing: it takes back the last batch of folds", place="/undo")
    session = (await (await chat.conversation()).agent()).session
    before = session.context.view.tokens
    undone = session.undo()
    if not undone:
        chat.screen.line("no fold is in effect: there is nothing to take back", "dim")
        return
    after = session.context.view.tokens
    chat.screen.line(f"took back {plural(len(undone), 'fold')}: ~{before:,} → ~{after:,} tokens", "magenta")
    if after > session.context.limits.input_tokens:
        chat.screen.line("that is more than a request may have: the next one folds again", "yellow")


async def fold(chat: ChatLoop, argument: str) -> None:
    """Fold a stretch of messages that the user chose."""
    typed, _, instructions = argument.partition(" ")
    first, _, last = typed.partition("-")
    start, stop = whole_number(first), whole_number(last or first)
    if start is None or stop is None or stop < start:
        raise InvalidInput("takes the numbers of messages: /fold 12-40, /fold 12", place="/fold")
    conversation = await chat.conversation()
    agent = await conversation.agent()
    entry_of(agent.session.whole(), stop, "/fold")
    before = agent.session.context.view.tokens
    with chat.screen.working("summarising" if agent.summarize is not None else "folding by digest"):
        try:
            folds = await agent.session.fold([(start, stop + 1)], instructions.strip() or None, agent.summarize)
        except SummaryError as error:
            chat.screen.error(f"not folded: {error.reason}")
            return
        finally:
            conversation.save(agent)
    after, count = agent.session.context.view.tokens, sum(each.stop - each.start for each in folds if not each.form)
    chat.screen.line(f"folded {plural(count, 'message')}: ~{before:,} → ~{after:,} tokens (/undo)", "magenta")


async def rewind(chat: ChatLoop, argument: str) -> None:
    """Go back to before a message; the session goes on from there as a branch."""
    number = whole_number(argument)
    if number is None:
        raise InvalidInput("takes the number of the message to go back to: /rewind 12", place="/rewind")
    conversation = await chat.conversation()
    agent = await conversation.agent()
    said = entry_of(agent.session.whole(), number, "/rewind").message
    count = agent.session.rewind(number)
    conversation.save(agent)
    chat.screen.line(f"left {plural(count, 'message')}; they stay readable (/history all, recall)", "magenta")
    if speaks(said):
        chat.screen.line(f"it said: {plain_line(said.text, 200)}", "dim")


async def branches(chat: ChatLoop, argument: str) -> None:
    """List the branches that were left, or go back to one, by the number of its last message."""
    number = whole_number(argument)
    if argument.strip() and number is None:
        raise InvalidInput("takes the number of a branch's last message: /branches 41", place="/branches")
    conversation = await chat.conversation()
    agent = await conversation.agent()
    if number is None:
        whole = agent.session.whole()
        for one in (left := whole.branches.left):
            said = entry_of(whole, one.start, "/branches").message
            words = plain_line(said.text, 60) if speaks(said) else said.role
            chat.screen.line(f"{seq_range(one.start, one.tip + 1)}  {plural(one.messages, 'message')}: {words}")
        chat.screen.line("go back to one: /branches and its last number" if left else "no branch was left", "dim")
        return
    count = agent.session.go_back(number)
    conversation.save(agent)
    chat.screen.line(f"back on the branch: {plural(count, 'message')} (/branches: the one you left)", "magenta")


async def pin(chat: ChatLoop, argument: str) -> None:
    """Keep a message whole from now on, or let it be folded again."""
    typed, _, state = argument.partition(" ")
    number = whole_number(typed)
    if number is None or state.strip() not in ("", "off"):
        raise InvalidInput("takes the number of a message, and off to end it: /pin 4, /pin 4 off", place="/pin")
    session = (await (await chat.conversation()).agent()).session
    pinned = state.strip() != "off"
    # The whole log: a folded message exists too, and gets a reason instead of "no such message".
    entry_of(session.whole(), number, "/pin")
    session.pin(number, pinned=pinned)
    chat.screen.line(f"message {number} {'stays whole from here on' if pinned else 'may be folded again'}")


async def model(chat: ChatLoop, argument: str) -> None:
    """Show the model, or continue with another."""
    conversation = await chat.conversation()
    if not argument:
        chat.screen.line(conversation.runtime.picked.line)
        chat.screen.line("/model NAME, PROVIDER or PROVIDER:NAME goes on with another", "dim")
        return
    with chat.screen.working(f"looking for {plain_line(argument, 60)}"):
        left = await conversation.use_model(argument)
        # Built now, so that an error comes with the command and not with the next message.
        if conversation.started:
            await conversation.agent()
    chat.screen.model = conversation.runtime.provider.model
    chat.screen.line(conversation.runtime.picked.line)
    for note in conversation.runtime.picked.notes:
        chat.screen.line(note, "yellow")
    # Permissions hold for one session: what was allowed in it was not allowed in another.
    if left is not None:
        chat.consent.forget()
        was = f", taken from {left}" if left else ""
        chat.screen.line(f"it speaks another dialect: the conversation goes on in a new session{was}", "yellow")


async def policy(chat: ChatLoop, argument: str) -> None:
    """Show the policy, or continue under another."""
    from foldline.engine.presets import policy_names

    conversation = await chat.conversation()
    if not argument:
        chat.screen.line(f"{conversation.policy_name}; there are {', '.join(policy_names())}")
        return
    await conversation.use_policy(argument)
    chat.screen.line(f"policy {argument} from here on")


async def resume(chat: ChatLoop, argument: str) -> None:
    """List the sessions, or resume one."""
    conversation = await chat.conversation()
    if conversation.store is None:
        raise InvalidInput("nothing is kept here (--no-save)", place="/resume")
    if argument:
        found = conversation.resume(argument)
        chat.consent.forget()
        # A log of months takes seconds to read.
        with chat.screen.working("reading the session"):
            agent = await conversation.agent()
        count = plural(len(agent.session.whole().view.entries), "message")
        chat.screen.line(f"going on with {found}: {count}, ~{agent.session.context.view.tokens:,} tokens (/history)")
        if (text := conversation.resume_text()) is not None:
            chat.screen.line(text, "dim")
        return
    listed = [one for one in conversation.store.sessions() if one.id != conversation.id][:_LISTED]
    for one in listed:
        snapshot = one.snapshot
        words = one.damage if snapshot is None else f"{local_time(snapshot.updated)}  {plain_line(snapshot.title, 200)}"
        chat.screen.line(f"{one.id}  {plain_line(words, 200)}", one=True)
    chat.screen.line(
        "/resume ID goes on with one; the beginning of an ID is enough" if listed else "no other session is kept"
    )


async def export(chat: ChatLoop, argument: str) -> None:
    """Write the whole conversation to a file: Markdown for .md, else messages as JSON."""
    from foldline.hosting.session_text import export_session
    from foldline.store.files import check_writable, write_atomic

    if not argument:
        raise InvalidInput("takes the file to write: /export talk.md, /export talk.json", place="/export")
    conversation = await chat.conversation()
    path = Path(argument).expanduser()
    check_writable(str(path))  # before the log is read, which may take long
    if conversation.store is None or conversation.id is None or not conversation.started:
        raise InvalidInput("there is no session on disk to export", place="/export")
    text = export_session(conversation.store.read(conversation.id), "markdown" if path.suffix == ".md" else "messages")
    if path.exists() and not await chat.confirm(f"{path} is there already. Replace it? [y/N]"):
        return
    # "replace": a lone surrogate of a model must not lose the whole export.
    write_atomic(path, [text.encode("utf-8", "replace")])
    chat.screen.line(f"wrote {path}, for you alone to read")


async def clear(chat: ChatLoop, argument: str) -> None:
    """Start a new session; the former one is kept."""
    if argument:
        raise InvalidInput("takes nothing: it begins a new session", place="/clear")
    conversation = await chat.conversation()
    left = conversation.id if conversation.started else None
    conversation.clear()
    chat.consent.forget()
    chat.screen.line("a new session begins" + ("" if left is None else f"; /resume {left} goes back"))
