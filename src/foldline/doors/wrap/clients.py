"""The clients that `foldline wrap` knows, as a table: what each needs to be pointed at a proxy for one run.

To add a client, add a row to `CLIENTS` and a line to the table of docs/clients.md. A row changes nothing that outlives
the run: it sets variables, arguments, and files in a folder that is removed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Final

from foldline.doors.wrap.own_settings import ClientSettings, claude_settings, codex_settings, gemini_settings
from foldline.errors import InvalidInput

__all__ = ["APIS", "CLIENTS", "ProviderApi", "WrappedClient", "any_command", "client_named", "upstream_variables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderApi:
    """An API that clients speak: the usual address of its provider, and the variables that name another one.

    `version` is the part of the path that its clients expect in a base URL.
    """

    name: str
    usual: str
    variables: tuple[str, ...]
    version: str = ""


APIS: Final[Mapping[str, ProviderApi]] = {
    api.name: api
    for api in (
        ProviderApi(
            name="openai",
            usual="https://api.openai.com/v1",
            variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            version="/v1",
        ),
        ProviderApi(
            name="anthropic",
            usual="https://api.anthropic.com",
            variables=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
        ),
        ProviderApi(
            name="gemini",
            usual="https://generativelanguage.googleapis.com",
            variables=("GOOGLE_GEMINI_BASE_URL",),
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedClient:
    """One client: how it is started, and what points it at the proxy.

    Values are templates: `$openai`, `$anthropic` and `$gemini` are the addresses of the proxy in the form that clients
    of these APIs expect, `$openai_host` is that without a version, `$folder` the folder of `files`. `arguments` stand
    before the user's. `mcp_environ`, `mcp_arguments` and `mcp_files` register the MCP server for this run, where the
    client takes that: `$mcp_command` is its command as a JSON list, `$mcp_program` and `$mcp_arguments` are its two
    parts. `variables` name the upstream of an API to this client, where they are not the usual ones. `settings` reads
    what the client's own files say of it. `bare` are first arguments (subcommands that ask no model) before which no
    `arguments` stand.
    """

    name: str
    program: str
    install: str
    apis: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    mcp_environ: Mapping[str, str] = field(default_factory=dict)
    mcp_arguments: tuple[str, ...] = ()
    mcp_files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Callable[[Mapping[str, str]], ClientSettings] | None = None
    bare: frozenset[str] = frozenset()

    @property
    def takes_mcp(self) -> bool:
        """Whether an MCP server can be registered with it for one run."""
        return bool(self.mcp_environ or self.mcp_arguments)


_MCP_SERVERS: Final = '{"mcpServers": {"foldline": {"command": $mcp_program, "args": $mcp_arguments}}}'

# OPENCODE_CONFIG_CONTENT is read after all files of the user. Source: opencode, "Config", section "Precedence order".
_OPENCODE: Final = (
    '{"provider": {"openai": {"options": {"baseURL": "$openai"}},'
    ' "anthropic": {"options": {"baseURL": "$anthropic/v1"}},'
    ' "google": {"options": {"baseURL": "$gemini/v1beta"}}}$rest}'
)
# Source: pi, "Custom providers", section "Override existing provider".
_PI: Final = """\
export default function (pi) {
  pi.registerProvider("openai", { baseUrl: "$openai" });
  pi.registerProvider("anthropic", { baseUrl: "$anthropic" });
  pi.registerProvider("google", { baseUrl: "$gemini/v1beta" });
}
"""

CLIENTS: Final[Mapping[str, WrappedClient]] = {
    client.name: client
    for client in (
        WrappedClient(
            name="claude",
            program="claude",
            install="npm install -g @anthropic-ai/claude-code",
            apis=("anthropic",),
            environ={"ANTHROPIC_BASE_URL": "$anthropic"},
            # With "=": the option takes several values, and would take the prompt for one of them.
            mcp_arguments=("--mcp-config=$folder/mcp.json",),
            mcp_files={"mcp.json": _MCP_SERVERS},
            settings=claude_settings,
        ),
        WrappedClient(
            name="codex",
            program="codex",
            install="npm install -g @openai/codex",
            apis=("openai",),
            arguments=("-c", '$key="$openai"'),
            mcp_arguments=(
                *("-c", "mcp_servers.foldline.command=$mcp_program"),
                *("-c", "mcp_servers.foldline.args=$mcp_arguments"),
            ),
            settings=codex_settings,
        ),
        WrappedClient(
            name="opencode",
            program="opencode",
            install="npm install -g opencode-ai",
            apis=("openai", "anthropic", "gemini"),
            environ={"OPENCODE_CONFIG_CONTENT": _OPENCODE.replace("$rest", "")},
            mcp_environ={
                "OPENCODE_CONFIG_CONTENT": _OPENCODE.replace(
                    "$rest", ', "mcp": {"foldline": {"type": "local", "command": $mcp_command, "enabled": true}}'
                )
            },
        ),
        WrappedClient(
            name="aider",
            program="aider",
            install="pip install aider-chat",
            apis=("openai", "anthropic", "gemini"),
            environ={
                "OPENAI_API_BASE": "$openai",
                "ANTHROPIC_API_BASE": "$anthropic",
                "GEMINI_API_BASE": "$gemini/v1beta",
            },
            # Beside the variables: aider reads .env files, which win over the environment but not over arguments.
            arguments=(
                *("--openai-api-base", "$openai"),
                *("--set-env", "ANTHROPIC_API_BASE=$anthropic"),
                *("--set-env", "GEMINI_API_BASE=$gemini/v1beta"),
            ),
        ),
        WrappedClient(
            name="qwen-code",
            program="qwen",
            install="npm install -g @qwen-code/qwen-code",
            apis=("openai",),
            environ={"OPENAI_BASE_URL": "$openai"},
            mcp_arguments=("--mcp-config=$folder/mcp.json",),
            mcp_files={"mcp.json": _MCP_SERVERS},
        ),
        WrappedClient(
            name="gemini-cli",
            program="gemini",
            install="npm install -g @google/gemini-cli",
            apis=("gemini",),
            environ={"GOOGLE_GEMINI_BASE_URL": "$gemini"},
            settings=gemini_settings,
        ),
        WrappedClient(
            name="pi",
            program="pi",
            install="npm install -g @mariozechner/pi-coding-agent",
            apis=("openai", "anthropic", "gemini"),
            arguments=("-e", "$folder/foldline.ts"),
            files={"foldline.ts": _PI},
            bare=frozenset({"install", "remove", "update", "list", "config"}),
        ),
        WrappedClient(
            name="goose",
            program="goose",
            install="see block.github.io/goose",
            apis=("openai", "anthropic", "gemini"),
            environ={"OPENAI_HOST": "$openai_host", "ANTHROPIC_HOST": "$anthropic", "GOOGLE_HOST": "$gemini"},
            variables={"openai": ("OPENAI_HOST",), "anthropic": ("ANTHROPIC_HOST",), "gemini": ("GOOGLE_HOST",)},
        ),
        WrappedClient(
            name="llm",
            program="llm",
            install="pip install llm",
            apis=("openai", "anthropic"),
            environ={"OPENAI_BASE_URL": "$openai", "ANTHROPIC_BASE_URL": "$anthropic"},
        ),
        WrappedClient(
            name="mini-swe-agent",
            program="mini",
            install="pip install mini-swe-agent",
            apis=("openai", "anthropic"),
            environ={"OPENAI_BASE_URL": "$openai", "ANTHROPIC_BASE_URL": "$anthropic"},
        ),
    )
}

# Names that people use for the same client: those of its program, and of its package.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "claude-code": "claude",
    "qwen": "qwen-code",
    "gemini": "gemini-cli",
    "mini": "mini-swe-agent",
}


def client_named(name: str) -> WrappedClient:
    """Return the row of a client. Raises InvalidInput, which lists the known names, for any other name."""
    found = CLIENTS.get(_OTHER_NAMES.get(name, name))
    if found is None:
        raise InvalidInput(
            f"is not a known client ({', '.join(CLIENTS)}); any other command: foldline wrap -- {name[:80]}",
            place=name[:80],
        )
    return found


def any_command(program: str) -> WrappedClient:
    """A row for any command: the variables that the providers' own libraries read."""
    return WrappedClient(
        name=program,
        program=program,
        install="",
        apis=tuple(APIS),
        environ={
            "OPENAI_BASE_URL": "$openai",
            "OPENAI_API_BASE": "$openai",
            "ANTHROPIC_BASE_URL": "$anthropic",
            "GOOGLE_GEMINI_BASE_URL": "$gemini",
        },
    )


def upstream_variables(client: WrappedClient, api: ProviderApi) -> tuple[str, ...]:
    """The variables that name the upstream of an API to this client, the first one set wins."""
    return client.variables.get(api.name, api.variables)


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with its values."""
    return Template(template).substitute(values)
