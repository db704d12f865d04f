"""Files that a project has ignored are the same for these rules as for git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foldline.agent.tools.files.name_patterns import EXCLUDES, NAME, NONE, IgnoreRules
from foldline.text.safe_regex import OutOfSteps, Work

PATHS = [
    *("a", "b.c", "ab", "é", "a b", "[a]", "#a", "!a", "a ", "-", "A1", "a*b", "a\\b"),
    *(
        "d/a",
        "d/b.c",
        "d/d/a",
        "d/d/ab",
        "d/d/d/b.c",
        "d/e/a",
        "e/d/a",
        "e/é/b.c",
        "e/a b/a",
        "e/-/]",
        "a1/b/c/a",
        "a1/a",
    ),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    return root


def ignored_here(root: Path, rules: Mapping[str, bytes]) -> set[str]:
    """The paths that are ignored, by a walk."""

    def below(folder: Path, above: IgnoreRules, all_of_it: bool) -> Iterator[str]:
        base = "" if folder == root else folder.relative_to(root).as_posix()
        held = rules.get(f"{base}/{NAME}".removeprefix("/"))
        own = above if held is None else above.with_file(held, base)
        for each in sorted(folder.iterdir()):
            path = each.relative_to(root).as_posix()
            if each.name in {".git", NAME}:
                continue
            out = all_of_it or own(path, each.is_dir(), Work())
            if out:
                yield path
            if each.is_dir():
                yield from below(each, own, out)

    first = NONE if EXCLUDES not in rules else NONE.with_file(rules[EXCLUDES], "")
    return set(below(root, first, False))


def ignored_by_git(root: Path, rules: Mapping[str, bytes]) -> set[str]:
    if not (root / ".git").exists():
        git(root, "init", "-q")
    for old in [*root.rglob(NAME), root / EXCLUDES]:
        old.unlink(missing_ok=True)
    for path, data in rules.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)
    every = [each.relative_to(root).as_posix() for each in root.rglob("*")]
    asked = [path for path in every if not path.startswith(".git/") and Path(path).name not in {".git", NAME}]
    out = git(root, "check-ignore", "--no-index", "--stdin", "-z", given="\0".join(asked).encode())
    return {os.fsdecode(path) for path in out.split(b"\0") if path}


def git(root: Path, *given: str, **more: bytes) -> bytes:
    environ = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *given], cwd=root, env=environ, input=more.get("given"), capture_output=True, check=False, timeout=60
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


pieces = st.sampled_from(
    [
        *("a", "b", "ab", "b.c", "d", "e", "é", "A1", ".", "-", " ", "#", "!", "\\", "\\a", "\\*", "\\ "),
        *("*", "?", "[ab]", "[!a]", "[^b]", "[a-d]", "[]-a]", "[a-]", "[[:alpha:]]", "[[:digit:][:upper:]]", "[\\]a]"),
        *("[", "]", "[a", "[[:no:]]", "[/]", "[!/]"),
    ]
)
names = st.lists(pieces, min_size=1, max_size=3).map("".join)
parts = st.one_of(names, st.just("**"), st.just("*"))
lines = st.builds(
    lambda negates, starts, inner, ends: f"{negates}{starts}{'/'.join(inner)}{ends}",
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "", "/", "**/"]),
    st.lists(parts, min_size=1, max_size=3),
    st.sampled_from(["", "", "", "/", "/**", " ", "  ", "\r", "\t"]),
)
files = st.lists(st.one_of(lines, st.sampled_from(["", "# a", "*", "!*/", "/*"])), max_size=5)
places = st.sampled_from([NAME, f"d/{NAME}", f"d/d/{NAME}", f"e/{NAME}", EXCLUDES])
everything = st.dictionaries(places, files.map(lambda some: "\n".join(some).encode()), min_size=1, max_size=3)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is what they are compared with")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=everything)
@example(rules={NAME: b"*\n!*/\n!*.c\n", f"d/{NAME}": b"!a\nb.c"})
@example(rules={NAME: b"d/\n!d/d/a\n", f"d/{NAME}": b"!*"})
@example(rules={NAME: b"/d/**\n!/d/d/\n!/d/d/a", EXCLUDES: b"e/*"})
def test_what_is_ignored_is_what_git_ignores(tree: Path, rules: Mapping[str, bytes]) -> None:
    assert ignored_here(tree, rules) == ignored_by_git(tree, rules)


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [
        ("a", "a d/a d/d/a d/e/a e/d/a e/a·b/a a1/b/c/a a1/a"),
        ("/a", "a"),
        ("d/a", "d/a"),
        ("**/d/a", "d/a d/d/a e/d/a"),
        ("e/**/a", "e/d/a e/a·b/a"),
        ("*.c\n!/b.c", "d/b.c d/d/d/b.c e/é/b.c"),
        ("d/*\n!d/e", "d/a d/b.c d/d d/d/a d/d/ab d/d/d d/d/d/b.c"),
        ("a b/", "e/a·b e/a·b/a"),
        ("a1/b", "a1/b a1/b/c a1/b/c/a"),
        ("\\#a\n\\!a\na\\ ", "#a !a a·"),
        ("# all\n\n/[[:upper:]]?", "A1"),
    ],
)
def test_rules_are_read_as_the_manual_of_git_has_them(tree: Path, rules: str, ignored: str) -> None:
    assert ignored_here(tree, {NAME: rules.encode()}) == {path.replace("·", " ") for path in ignored.split()}


def test_rules_made_to_hurt_take_steps_that_are_counted() -> None:
    rules, work = NONE.with_file(b"\n".join([b"*a*a*a*a*a*a*b"] * 1_000), ""), Work()
    assert not rules("a" * 250, False, work)
    assert work.steps < 1_000 * 2_000
    with pytest.raises(OutOfSteps):
        rules("a" * 251, False, Work(10_000))
