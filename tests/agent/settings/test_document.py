from __future__ import annotations

import pytest

from foldline.agent.settings.checks import fault, visible
from foldline.agent.settings.document import MAX_BYTES, MAX_DEPTH, YamlDocument, read_yaml
from foldline.errors import InvalidInput


def read(text: str) -> YamlDocument:
    return read_yaml(text.encode(), file="agents.yaml")


def refused(text: str | bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(text.encode() if isinstance(text, str) else text, file="agents.yaml")
    return str(caught.value)


def test_every_field_has_the_line_it_stands_in() -> None:
    found = read("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    assert found.value == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    assert found.lines == {"a": 1, "a.b": 2, "a.c": 3, "a.c[0]": 4, "a.c[1]": 5, "a.c[1].d": 5}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("off", "off"),
        ("no", "no"),
        ("12", 12),
        ("20_000", 20_000),
        ("-3", -3),
        ("0.9", 0.9),
        ("1e3", 1000.0),
        ("0600", 600.0),
        ("12:30", "12:30"),
        ("2024-11-20", "2024-11-20"),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 5_000, "9" * 5_000),
    ],
)
def test_words_are_read_as_version_1_2_has_them(written: str, value: object) -> None:
    found = read(f"a: {written}\n").value["a"]
    assert (found, type(found)) == (value, type(value))


def test_a_key_is_a_word_whatever_it_looks_like() -> None:
    assert read("off: 1\n12: 2\nnull: 3\n").value == {"off": 1, "12": 2, "null": 3}


def test_an_empty_file_says_nothing() -> None:
    assert read("").value is None
    assert read("# only a comment\n").value is None
    assert read("\ufeffa: 1\n").value == {"a": 1}


def test_anchors_and_merge_keys_work_and_own_keys_go_first() -> None:
    found = read("base: &b\n  x: 1\n  y: 2\nnext:\n  <<: *b\n  y: 3\nmany:\n  <<: [*b, {z: 4}]\n")
    assert found.value["next"] == {"x": 1, "y": 3}
    assert found.value["many"] == {"x": 1, "y": 2, "z": 4}
    assert found.lines["next.x"] == 2
    assert found.faults == ()


def test_a_key_that_stands_twice_is_a_fault_and_the_first_counts() -> None:
    found = read("a:\n  b: 1\n  b: 2\n")
    assert found.value == {"a": {"b": 1}}
    assert [str(each) for each in found.faults] == ["agents.yaml: line 3: a.b: stands twice; first in line 2"]


def test_a_key_that_is_no_word_is_a_fault() -> None:
    found = read("? [a, b]\n: 1\nc: 2\n")
    assert found.value == {"c": 2}
    assert [str(each) for each in found.faults] == ["agents.yaml: line 1: a key must be a word"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1, 2\nb: 3\n", "agents.yaml: line 2: column"),
        ("a: b: c\n", "agents.yaml: line 1: column"),
        ("a: 'open\n", "agents.yaml: line"),
        ("a: *nobody\n", "agents.yaml: line 1: column"),
        ("a: 1\n---\nb: 2\n", "agents.yaml: line 2: column"),
        ("a: \x00\n", "agents.yaml: line"),
        ("\tx: 1\n", "agents.yaml: line 1"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str, place: str) -> None:
    error = refused(text)
    assert error.startswith(place)
    assert "is not YAML" in error
    assert "\n" not in error


def test_bytes_that_are_no_utf_8_are_refused_with_their_line() -> None:
    assert refused(b"a: 1\nb: \xff\n") == "agents.yaml: line 2: is not UTF-8 text"


def test_a_tag_makes_nothing_but_plain_values() -> None:
    assert "the tag 'tag:yaml.org,2002:python/name:os.system'" in refused("a: !!python/name:os.system x\n")
    assert "line 2: a.b: the tag '!mine'" in refused("a:\n  b: !mine {x: 1}\n")


def test_nested_aliases_are_counted_before_they_are_written_out() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than 20,000 values, aliases written out" in refused("\n".join(lines))


def test_an_alias_for_what_it_is_in_is_refused() -> None:
    assert "an alias stands for what it is in" in refused("a: &a\n  b: *a\n")
    assert "must stand for a block of fields" in refused("a: &a\n  <<: *a\n")


def test_depth_and_size_are_bounded() -> None:
    assert "nested more than" in refused("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert refused("[" * 100_000).startswith("agents.yaml: line 1: ")
    assert "no settings file" in refused(b"#" * (MAX_BYTES + 1))


def test_what_an_error_shows_of_a_file_is_safe_for_a_terminal() -> None:
    assert visible("a\x1b[2Jb\nc") == "a\ufffd[2Jb c"
    assert len(visible("x" * 1_000)) == 160
    assert str(fault("bad", file="f", line=3, name="a\x1bb")) == "f: line 3: a\ufffdb: bad"
