"""Image, compose file, units, workflow and package say what the program does. None of them holds a secret."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tools.release_notes import notes_of

from foldline.cli.main import cli
from foldline.doors.proxy.page import FREE_PATHS

ROOT = Path(__file__).parents[1]
SERVERS = {"serve": (8791, "/health"), "proxy": (8790, "/foldline/health")}
"""By command: its port and its health check."""
UPSTREAM = ["--upstream", "https://api.example.com"]
FRAMEWORKS = {path.stem.replace("_", "-") for path in (ROOT / "src/foldline/adapters").glob("[a-z]*.py")}
SECRET = re.compile(r"(TOKEN|KEY|PASSWORD|SECRET)", re.IGNORECASE)

servers = pytest.mark.parametrize("server", SERVERS)


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text_of("pyproject.toml"))["project"]
    return found


def parsed(server: str, arguments: list[str]) -> dict[str, Any]:
    """The options of a command line. Raises click's error for one that there is not."""
    command = cli.commands[server]
    needed = UPSTREAM if server == "proxy" and "--upstream" not in arguments else []
    return command.make_context(server, [*arguments, *needed]).params


# --- the image --------------------------------------------------------------------------------------------------------


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage of the Dockerfile, those of the stages it is made from first."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text_of("Dockerfile"), flags=re.MULTILINE))
    found: dict[str, list[tuple[str, str]]] = {}
    stage = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, stage = rest.partition(" AS ")
            found[stage] = list(found.get(base, []))
        elif stage:
            found[stage].append((word, " ".join(rest.split())))
    return found


@servers
def test_an_image_runs_its_server_as_a_user_without_rights(server: str) -> None:
    port, _ = SERVERS[server]
    stage = stages()[server]
    assert [rest for word, rest in stage if word == "USER"] == ["10001"]
    assert [rest for word, rest in stage if word == "EXPOSE"] == [str(port)]
    (entry,) = (rest for word, rest in stage if word == "ENTRYPOINT")
    program, command, *arguments = yaml.safe_load(entry)
    assert (program, command) == ("foldline", server)
    options = parsed(server, arguments)
    assert (options["host"], options["port"]) == ("0.0.0.0", port)


@servers
def test_the_health_check_of_an_image_asks_what_its_server_answers(server: str) -> None:
    port, path = SERVERS[server]
    (check,) = (rest for word, rest in stages()[server] if word == "HEALTHCHECK")
    assert f"http://127.0.0.1:{port}{path}'" in check
    code = yaml.safe_load(check.partition(" CMD ")[2])[2]
    compile(code, "HEALTHCHECK", "exec")
    known = (
        FREE_PATHS
        if server == "proxy"
        else {route.path for route in import_module("foldline.doors.http.routes").ROUTES}
    )
    assert path in known


def test_an_image_needs_no_compiler_and_holds_no_secret() -> None:
    text = text_of("Dockerfile")
    assert "--only-binary=:all:" in text
    assert "--constraint constraints.txt" in text
    assert not re.search(r"apt-get|apk |gcc|build-essential|curl|wget", text)
    for stage in stages().values():
        names = [name for word, rest in stage if word in {"ENV", "ARG"} for name in re.findall(r"(\w+)=", rest)]
        assert not [name for name in names if SECRET.search(name)]


def test_what_the_image_copies_is_in_the_checkout_and_nothing_else_is_sent_to_the_builder() -> None:
    allowed = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    copied = {
        name
        for word, rest in stages()["build"]
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert "*" in text_of(".dockerignore").splitlines()


def test_the_extras_of_the_image_are_extras_of_the_package() -> None:
    (named,) = re.findall(r"'\.\[([\w,-]+)\]'", text_of("Dockerfile"))
    assert set(named.split(",")) <= set(project()["optional-dependencies"])


# --- compose ----------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text_of("deploy/compose.yaml"))
    return found


@servers
def test_compose_runs_the_servers_confined_and_on_loopback(server: str) -> None:
    port, _ = SERVERS[server]
    service = compose()["services"][server]
    assert service["build"] == {"context": "..", "target": server}
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["depends_on"] == {"db": {"condition": "service_healthy"}}
    parsed(server, service.get("command", []))


def test_compose_takes_each_secret_from_a_file_that_is_not_in_the_checkout() -> None:
    required = set(re.findall(r"\$\{(\w+):\?", text_of("deploy/compose.yaml")))
    offered = dict(
        line.split("=", 1) for line in text_of("deploy/example.env").splitlines() if not line.startswith("#")
    )
    assert {"FOLDLINE_TOKEN", "FOLDLINE_DB_PASSWORD", "FOLDLINE_UPSTREAM"} == required
    assert required <= set(offered)
    assert set(offered.values()) == {""}
    for service in compose()["services"].values():
        for name, value in service.get("environment", {}).items():
            assert not SECRET.search(name) or value.startswith("${"), name
    assert "/deploy/.env" in text_of(".gitignore").splitlines()


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit(server: str) -> dict[str, str]:
    """The section [Service]."""
    parser = configparser.ConfigParser(interpolation=None, strict=True, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text_of(f"deploy/systemd/foldline-{server}.service"))
    return dict(parser["Service"])


@servers
def test_a_unit_starts_its_server_with_the_token_as_a_credential(server: str) -> None:
    service = unit(server)
    program, command, *arguments = service["ExecStart"].split()
    assert (program, command) == ("/opt/foldline/bin/foldline", server)
    options = parsed(server, arguments)
    assert options["port"] == SERVERS[server][0]
    assert options["token_file"] == "%d/token"
    assert service["LoadCredential"] == "token:/etc/foldline/token"
    assert service["EnvironmentFile"] == f"/etc/foldline/{server}.env"
    assert not SECRET.search(service["Environment"])


@servers
def test_a_unit_gives_its_server_no_more_than_it_needs(server: str) -> None:
    service = unit(server)
    switched_on = """
        DynamicUser NoNewPrivileges ProtectHome PrivateTmp PrivateDevices ProtectClock ProtectControlGroups
        ProtectHostname ProtectKernelLogs ProtectKernelModules ProtectKernelTunables LockPersonality
        RestrictNamespaces RestrictRealtime RestrictSUIDSGID
    """.split()
    assert [name for name in switched_on if service.get(name) != "yes"] == []
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    assert service["UMask"] == "0077"
    assert float(service["TimeoutStopSec"]) > parsed(server, [])["grace_seconds"]
    assert service["RestartPreventExitStatus"] == "2"


def test_the_tools_of_a_served_agent_do_not_see_its_store() -> None:
    service = unit("serve")
    folder, home = (
        service["WorkingDirectory"],
        dict(re.findall(r"(\w+)=(\S+)", service["Environment"]))["FOLDLINE_HOME"],
    )
    assert not Path(home).is_relative_to(folder)
    assert {folder.removeprefix("%S/"), home.removeprefix("%S/")} <= set(service["StateDirectory"].split())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@servers
def test_systemd_finds_no_fault_in_a_unit(server: str, tmp_path: Path) -> None:
    path = tmp_path / f"foldline-{server}.service"
    text = text_of(f"deploy/systemd/foldline-{server}.service")
    path.write_text(text.replace("/opt/foldline/bin/foldline", sys.executable), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if path.name in line]) == (0, [])


# --- the package ------------------------------------------------------------------------------------------------------


def test_the_workflow_tests_each_python_that_the_package_names_on_three_systems() -> None:
    text = text_of(".github/workflows/tests.yml")
    matrix = yaml.safe_load(text)["jobs"]["systems"]["strategy"]["matrix"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    assert matrix["python"] == pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert matrix["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    named = re.findall(r"(?<![\w/])(?:tests/[\w/.]+|\.ci/run)", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_extra_all_has_every_extra_but_frameworks_and_tools_of_development() -> None:
    extras = project()["optional-dependencies"]
    (joined,) = extras["all"]
    named = set(re.fullmatch(r"foldline\[(.*)\]", joined)[1].split(","))  # type: ignore[index]
    reached, open_ones = set[str](), named
    while open_ones:
        reached |= open_ones
        inner = [re.fullmatch(r"foldline\[(.*)\]", each) for name in open_ones for each in extras[name]]
        open_ones = {name for found in inner if found for name in found[1].split(",")} - reached
    assert reached == set(extras) - FRAMEWORKS - {"all", "dev"}


@pytest.mark.parametrize("extra", list(project()["optional-dependencies"]))
def test_the_manual_names_every_extra(extra: str) -> None:
    if extra in FRAMEWORKS:
        assert f"`{extra}`" in text_of("docs/adapters.md")
    else:
        assert re.search(rf"^\|.*`{extra}`.*\|.*\|$", text_of("docs/install.md"), re.MULTILINE)


def test_the_notice_names_what_came_from_others_and_is_in_the_package() -> None:
    notice = text_of("NOTICE")
    for session in (ROOT / "examples/sessions").glob("*.json.gz"):
        assert f"{session.name.removesuffix('.json.gz')} " in notice
    sources = {
        tomllib.loads(path.read_text("utf-8")).get("source", "")
        for path in (ROOT / "src/foldline/catalog").glob("*.toml")
    }
    (version,) = {found[1] for source in sources if (found := re.search(r"price map of litellm (\S+)", source))}
    assert f"LiteLLM {version}" in notice
    assert "Permission is hereby granted, free of charge" in notice
    assert project()["license-files"] == ["LICENSE", "NOTICE"]


def test_modules_that_are_promised_have_a_list_of_their_names() -> None:
    covered = text_of("docs/stability.md").partition("## Covered")[2].partition("## Not covered")[0]
    for name in set(re.findall(r"`(foldline(?:\.[a-z]+)*)`", covered)):
        assert import_module(name).__all__


# --- completion -------------------------------------------------------------------------------------------------------


def completed(shell: str, line: str, tmp_path: Path) -> str:
    """What the command answers to a Tab at the end of a line."""
    words = line.split(" ")
    environ = {
        **os.environ,
        "_FOLDLINE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    command = [sys.executable, "-m", "foldline"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, check=True)
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("foldline re", ["replay", "report"]),
        ("foldline proxy --policy ba", ["balanced"]),
        ("foldline sessions co", ["copy"]),
        ("foldline serve --token", ["--token-file"]),
    ],
)
def test_a_tab_offers_commands_options_and_policies(shell: str, line: str, offered: list[str], tmp_path: Path) -> None:
    answer = completed(shell, line, tmp_path)
    assert [word for word in re.findall(r"[\w-]+", answer) if word in offered] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed_as_the_manual_says(shell: str, tmp_path: Path) -> None:
    assert f"_FOLDLINE_COMPLETE={shell}_source foldline" in text_of("docs/install.md")
    environ = {**os.environ, "_FOLDLINE_COMPLETE": f"{shell}_source"}
    # Under the name of the installed command, from which its variable is made.
    code = "import sys; sys.argv = ['foldline']; from foldline.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert f"_FOLDLINE_COMPLETE={shell}_complete" in done.stdout
    if shell == "bash":
        (tmp_path / "script").write_text(done.stdout)
        subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)


# --- releases ---------------------------------------------------------------------------------------------------------

CHANGELOG = "# Changelog\n\n## 0.2.0 (2027-01-02)\n\n- New.\n\n## 0.1.0 (unreleased)\n\n- Old.\n"


def test_the_notes_of_a_release_are_its_section() -> None:
    assert notes_of(CHANGELOG, "0.2.0", "0.2.0") == "- New."


@pytest.mark.parametrize(
    ("version", "packaged", "reason"),
    [
        ("0.1.0", "0.1.0", "0.1.0 has no date, but 'unreleased'"),
        ("0.2.0", "0.1.0", "version is 0.1.0, not 0.2.0"),
        ("0.3.0", "0.3.0", "no section of 0.3.0"),
    ],
)
def test_what_cannot_be_released_has_no_notes(version: str, packaged: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        notes_of(CHANGELOG, version, packaged)


def test_the_changelog_has_a_section_of_this_version() -> None:
    assert re.search(rf"^## {re.escape(project()['version'])} \(", text_of("CHANGELOG.md"), re.MULTILINE)


def test_every_command_of_the_units_is_a_command() -> None:
    assert all(isinstance(cli.commands[server], click.Command) for server in SERVERS)
