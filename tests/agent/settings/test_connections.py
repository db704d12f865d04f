"""The schedule in a settings file: what is taken, what is refused and where, and what a stranger's file may not do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.settings.test_layers import only

from foldline.agent.settings.connections import ScheduleSettings, ToFile, ToTelegram, ToWebhook
from foldline.agent.settings.file import check_file, effective_settings, load_settings, missing_variables
from foldline.errors import InvalidInput
from foldline.text.cron import Cron

ALL = """
agents:
  main:
    schedule:
      morning:
        cron: "0 7 * * mon-fri"
        timezone: Europe/Berlin
        prompt: |
          What is new? The key: is under the mat.
        session: news
        deliver:
          - file: reports/{date}.md
            mode: append
          - {webhook: "https://hooks.example/x/${HOOK_PATH}", secret_env: HOOK_SECRET}
          - {telegram: -100123, thread: 7}
          - telegram: "@channel"
        enabled: no
        max_late: 12h
        policy: layered
"""


def loaded(text: str, folder: Path) -> dict[str, ScheduleSettings]:
    file = folder / "agents.yaml"
    file.write_text(text)
    return dict(load_settings(config=file).settings.schedule)


def test_an_entry_has_all_its_fields(tmp_path: Path) -> None:
    assert loaded(ALL, tmp_path) == {
        "morning": ScheduleSettings(
            cron=Cron.read("0 7 * * mon-fri"),
            timezone="Europe/Berlin",
            prompt="What is new? The key: is under the mat.\n",
            session="news",
            deliver=(
                ToFile(path="reports/{date}.md", mode="append"),
                ToWebhook(url="https://hooks.example/x/${HOOK_PATH}", secret_env="HOOK_SECRET"),
                ToTelegram(chat=-100123, thread=7),
                ToTelegram(chat="@channel"),
            ),
            enabled=False,
            max_late_seconds=12 * 3600,
            policy="layered",
        )
    }


def test_an_entry_needs_a_cron_and_a_prompt_only_and_its_zone_is_utc_everywhere(tmp_path: Path) -> None:
    [entry] = loaded('schedule: {a: {cron: "* * * * *", prompt: Go}}', tmp_path).values()
    assert entry == ScheduleSettings(cron=Cron.read("* * * * *"), prompt="Go")
    assert (entry.timezone, entry.session, entry.deliver, entry.enabled) == ("UTC", None, (), True)


def test_a_profile_changes_a_field_and_a_list_replaces_a_list(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    more = "\nprofiles: {quiet: {schedule: {morning: {deliver: [{file: a}], prompt: Hush}}}}\n"
    file.write_text(ALL + more)
    [entry] = load_settings(config=file, profile="quiet").settings.schedule.values()
    assert (entry.prompt, entry.deliver, entry.session) == ("Hush", (ToFile(path="a"),), "news")


GOOD = 'cron: "* * * * *", prompt: Go'


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            f"{GOOD}, crom: x",
            "schedule.a.crom: is not a setting; nearest is 'cron'",
        ),
        (
            'cron: "0 7 * *", prompt: x',
            "a.cron: must have five fields (minute, hour, day of the month, month,",
        ),
        ('cron: "60 7 * * *", prompt: x', "a.cron: the minute must be from 0 to 59, not '60'"),
        ('cron: "0 24 * * *", prompt: x', "a.cron: the hour must be from 0 to 23, not '24'"),
        ('cron: "0 7 0 * *", prompt: x', "a.cron: the day of the month must be from 1 to 31, not '0'"),
        ('cron: "0 7 * 13 *", prompt: x', "a.cron: the month must be from 1 to 12, not '13'"),
        ('cron: "0 7 * * 8", prompt: x', "a.cron: the weekday must be from 0 to 7, not '8'"),
        ('cron: "0 7 * * funday", prompt: x', "a.cron: the weekday must be from 0 to 7, not 'funday'"),
        ('cron: "0 17-7 * * *", prompt: x', "a.cron: the hour: '17-7' ends before it begins"),
        ('cron: "5/2 * * * *", prompt: x', "a.cron: the minute: a step goes with * or a range"),
        ('cron: "*/0 * * * *", prompt: x', "a.cron: the minute: a step goes with * or a range"),
        ('cron: "1,,2 * * * *", prompt: x', "a.cron: the minute must be like *, 5, 1-5, */10 or 1,3, not ''"),
        ('cron: "0 0 30 2 *", prompt: x', "a.cron: is never due: no month of these has such a day"),
        ("cron: [1], prompt: x", "a.cron: must be a text, not [1]"),
        (f"{GOOD}, timezone: Berlin", "a.timezone: must be a time zone like Europe/Berlin, not 'Berlin'"),
        (f"{GOOD}, timezone: ../UTC", "a.timezone: must be a time zone like Europe/Berlin, not '../UTC'"),
        (f"{GOOD}, timezone: Europe", "a.timezone: must be a time zone like Europe/Berlin, not 'Europe'"),
        ('cron: "* * * * *", prompt: ""', "a.prompt: must be a text, not ''"),
        (f"{GOOD}, session: a b", "a.session: must be a name, new, or the id of a session, not 'a b'"),
        (f"{GOOD}, enabled: maybe", "a.enabled: must be true or false, not 'maybe'"),
        (f"{GOOD}, max_late: 3", "a.max_late: must be a time like 90s, 30m, 12h or 2d, not 3"),
        (f"{GOOD}, max_late: 0h", "a.max_late: must be a time like 90s, 30m, 12h or 2d, not '0h'"),
        (f"{GOOD}, policy: best", "a.policy: must be one of autopilot,"),
        (f"{GOOD}, deliver: x", "a.deliver: must be a list of blocks, not 'x'"),
        (f"{GOOD}, deliver: [x]", "a.deliver[0]: must be a block of fields, not 'x'"),
        (f"{GOOD}, deliver: [{{}}]", "a.deliver[0]: must have one of file, webhook, telegram"),
        (f"{GOOD}, deliver: [{{file: a, telegram: 1}}]", "a.deliver[0]: must have one of file, webhook, telegram, not"),
        (f"{GOOD}, deliver: [{{file: a}}, {{fil: b}}]", "a.deliver[1].fil: is not a setting; nearest is 'file'"),
        (f"{GOOD}, deliver: [{{file: a, thread: 1}}]", "a.deliver[0].thread: is of no use to a file"),
        (f"{GOOD}, deliver: [{{file: a, mode: add}}]", "a.deliver[0].mode: must be one of replace, append"),
        (f"{GOOD}, deliver: [{{file: /etc/x}}]", "a.deliver[0].file: must be a path of a file within the workspace"),
        (f"{GOOD}, deliver: [{{file: a/../../x}}]", "a.deliver[0].file: must be a path of a file within the workspace"),
        (f"{GOOD}, deliver: [{{file: 'C:\\x'}}]", "a.deliver[0].file: must be a path of a file within the workspace"),
        (f"{GOOD}, deliver: [{{file: 'x-{{time}}'}}]", "a.deliver[0].file: may have {date} in it and no other braces"),
        (f"{GOOD}, deliver: [{{webhook: 'http://example.org/'}}]", "[0].webhook: must be an https address (http only"),
        (f"{GOOD}, deliver: [{{webhook: 'https://${{H}}/x'}}]", "[0].webhook: must name its host: ${NAME} may stand"),
        (f"{GOOD}, deliver: [{{webhook: 'https://me@c/'}}]", "a.deliver[0].webhook: must hold no user or password"),
        (f"{GOOD}, deliver: [{{webhook: 'https://c/', secret_env: $A}}]", "[0].secret_env: must be the name of an env"),
        (f"{GOOD}, deliver: [{{telegram: bob}}]", "a.deliver[0].telegram: must be the number of a chat, or the @name"),
        (f"{GOOD}, deliver: [{{telegram: 0}}]", "a.deliver[0].telegram: must be the number of a chat, or the @name"),
        (f"{GOOD}, deliver: [{{telegram: 1, thread: 0}}]", "a.deliver[0].thread: must be from 1 to"),
        ("", "schedule.a: must have a cron and a prompt"),
    ],
)
def test_what_is_wrong_is_refused_with_file_line_and_field(entry: str, fault: str) -> None:
    found = only(f"main:\n  schedule:\n    a: {{{entry}}}\n")
    assert found.startswith("agents.yaml: line 3: main.schedule.a")
    assert fault in found


def test_an_item_of_a_list_is_named_with_its_own_line() -> None:
    found = only(
        f"schedule:\n  a:\n    {GOOD.replace(', ', chr(10) + '    ')}\n    deliver:\n    - file: a\n    - fil: b\n"
    )
    assert found.startswith("agents.yaml: line 7: schedule.a.deliver[1].fil: is not a setting")


def test_more_places_than_anybody_reads_are_refused() -> None:
    items = ", ".join("{file: a}" for _ in range(17))
    assert "schedule.a.deliver: must have at most 16, not 17" in only(
        f"schedule: {{a: {{{GOOD}, deliver: [{items}]}}}}"
    )


def test_a_key_in_a_webhook_is_refused_and_not_repeated() -> None:
    found = only(f"schedule: {{a: {{{GOOD}, deliver: [{{webhook: 'https://h.example/?token=abcdefghijkl'}}]}}}}")
    assert "name their environment variable" in found
    assert "abcdefghijkl" not in found


@pytest.mark.parametrize("missing", ["cron", "prompt"])
def test_what_is_missing_when_all_is_together_is_named(missing: str, tmp_path: Path) -> None:
    given = {"cron": 'cron: "* * * * *"', "prompt": "prompt: Go"}
    del given[missing]
    file = tmp_path / "agents.yaml"
    file.write_text(f"main:\n  schedule:\n    a:\n      {next(iter(given.values()))}\n")
    [fault] = check_file(file)
    assert str(fault).endswith(f"agents.yaml: line 4: main.schedule.a: must have a {missing}")
    with pytest.raises(InvalidInput, match=f"must have a {missing}"):
        load_settings(config=file)


def test_a_strangers_file_runs_nothing_and_says_whom_it_would_tell(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(ALL)
    found = load_settings(folder=tmp_path, environ={"FOLDLINE_HOME": str(tmp_path / "home")})
    assert dict(found.settings.schedule) == {}
    [withheld] = found.withheld
    assert withheld.leaf.line == 6
    assert withheld.what == (
        "run at set times, and send what comes of it to the file reports/{date}.md, https://hooks.example/x/${HOOK_PATH},"
        " Telegram chat -100123, Telegram chat @channel; it uses HOOK_PATH, HOOK_SECRET"
    )


def test_what_is_in_force_shows_the_schedule_and_check_names_missing_variables(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(ALL)
    rows = {row.name: row for row in effective_settings(load_settings(config=file), {})}
    assert rows["schedule.morning.cron"].value == "0 7 * * mon-fri"
    assert rows["schedule.morning.cron"].source.endswith("agents.yaml:6")
    assert rows["schedule.morning.max_late"].value == "43200s"
    missing = "\n".join(missing_variables(file, {}))
    for name in ("HOOK_PATH", "HOOK_SECRET", "FOLDLINE_TELEGRAM_TOKEN"):
        assert f"the environment has no {name}" in missing
