"""The manual does what it says: its examples run, and it covers every policy and command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
    namespace: dict[str, object] = {"__name__": "example"}
    for line, code in examples(page):
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
        promised = re.findall(r"# -> (.*)$", code, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == promised, f"{page.name}, block in line {line + 1}"


@pages
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert broken == []
