"""Patterns of file names: wildcards, and the rules of .gitignore files as git reads them (gitignore(5)).

Hostile patterns are matched in one pass like all others (`text.safe_regex`), with their steps counted. A property test
compares the rules with git itself. Tracked files that a rule names are ignored: the index is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from foldline.errors import InvalidInput
from foldline.text.safe_regex import Pattern, Work

__all__ = ["EXCLUDES", "MAX_BYTES", "NAME", "NONE", "Glob", "IgnoreRules", "Rules"]

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{|\}|,|.", re.DOTALL)
MAX_CHARS = 1_000
_PLAIN = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True, init=False)
class Glob:
    """Wildcards: * and ? within a name, ** over folders, [a-z], {a,b}. Without a "/" it is for names in any folder.

    All matches together take no more than `work`. Raises InvalidInput.
    """

    text: str
    _pattern: Pattern
    _work: Work

    def __init__(self, text: str, work: Work | None = None) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "_work", work or Work())
        if len(text) > MAX_CHARS:
            raise InvalidInput(f"has {len(text):,} characters, more than {MAX_CHARS:,}", place=repr(text[:80]))
        try:
            pattern = Pattern(rf"(?s)\A(?:{_glob_expression(text.removeprefix('./'))})\Z")
        except InvalidInput as error:
            raise InvalidInput(f"is not a pattern of names: {error.reason}", place=repr(text[:80])) from None
        object.__setattr__(self, "_pattern", pattern)

    def matches(self, *paths: str) -> bool:
        """Return whether it matches one of the spellings of a path; a pattern without "/" is matched against the name.

        Raises OutOfSteps, and what the work raises.
        """
        tried = paths if "/" in self.text else (paths[0].rpartition("/")[2],)
        return any(self._pattern.search(path, self._work) is not None for path in tried)


def _glob_expression(glob: str) -> str:
    out: list[str] = []
    depth = 0
    for found in _PIECE.finditer(glob):
        piece = found[0]
        if piece in _PLAIN:
            out.append(_PLAIN[piece])
        elif piece == "{":
            depth += 1
            out.append("(?:")
        elif piece == "}" and depth:
            depth -= 1
            out.append(")")
        elif piece == "," and depth:
            out.append("|")
        elif len(piece) > 1:
            inner = piece[1:-1]
            negated = inner.startswith("!")
            out.append(f"[{'^' if negated else ''}{_glob_class(inner[negated:])}]")
        else:
            out.append(re.escape(piece))
    return "".join(out) + ")" * depth


def _glob_class(inner: str) -> str:
    # Escaped, since `re` reserves [[, &&, ~~ and || in a class for operations on sets.
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", inner)


NAME: Final = ".gitignore"
EXCLUDES: Final = ".git/info/exclude"
"""Rules of one checkout; those of .gitignore files override them."""
MAX_BYTES: Final = 256 * 1024
"""Bytes that are read of one file of rules."""

_SPECIAL: Final = frozenset("*?[\\")
# Classes of ASCII, as git has them (wildmatch.c).
_CLASSES: Final[dict[str, Callable[[int], bool]]] = {
    "alnum": lambda byte: chr(byte).isalnum(),
    "alpha": lambda byte: chr(byte).isalpha(),
    "blank": lambda byte: byte in b" \t",
    "cntrl": lambda byte: byte < 32 or byte == 127,
    "digit": lambda byte: chr(byte).isdigit(),
    "graph": lambda byte: 32 < byte < 127,
    "lower": lambda byte: chr(byte).islower(),
    "print": lambda byte: 32 <= byte < 127,
    "punct": lambda byte: 32 < byte < 127 and not chr(byte).isalnum(),
    "space": lambda byte: byte in b" \t\n\v\f\r",
    "upper": lambda byte: chr(byte).isupper(),
    "xdigit": lambda byte: byte in b"0123456789abcdefABCDEF",
}


def _bytes_as_text(data: bytes) -> str:
    """Decode bytes one to one, since git matches bytes."""
    return data.decode("latin-1")


def _as_git_sees(path: str) -> str:
    # surrogateescape gives back the bytes of a name that is no UTF-8, as the file system has them.
    return path if path.isascii() else _bytes_as_text(path.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule: whether it negates, is for folders only, matches the name only; and its matcher."""

    negates: bool
    folders_only: bool
    by_name: bool
    fits: Callable[[str, Work], bool]


class Rules:
    """The rules of one file, for paths below the folder `base` ("" for the root)."""

    def __init__(self, data: bytes, base: str) -> None:
        self._prefix = _as_git_sees(f"{base}/") if base else ""
        self._named: dict[str, list[int]] = {}
        self._others: list[int] = []
        self._rules: list[_Rule] = []
        for line in _lines(data[:MAX_BYTES]):
            self._add(line)

    def _add(self, line: str) -> None:
        negates = line.startswith("!")
        text = line[negates:]
        folders_only = text.endswith("/")
        text = text[: len(text) - folders_only]
        by_name = "/" not in text
        text = text if by_name else text.removeprefix("/")
        number = len(self._rules)
        # A plain name is looked up: most rules are plain names, and so cost nothing per file.
        if by_name and _SPECIAL.isdisjoint(text):
            self._named.setdefault(text, []).append(number)
        elif (fits := _matcher(text, by_name)) is not None:
            self._others.append(number)
            self._rules.append(_Rule(negates, folders_only, by_name, fits))
            return
        else:
            return
        self._rules.append(_Rule(negates, folders_only, by_name, lambda _name, _work: True))

    def verdict(self, path: str, name: str, is_folder: bool, work: Work) -> bool | None:
        """Return the verdict of the last matching rule, None without one. `path` and `name` are as git sees them."""
        own = path[len(self._prefix) :]
        found = next(
            (n for n in reversed(self._named.get(name, ())) if is_folder or not self._rules[n].folders_only), -1
        )
        # Charged per rule even if none is matched, so that very many rules end a walk too.
        work.spend(1 + len(self._others))
        for number in reversed(self._others):
            # Later rules win, so that no earlier rule than the one found can matter.
            if number < found:
                break
            rule = self._rules[number]
            if (is_folder or not rule.folders_only) and rule.fits(name if rule.by_name else own, work):
                found = number
                break
        return None if found < 0 else not self._rules[found].negates


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """All rules for a folder, those of folders above it first."""

    rules: tuple[Rules, ...] = ()

    def with_file(self, data: bytes, base: str) -> IgnoreRules:
        """Add the rules of a file in the folder `base`."""
        return IgnoreRules((*self.rules, Rules(data, base)))

    def __call__(self, path: str, is_folder: bool, work: Work) -> bool:
        """Return whether a path is ignored. Everything in an ignored folder is, whatever its rules say.

        O(rules). Raises what the `work` raises.
        """
        if not self.rules:
            return False
        seen = _as_git_sees(path)
        name = seen.rpartition("/")[2]
        # Files further down win over those above (gitignore(5)).
        for rules in reversed(self.rules):
            if (verdict := rules.verdict(seen, name, is_folder, work)) is not None:
                return verdict
        return False


NONE: Final = IgnoreRules()


def _lines(data: bytes) -> Iterator[str]:
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = _bytes_as_text(line.removesuffix(b"\r"))
        if not text.startswith("#") and (text := _trimmed(text)):
            yield text


def _trimmed(text: str) -> str:
    """Strip trailing spaces, unless they are escaped."""
    # An even number of backslashes escapes itself, and no space.
    end = len(text.rstrip(" "))
    slashes = end - len(text[:end].rstrip("\\"))
    return text[: end + (slashes % 2 and end < len(text))]


def _matcher(text: str, by_name: bool) -> Callable[[str, Work], bool] | None:
    """Return a matcher for a name or a path; None for a rule that matches nothing."""
    if _SPECIAL.isdisjoint(text):
        return lambda path, _: path == text
    if by_name and text[0] == "*" and _SPECIAL.isdisjoint(text[1:]):
        # A rule like *.pyc needs no pattern either.
        ending = text[1:]
        return lambda name, _: name.endswith(ending)
    try:
        expression = "".join(_expression(text, by_name))
        pattern = Pattern(rf"(?s)\A{expression}\Z")
    except InvalidInput:  # too long for a name, or never whole
        return None
    plain = text[: next(at for at, char in enumerate(text) if char in _SPECIAL)]  # most names do not begin so
    return lambda path, work: path.startswith(plain) and pattern.search(path, work) is not None


def _expression(text: str, by_name: bool) -> Iterator[str]:
    """Translate a rule to a regular expression. Raises InvalidInput for one that git rejects too."""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "*":
            stop = at
            while text[stop : stop + 1] == "*":
                stop += 1
            opens = at == 0 or text[at - 1] == "/"
            closes = stop == len(text) or text[stop] == "/"
            # Two stars span folders only between slashes; elsewhere git takes them for one star.
            over_folders = stop - at > 1 and not by_name and opens and closes
            if over_folders and stop < len(text):
                yield "(?:.*/)?"
                stop += 1
            else:
                yield ".*" if over_folders else "[^/]*"
            at = stop
        elif char == "[":
            members, at = _members(text, at + 1)
            yield _class(members)
        else:
            at += char == "\\"
            if at == len(text):
                raise InvalidInput("ends in a backslash", place="rule")
            yield "[^/]" if char == "?" else re.escape(text[at])
            at += 1


def _members(text: str, at: int) -> tuple[set[int], int]:
    """Parse a class in brackets to its bytes and its end. Raises InvalidInput without an end."""
    negated = text[at : at + 1] in {"!", "^"}
    at += negated
    found: set[int] = set()
    # A bracket that comes first stands for itself (wildmatch.c), so that []] is a class.
    before, first = "", True
    while True:
        char = _at(text, at)
        if char == "]" and not first:
            break
        first = False
        if char == "\\":
            at += 1
            char = _at(text, at)
            found.add(ord(char))
            before = char
        elif char == "-" and before and text[at + 1 : at + 2] not in {"", "]"}:
            at += 1
            at += text[at] == "\\"
            found |= set(range(ord(before), ord(_at(text, at)) + 1))
            before = ""
        elif char == "[" and text[at + 1 : at + 2] == ":":
            before, at = _named_class(text, at, found)
        else:
            found.add(ord(char))
            before = char
        at += 1
    # No class matches a slash, not even a negated one (wildmatch.c).
    return (set(range(256)) - found if negated else found) - {ord("/")}, at + 1


def _named_class(text: str, at: int, found: set[int]) -> tuple[str, int]:
    """Add a class such as [:digit:] that begins at `at`. Returns the start of a possible range, and its end."""
    end = text.find("]", at + 2)
    if end < 0:
        raise InvalidInput("has a class that does not end", place="rule")
    if end == at + 2 or text[end - 1] != ":":
        found.add(ord("["))
        return "[", at
    named = _CLASSES.get(text[at + 2 : end - 1])
    if named is None:
        raise InvalidInput("has a class that nobody knows", place="rule")
    found |= {byte for byte in range(128) if named(byte)}
    return "", end


def _at(text: str, at: int) -> str:
    if at >= len(text):
        raise InvalidInput("has a class that does not end", place="rule")
    return text[at]


def _class(members: Iterable[int]) -> str:
    """A class of characters by their ranges."""
    ranges: list[list[int]] = []
    for byte in sorted(members):
        if ranges and ranges[-1][1] == byte - 1:
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    if not ranges:
        raise InvalidInput("has a class of nothing", place="rule")
    return "[" + "".join(f"\\x{first:02x}-\\x{last:02x}" for first, last in ranges) + "]"
