"""Prints the notes of a release: the section of its version in CHANGELOG.md.

    python tools/release_notes.py 0.1.0

Exit code 2, with one line, when there is no such section, it has no date, or pyproject.toml has another version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]+)\)$", re.MULTILINE)


def notes_of(changelog: str, version: str, packaged: str) -> str:
    """The section of a version, without its heading. Raises ValueError with the reason why it cannot be released."""
    headings = list(HEADING.finditer(changelog))
    for number, heading in enumerate(headings):
        if heading["version"] != version:
            continue
        if re.fullmatch(r"\d{4}-\d\d-\d\d", heading["date"]) is None:
            raise ValueError(f"CHANGELOG.md: {version} has no date, but {heading['date']!r}")
        if version != packaged:
            raise ValueError(f"pyproject.toml: version is {packaged}, not {version}")
        end = headings[number + 1].start() if number + 1 < len(headings) else len(changelog)
        return changelog[heading.end() : end].strip()
    raise ValueError(f"CHANGELOG.md: there is no section of {version}")


def main() -> None:
    """Print the notes of the version that the first argument names."""
    try:
        (version,) = sys.argv[1:]
    except ValueError:
        sys.exit("usage: python tools/release_notes.py VERSION")
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    try:
        print(notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), version, packaged))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
