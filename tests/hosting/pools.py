"""A session pool over a fake model server, for tests of the doors in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from foldline.agent.tools.base import PermissionRequest
from foldline.hosting.runtime import Options, Runtime, settings_for
from foldline.hosting.session_actor import ActorLimits
from foldline.hosting.session_pool import AskPermission, SessionPool
from foldline.store.base import Store
from foldline.store.folders import FileStore

AGENTS = "agents.yaml"


@asynccontextmanager
async def session_pool(
    url: str,
    folder: Path,
    *,
    store: Store | None = None,
    limits: ActorLimits | None = None,
    allowed: AskPermission | None = None,
    yaml: str = "",
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[SessionPool]:
    """A pool with its sessions in `folder`/sessions; `yaml` is the text of the settings file."""
    home = {"FOLDLINE_HOME": str(folder / "home"), **(environ or {})}
    config = None
    if yaml:
        path = folder / AGENTS
        path.write_text(yaml)
        config = str(path)
    fields = {"base_url": f"{url}/v1", "model": "fake-model", "config": config, **options}
    loaded = settings_for(Options(**fields), home, folder=folder)
    runtime = await Runtime.start(loaded.settings, home, workspace=folder, learned={}, calls=None)
    opened = store or FileStore(folder / "sessions", fsync=False)
    try:
        async with SessionPool(runtime, opened, limits=limits, allowed=allowed) as pool:
            yield pool
    finally:
        await runtime.aclose()
        opened.close()


async def nobody(ask: PermissionRequest) -> bool:
    """Refuse every call of a tool."""
    del ask
    return False


def words(folder: Path, name: str) -> list[str]:
    """The contents of all messages of a session, from its log."""
    records = FileStore(folder / "sessions").records(name)
    return [str(record["message"]["content"]) for record in records if record["type"] == "message"]
