"""Sessions in an object store, through pyarrow's file systems. Needs the extra `parquet`.

S3 and what speaks its protocol: keys, region and endpoint by AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT_URL and the profile files, as every tool of AWS takes them. Google's by its application default
credentials.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from foldline.errors import InvalidInput, MissingExtra
from foldline_bench.tuning.values import SessionSource

try:
    from pyarrow import fs
except ImportError as error:
    raise MissingExtra(
        "parquet", "sessions in an object store", install="pip install 'foldline-bench[parquet]'"
    ) from error

__all__ = ["listed", "opened", "read", "reason_of"]


# Characters without a meaning of their own in the path of a URI: they stay unquoted in URIs of listed objects.
_PLAIN: Final = "/=:,~!$&'()*+;"


def _system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in it. Raises InvalidInput."""
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise _refused(uri, error) from None
    return system, path


def _refused(uri: str, error: Exception) -> InvalidInput:
    return InvalidInput(reason_of(error, uri), place=SessionSource("file", uri).shown)


def reason_of(error: Exception, place: str) -> str:
    """An error in one line, without a password in a URI, and without the identifiers after its first sentence."""
    text = " ".join(str(error).split())
    return text.replace(place, SessionSource("file", place).shown)[:300]


def listed(uri: str, endings: tuple[str, ...]) -> list[str]:
    """The URIs of an object, or of all under a prefix that end so, in the order of their names.

    Each says of user, endpoint and the like what the given one does. Blanks may stand in that as they are.
    Raises InvalidInput when there is none, or the store refuses.
    """
    uri = quote(uri, safe=_PLAIN + "%#?@[]")
    system, path = _system(uri)
    try:
        [info] = system.get_file_info([path])
        if info.type == fs.FileType.File:
            return [uri]
        under = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise _refused(uri, error) from None
    found = sorted(one.path for one in under if one.type == fs.FileType.File and one.path.endswith(endings))
    if not found:
        raise InvalidInput(
            f"there is no object under it that ends in {', '.join(endings)}", place=SessionSource("file", uri).shown
        )
    head = urlsplit(uri)
    return [urlunsplit(head._replace(path="/" + quote(_inside(path), safe=_PLAIN), fragment="")) for path in found]


def _inside(path: str) -> str:
    """The path without its bucket, which is the host of the URI."""
    return path.partition("/")[2]


def read(uri: str) -> bytes:
    """All of an object. O(size). Raises InvalidInput when it is not there, OSError for a network that fails."""
    with opened(uri) as file:
        data: bytes = file.readall()
    return data


def opened(uri: str) -> Any:
    """An object as a file to read from any place of it; close it. Raises InvalidInput when it is not there, OSError."""
    system, path = _system(uri)
    try:
        return system.open_input_file(path)
    except FileNotFoundError:
        raise InvalidInput("there is no such object", place=SessionSource("file", uri).shown) from None
