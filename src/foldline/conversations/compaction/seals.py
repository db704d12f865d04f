"""Signed state that a client carries: what a block or an item of compaction says, and that this proxy has made it.

Nothing is stored here. All that a later request needs is in the seal, so that a proxy that was restarted, or another
one with the same key, understands it. A seal is signed (HMAC-SHA-256, RFC 2104) and not encrypted: its owner may read
it, as it is the owner's own conversation. It holds for the credential that it was made for, so nobody gains by a copy.
"""

from __future__ import annotations

import hmac
import json
import secrets
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.files import file_lock, make_private_folder, write_atomic

__all__ = ["MARK", "Seal", "SealBroken", "SealKey", "SealKind", "is_seal", "read_key"]

MARK: Final = "foldline-1"
"""What each seal begins with."""

SealKind: TypeAlias = Literal["threshold", "summary", "item", "window"]
"""A block of Messages made at a threshold, or on request; an item of Responses made at a threshold, or of a window."""

Breach: TypeAlias = Literal["foreign", "signature", "owner", "content"]

_KEY_BYTES: Final = 32
_PURPOSE: Final = b"foldline compaction 1\0"  # the key may get other uses: no signature of one passes for another's
# More than any request may hold. What is inflated was signed before, so this bounds an error of ours and no attack.
_MAX_BYTES: Final = 128 * 1024 * 1024

_REASONS: Final[Mapping[Breach, str]] = {
    "foreign": "it was not made by this proxy, nor by one with its key",
    "signature": "its signature does not match: it was changed, or it is forged",
    "owner": "it was made for another API key",
    "content": "its content is not what was signed",
}


class SealBroken(InvalidInput):
    """A seal is not valid here. `breach` says how."""

    def __init__(self, breach: Breach) -> None:
        super().__init__(_REASONS[breach])
        self.breach: Breach = breach


@dataclass(frozen=True, slots=True)
class Seal:
    """The content of a seal: a summary, and the messages around it.

    `shown` are the messages that stand for what was compacted, in order, with None in the place of the summary.
    """

    kind: SealKind
    summary: str
    shown: tuple[Mapping[str, Json] | None, ...] = (None,)


def is_seal(text: object) -> bool:
    """Whether a text claims to be a seal of Foldline, by whatever key."""
    return isinstance(text, str) and text.startswith(f"{MARK}.")


@dataclass(frozen=True, slots=True)
class SealKey:
    """The key with which seals are signed. `name` tells keys apart and betrays nothing of them."""

    secret: bytes = field(repr=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        if len(self.secret) < _KEY_BYTES:
            raise InvalidInput(f"must have at least {_KEY_BYTES} bytes", place="compaction key")
        object.__setattr__(self, "name", sha256(b"name\0" + self.secret).hexdigest()[:12])

    def seal(self, seal: Seal, client: bytes, *, inside: bool = True) -> str:
        """Return the seal as a text of ASCII characters. O(size).

        `client` is a hash of the credential that it holds for. With `inside=False` the summary is only signed, as it
        stands beside the seal.
        """
        fields: dict[str, Json] = {
            "kind": seal.kind,
            "owner": self._owner(client),
            "digest": _digest(seal.summary),
            "shown": list(seal.shown),
        }
        if inside:
            fields["summary"] = seal.summary
        # Keys keep their order: a model reads the arguments of a call as they are written, and so does its cache.
        body = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 6)
        return ".".join((MARK, self.name, _encoded(body), _encoded(self._mac(body))))

    def open(self, text: str, client: bytes, *, summary: str | None = None) -> Seal:
        """Return what a seal holds. `summary` is the text beside it, for a seal that only signs it. O(size).

        Raises SealBroken.
        """
        parts = text.split(".")
        if len(parts) != 4 or parts[0] != MARK or parts[1] != self.name:
            raise SealBroken("foreign")
        body, mac = _decoded(parts[2]), _decoded(parts[3])
        if body is None or mac is None or not hmac.compare_digest(mac, self._mac(body)):
            raise SealBroken("signature")
        fields = json.loads(zlib.decompressobj().decompress(body, _MAX_BYTES))
        if not hmac.compare_digest(fields["owner"], self._owner(client)):
            raise SealBroken("owner")
        said = fields.get("summary") if summary is None else summary
        if not isinstance(said, str) or _digest(said) != fields["digest"]:
            raise SealBroken("content")
        return Seal(fields["kind"], said, tuple(fields["shown"]))

    def _owner(self, client: bytes) -> str:
        # Keyed: from the seal nobody can try credentials against the hash.
        return hmac.digest(self.secret, b"owner\0" + client, "sha256").hex()[:32]

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self.secret, _PURPOSE + body, "sha256")


def read_key(path: Path) -> SealKey:
    """Return the key in a file, which is created (0600) if there is none. Raises InvalidInput, OSError."""
    if not path.exists():
        make_private_folder(path.parent)
        with file_lock(path.with_name(f".{path.name}.lock")):
            if not path.exists():  # another process may have created it meanwhile
                write_atomic(path, [secrets.token_hex(_KEY_BYTES).encode(), b"\n"])
    try:
        secret = bytes.fromhex(path.read_text("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) < _KEY_BYTES:
        raise InvalidInput(f"holds no key of at least {_KEY_BYTES} bytes in hexadecimal digits", place=str(path))
    path.chmod(0o600)  # a copy may have come with the rights of its archive
    return SealKey(secret)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes | None:
    try:
        return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:  # no ASCII, or no base64
        return None
