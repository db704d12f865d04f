"""What every door opens: settings, the model, the store, the log of calls and learned limits, behind actors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.runtime import Crew, Options, settings_for

if TYPE_CHECKING:
    from foldline.agent.tools.base import Ask
    from foldline.hosting.session_actor import ActorLimits
    from foldline.hosting.session_pool import Actors, Allowed
    from foldline.store.call_log import CallLog

__all__ = ["logged_calls", "opened"]


@asynccontextmanager
async def opened(
    options: Options,
    environ: Mapping[str, str],
    *,
    workspace: Path,
    store: str | None,
    yes: bool,
    limits: ActorLimits,
    notice: Callable[[str], None],
    allowed: Allowed | None = None,
) -> AsyncIterator[Actors]:
    """The sessions of a store, run by the agent that these options describe; all of it is let go of with the block.

    `store` is a place as `open_store` takes it (None: that of the environment, else the user's folder). `yes` runs
    allowed tools unasked; otherwise `allowed` asks somebody, and without it they are refused. `notice` is told what
    ends nothing. Turns are cut off at the end of the block: call `Actors.stop` before it to let them end. Raises
    InvalidInput (options, settings, a place that can be none), MissingExtra, what `pick` raises, and OSError.
    """
    # Loaded now: these take longer than --help may.
    from foldline.hosting.session_choice import place_of
    from foldline.hosting.session_pool import Actors
    from foldline.store.addresses import open_store
    from foldline.store.learned_limits import LearnedLimits
    from foldline.store.paths import calls_path, learned_path

    if not workspace.is_dir():
        raise InvalidInput("is no folder", place=f"--workspace: {workspace}")
    loaded = settings_for(options, environ)
    for withheld in loaded.withheld:
        notice(f"not before it is trusted (foldline config trust): {withheld}")
    place = place_of(store, environ)
    learned = LearnedLimits(learned_path(environ))
    async with AsyncExitStack() as stack:
        kept = await asyncio.to_thread(open_store, place)  # a database may be far away
        stack.callback(kept.close)
        crew = await Crew.start(
            loaded.settings,
            environ,
            workspace=workspace.resolve(),
            learned=learned,
            calls=logged_calls(calls_path(environ), notice, loaded.settings.keep_calls),
            notice=notice,
        )
        stack.push_async_callback(crew.aclose)
        yield await stack.enter_async_context(
            Actors(crew, kept, limits=limits, allowed=_everything if yes else allowed)
        )


def logged_calls(path: Path, notice: Callable[[str], None], keep_calls: int) -> CallLog | None:
    """The log of model calls, in which so many stay. One that cannot be written is told, and stops nothing."""
    from foldline.store.call_log import CallLog

    try:
        return CallLog(path, keep_calls=keep_calls)
    except (OSError, FoldlineError) as error:
        notice(f"Model calls are not logged: {error}")
        return None


async def _everything(name: str, ask: Ask) -> bool:
    del name, ask
    return True
