"""The manual does what it says: its examples run, and it covers every policy and command."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest

from foldline import POLICIES, Context, FoldlineError, Policy, Reducer
from foldline.agent.settings.document import check_document, read_yaml
from foldline.agent.settings.layers import cross_field_faults, merge, settings_schema
from foldline.cli.main import cli
from foldline.engine.policy import RUNGS
from foldline.messages import Json
from foldline.view.budget import Trigger

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def examples(page: Path) -> list[tuple[int, str]]:
    """The python blocks of a page, each with the line that it begins in."""
    text = page.read_text("utf-8")
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in FENCE.finditer(text)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_examples_of_a_page_run_in_order(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one namespace, from the top of a checkout. It prints what its `# -> ` comments say."""
    monkeypatch.chdir(ROOT)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # a dataclass looks its module up
    for line, code in examples(page):
        exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), module.__dict__)
        promised = re.findall(r"# -> (.*)$", code, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == promised, f"{page.name}, block in line {line + 1}"


@pages
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert broken == []


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/policies.md"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_every_policy_is_in_the_manual_in_its_own_words(policy: Policy, page: str) -> None:
    assert f"| `{policy.name}` | {policy.about} |" in text_of(page)


def trigger_words(trigger: Trigger) -> str:
    if trigger.reserve is not None:
        return f"window − {trigger.reserve.reserve_tokens:,} tokens"
    if trigger.fraction is not None:
        return f"{trigger.fraction:.0%}"
    if trigger.bytes is not None:
        return f"{trigger.bytes:,} bytes"
    return "when it would not fit"


def reducer_words(reducers: Sequence[Reducer]) -> str:
    return ", ".join(f"`{type(reducer).__name__}`" for reducer in reducers)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_the_figures_of_a_policy_in_the_manual_are_those_of_the_code(policy: Policy) -> None:
    landing = "all they propose" if policy.landing is None else f"{policy.landing:.0%}"
    columns = [f"`{policy.name}`", trigger_words(policy.trigger), landing]
    columns += [reducer_words(part) for part in (policy.guard, policy.always, policy.reducers)]
    assert f"| {' | '.join(columns)} |".replace("|  |", "| |").replace("|  |", "| |") in text_of("docs/policies.md")


def test_every_rung_is_in_the_manual() -> None:
    assert [r for r in RUNGS if f"| `{type(r).__name__}` |" not in text_of("docs/policies.md")] == []


@pytest.mark.parametrize("name", cli.commands)
def test_every_command_and_option_is_in_the_manual(name: str) -> None:
    _, _, rest = text_of("docs/commands.md").partition(f"## `foldline {name}")
    section = rest.partition("\n## ")[0]
    options = [option for p in cli.commands[name].params if isinstance(p, click.Option) for option in p.opts]
    assert section
    assert [option for option in options if f"`{option}`" not in section] == []
    assert f"foldline {name}" in text_of("README.md")


def test_every_error_is_in_the_manual() -> None:
    source, manual = ROOT / "src", text_of("README.md")
    for path in (source / "foldline").rglob("*.py"):
        # All of them: which errors there are must not depend on what other tests have loaded.
        if "(FoldlineError" in path.read_text("utf-8"):
            import_module(".".join(path.relative_to(source).with_suffix("").parts))
    missing = [each.__name__ for each in FoldlineError.__subclasses__() if f"| `{each.__name__}` |" not in manual]
    assert missing == []


def test_every_setting_of_a_context_is_in_the_manual() -> None:
    settings = text_of("README.md").partition("## Settings of a context")[2].partition("\n## ")[0]
    assert [name for name in inspect.signature(Context).parameters if f"`{name}`" not in settings] == []


def setting_names(schema: Json, place: str = "") -> Iterator[str]:
    """The full names of all that a block of settings may hold, by its JSON schema."""
    forms = schema.get("anyOf", [schema])
    for form in forms:
        block = settings_schema()["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        if "properties" in block:
            for name, inner in block["properties"].items():
                yield from setting_names(inner, f"{place}.{name}")
            return
        for named in block.get("patternProperties", {}).values():
            if "$ref" in named:
                yield from setting_names(named, f"{place}.NAME")
                return
    yield place.removeprefix(".")


def test_every_setting_of_an_agent_is_in_the_manual() -> None:
    """The summariser's fields are those of the model, and are told once."""
    page = text_of("docs/settings.md")
    agent = settings_schema()["$defs"]["Agent"]
    names = [name for name in setting_names(agent) if not name.startswith("summariser.")]
    assert len(names) > 40
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_settings_file_in_the_manual_is_a_good_one() -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```$", text_of("docs/settings.md"), re.MULTILINE | re.DOTALL)
    settings = check_document(read_yaml(block.encode(), file="agents.yaml"), file="agents.yaml")
    assert settings.faults == ()
    tree = merge(settings.defaults, settings.agents["main"])
    assert cross_field_faults(tree) == cross_field_faults(merge(tree, settings.profiles["cheap"])) == []


@pytest.mark.parametrize("group_name", ["config", "schedule"])
def test_every_option_of_a_group_of_commands_is_in_the_manual(group_name: str) -> None:
    section = text_of("docs/commands.md").partition(f"## `foldline {group_name}")[2].partition("\n## ")[0]
    group = cli.commands[group_name]
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        assert f"`foldline {group_name} {name}" in section
        options = [option for p in command.params if isinstance(p, click.Option) for option in p.opts]
        assert [option for option in options if f"`{option}`" not in section] == []
