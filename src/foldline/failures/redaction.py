"""Secrets in known shapes are taken out of what is logged, shown in an error or summed up.

A shape is what its issuer gives it (a prefix and a length), or the place where it stands (a URL, a header, a field that
is called password). Ordinary words must survive: a summary lives on names such as `pk_orders` and `sk-learn`.
"""

from __future__ import annotations

import re

__all__ = ["REDACTED", "redact"]

REDACTED = "[redacted]"

# Every repetition that may fail is bounded, or begins where no other attempt runs over the same text: time is linear.
# Patterns are compiled when they are first needed: importing this package is not the time to do it.
_SHAPES = r"""(?x)
    -----BEGIN\ [A-Z ]{0,32}PRIVATE\ KEY(?:\ BLOCK)?-----         # PEM, also in JSON text, also without its end
      (?:(?:\\[rn]|\s)*+(?:[A-Za-z0-9+/=]{16,}|[\w\-]{1,40}:\ [^\r\n\\]*+))*+
      (?:(?:\\[rn]|\s)*+[A-Za-z0-9+/=]{0,15}(?:\\[rn]|\s)*+-----END\ [A-Z ]{0,32}PRIVATE\ KEY(?:\ BLOCK)?-----)?
  | (?<![A-Za-z0-9])(?:sk|pk|rk|gsk|xai|hf|r8|fw|pplx|nvapi)[-_]  # keys of model providers; Stripe has the same form
      (?: (?:[\w\-]{0,60}?[-_])?(?:(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{12,}|[A-Za-z0-9]{20,})[\w\-]*
        | [\w\-]{0,60}\*{2,}[\w\-.*]* )                           # masked by the server, but for its ends
  | \bAIza[\w\-]{10,} | \b(?:AKIA|ASIA)[A-Z0-9]{12,} | \bya29\.[\w\-]{20,}
  | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_\w{16,} | \bglpat-[\w\-]{16,} | \bnpm_[A-Za-z0-9]{30,}
  | \b(?:xox[abeoprs]|xapp)-[\w\-]{10,}
  | (?<![\w\-])eyJ[\w\-]{8,}+(?:\.[\w\-]++){1,4}                   # JSON Web Tokens
  | (?i:\b(?:bearer|basic)\ {1,8}(?=[\w.~+/\-]{0,200}[0-9=]|[\w.~+/\-]{24})[\w.~+/=\-]{8,})
  | (?<=://)[^\s/@:]{0,64}:[^\s/@]{1,128}(?=@)
    """
_NAMED = r"""(?xi)
    ( [?&;](?:key|sig|signature|token|auth|pwd|passwd)=
    | (?:api[-_ ]?key(?:\ provided)?|(?:access|refresh|auth|bot)[-_ ]?token|client[-_ ]?secret|secret|passwor[dt]|passwd
        |authorization)\\?['"]?\s?[:=]\s?\\?['"]? )
    (?!\[redacted|bearer\ |basic\ )(?=[^\s'",}&\\]{0,120}[0-9]|[^\s'",}&\\]{8})[^\s'",}&\\]{4,}
    """


def redact(text: str) -> str:
    """The text with each secret of a known shape replaced by `[redacted]`. O(size)."""
    return re.sub(_NAMED, rf"\1{REDACTED}", re.sub(_SHAPES, REDACTED, text))
