"""Remove secrets of known shapes from logs, errors and summaries.

A shape is a prefix and a length that an issuer documents, or a position: in a URL, in a header, in a field called
password. Ordinary words must survive, because summaries depend on names such as `pk_orders` and `sk-learn`. So must
hashes, UUIDs and images in base64.

Prefixes and lengths come from the issuers' documents and from the list of the scanner gitleaks
(github.com/gitleaks/gitleaks, `config/gitleaks.toml`). Where lengths vary, the shortest is used.

Time is linear: every repetition that may fail is bounded, or starts where no other attempt scans the same text.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HEADERS", "NAMED", "REDACTED", "SHAPES", "redact"]

# A word, not asterisks: a summary that keeps it says that there was a secret, and no pattern here matches it again.
REDACTED = "[redacted]"


def redact(text: str) -> str:
    """Replace each secret of a known shape by `[redacted]`. O(size)."""
    # `re.sub` compiles and caches on first use. Compiling here would slow every import of the package.
    text = re.sub(SHAPES, REDACTED, text)
    text = re.sub(HEADERS, lambda found: f"{found[1] or found[2]}{REDACTED}", text)
    return re.sub(NAMED, rf"\1{REDACTED}", text)


# Each prefix with the least number of characters behind it. Comments name the issuers.
_PREFIXED: Final = (
    # code and packages: GitHub, GitLab, Bitbucket and Atlassian, npm, PyPI, RubyGems, crates.io, Clojars, NuGet, Docker
    r"gh[pousr]_[A-Za-z0-9]{16,}",
    r"github_pat_\w{16,}",
    r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w\-]{16,}(?:\.[0-9a-z]{9})?",
    r"GR1348941[\w\-]{20,}",
    r"AT(?:ATT3|CTT3|BB)[\w\-=]{20,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[\w\-]{40,}",
    r"rubygems_[0-9a-f]{40,}",
    r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    r"CLOJARS_[A-Za-z0-9]{40,}",
    r"oy2[a-z0-9]{43}(?![A-Za-z0-9])",
    r"dckr_[po]at_[\w\-]{20,}",
    r"sgp_[0-9a-f_]{40,}",
    # clouds: AWS, Google, Azure, DigitalOcean, Heroku, Alibaba, Yandex, Fly, Supabase, PlanetScale, Cloudflare
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}",
    r"ABSK[A-Za-z0-9+/]{60,}={0,2}",
    r"amzn\.mws\.[0-9a-f\-]{36}",
    r"AIza[\w\-]{10,}",
    r"AQ\.Ab[\w\-]{20,}",
    r"ya29\.[\w\-]{20,}",
    r"GOCSPX-[\w\-]{20,}",
    r"GOOG[A-Z0-9]{20,}",
    r"1//0[\w\-]{30,}",
    r"[\w~.]{3}[0-9]Q~[\w~.\-]{31,34}(?<!\.)",
    r"[A-Za-z0-9]{52}JQQJ9[A-Za-z0-9]{20,}",
    r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}",
    r"do[opr]_v1_[0-9a-f]{40,}",
    r"HRKU-[\w\-]{30,}",
    r"LTAI[A-Za-z0-9]{16,}",
    r"AQVN[\w\-]{35,}",
    r"(?:fo1_|fm[12]_)[\w\-+/=]{40,}",
    r"sb(?:p_|_secret_)[A-Za-z0-9_]{20,}",
    r"pscale_(?:tkn|pw|oauth)_[\w\-.=]{30,}(?<!\.)",
    r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}",
    # models: the forms with a dash or an underscore behind a short prefix stand in SHAPES
    r"api_org_[A-Za-z]{30,}",
    r"lsv2_(?:pt|sk)_[\w\-]{30,}",
    r"(?:pcsk|tgp_v1|e2b|esecret|jina|tvly|csk|sk_tvly)[_-](?=[\w\-]{0,40}[0-9])[\w\-]{24,}",
    r"dapi[0-9a-f]{32}(?:-[0-9])?",
    # mail, messages, money: SendGrid, Brevo, Mailgun, Mailchimp, Slack, Discord, Telegram, Twilio, Stripe and others
    r"SG\.[\w\-]{16,64}\.[\w\-]{16,}",
    r"xkeysib-[0-9a-f]{40,}[\w\-]*",
    r"(?:pub)?key-[0-9a-f]{32}(?![\w\-])",
    r"[0-9a-f]{32}-(?:us[0-9]{1,2}|[0-9a-f]{8}-[0-9a-f]{8})(?![\w\-])",
    r"(?:xoxe\.)?(?:xox[abeoprs]|xapp)-[\w\-]{10,}",
    r"[MNO][\w\-]{22,28}\.[\w\-]{6}\.[\w\-]{27,110}",
    r"mfa\.[\w\-]{40,}",
    r"SK[0-9a-f]{32}(?![\w\-])",
    r"whsec_[A-Za-z0-9+/=]{20,}",
    r"sq0(?:atp|csp|idp)-[\w\-]{20,}",
    r"EAAA[\w\-]{56,}",
    r"(?<![+/])EAA[A-Za-z0-9]{60,}",
    r"shp(?:at|ca|pa|ss|tka|ua)_[0-9a-fA-F]{32,}",
    r"(?:EZAK|EZTK)[A-Za-z0-9]{50,}",
    r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}[\w\-]*",
    r"(?:duffel_(?:live|test)|shippo_(?:live|test))_[\w\-]{30,}",
    r"access-(?:sandbox|development|production)-[0-9a-f\-]{36}",
    # tools: Vault, Terraform, Pulumi, Doppler, 1Password, age, Grafana, New Relic, Sentry and others
    r"hv[sbr]\.[\w\-]{24,}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w\-=]{40,}",
    r"pul-[0-9a-f]{40}",
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.\-]{30,}(?<!\.)",
    r"ops_eyJ[\w+/=\-]{40,}",
    r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){3,4}[A-Z0-9]{5}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}",
    r"NR(?:AK|JS|II|RA)-[A-Za-z0-9\-]{19,}",
    r"sntry[su]_[\w+/=\-]{40,}",
    r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{40,}",
    r"PMAK-[0-9a-f]{20,}-[0-9a-f]{30,}",
    r"AKCp[A-Za-z0-9]{50,}",
    r"cmVmdGtu[A-Za-z0-9]{50,}",
    r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
    r"(?:ntn|secret)_(?=[A-Za-z0-9]{0,43}[0-9])[A-Za-z0-9]{43,}",
    r"figd_[\w\-]{30,}",
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
    r"(?:pat|sat)\.[\w\-]{22}\.[0-9a-f]{24}\.\w{20}",
    r"(?:pnu|rdme|tfp|sm_aat|sm_pat|sm_sat)_(?=\w{0,40}[0-9])[\w\-.=]{32,}(?<!\.)",
    r"CFPAT-[\w\-]{40,}",
    r"sl\.(?:u\.)?[\w\-]{100,}",
    r"p8e-[A-Za-z0-9]{32}",
    r"SWMTKN-1-[a-z0-9\-]{50,}",
    r"ico-[A-Za-z0-9]{32}(?![\w\-])",
    r"sha256~[\w\-]{43}",
    r"s-s4t2(?:ud|af)-[0-9a-f]{64}",
    r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}",
    r"eyJrIjoi[A-Za-z0-9]{60,}={0,3}",
    r"(?:fio-u|tk-us|dnkey)-[\w\-]{48,}",
    r"(?:nfp|ddp|napi|vcp)_(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{36,}",
    r"sq[aup]_[0-9a-f]{40}",
    r"key_[0-9a-f]{64}",
    r"sm_[aps]at_[A-Za-z0-9]{16}(?![A-Za-z0-9])",
    r"t1\.[\w\-]{20,}\.[\w\-]{86}",
    r"endr\+[A-Za-z0-9\-]{16}",
    r"API-(?=[A-Z]{0,26}[0-9])[A-Z0-9]{26}(?![\w\-])",
    r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
    r"s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![\w\-]|\.\w)",
    r"[ps]k\.[A-Za-z0-9]{60}\.[A-Za-z0-9]{22}(?![\w\-]|\.\w)",
    r"A{22}(?=[A-Za-z]{0,80}[0-9])[A-Za-z0-9%]{80,100}(?![A-Za-z0-9+/%])",
    r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_\-][A-Za-z0-9\-]{10,32}\.[\w+/=\-]{30,120}",
    r"4b1d[A-Za-z0-9]{38}(?![A-Za-z0-9])",
)

_KEYS: Final = r"""(?:sk|pk|rk|gsk|xai|hf|r8|fw|pplx|nvapi)[-_]      # of model providers; Stripe has the same form
      (?: (?:[\w\-]{0,60}?[-_])?(?:(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{12,}|[A-Za-z0-9]{20,})[\w\-]*
        | [\w\-]{0,60}\*{2,}[\w\-.*]* )                           # masked by the server, but for its ends"""

SHAPES: Final = rf"""(?x)
    -----BEGIN\ [A-Z0-9 ]{{0,32}}PRIVATE\ KEY(?:\ BLOCK)?-----      # PEM, also in JSON text, also without its end
      (?:(?:\\+[rn]|\s)*+(?:[A-Za-z0-9+/=]{{16,}}|[\w\-]{{1,40}}:\ [^\r\n\\]*+))*+
      (?:(?:\\+[rn]|\s)*+[A-Za-z0-9+/=]{{0,15}}(?:\\+[rn]|\s)*+-----END\ [A-Z0-9 ]{{0,32}}PRIVATE
        \ KEY(?:\ BLOCK)?-----)?
  | (?<![A-Za-z0-9])(?:{_KEYS}
      | {" | ".join(_PREFIXED)}
      | (?<![\w\-])eyJ[\w\-]{{8,}}+(?:\.[\w\-]++){{1,4}} )            # JSON Web Tokens
  | (?:(?<=bot)|(?<![A-Za-z0-9.]))[0-9]{{6,16}}:A[\w\-]{{33,36}}(?![\w\-])    # bots of Telegram
  | (?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w\-/+]{{20,}}
  | (?<=webhook\.office\.com/)webhookb2/[\w\-@/]{{40,}}
  | (?:(?<=discord\.com)|(?<=discordapp\.com))/api/webhooks/[0-9]{{5,}}/[\w\-]{{20,}}
  | (?i:\b(?:bearer|basic)\ {{1,8}}(?=[\w.~+/\-]{{0,200}}[0-9=]|[\w.~+/\-]{{24}})[\w.~+/=\-]{{8,}})
  | (?<=://)[^\s/@:]{{0,128}}:[^\s/@]{{1,256}}(?=@)
  | (?<=://)[A-Za-z0-9_\-]{{20,128}}(?=@)                           # a token in the place of the user
    """
"""Secrets that can be known wherever they stand."""

HEADERS: Final = r"""(?xi)
    ( \b(?:set-)?cookie\\?['"]?\s?:\s?\\?['"]? )
    (?!\[redacted)(?=[\w\-.]{1,80}=[^\s;'"\\]{4})[^\r\n'"\\]{5,}
  | ( \b(?:proxy-)?authorization\\?['"]?\s?[:=]\s?\\?['"]?(?:token|apikey|api-key|key|digest|negotiate
        |hmac|aws4-hmac-sha256|bot|sharedaccesssignature|sharedkey)\ ++ )
    (?!\[redacted)[^\r\n'"\\]{4,}
    """
"""Headers that hold nothing but secrets."""

NAMED: Final = r"""(?xi)
    ( [?&;](?:key|sig|signature|token|auth|pwd|passwd|x-amz-signature|x-amz-security-token|x-goog-signature)=
    | (?: api[-_ ]?key(?:\ provided)? | (?:access|refresh|auth|bot|id|api|session|security|deploy|personal)[-_ ]?token
        | (?:access|account|secret|private|signing|encryption|master|shared|license|ssh|auth|app|consumer|service)
          [-_ ]?(?:access[-_ ]?)?key
        | (?:client|webhook|signing|app|consumer|token|jwt|shared)[-_ ]?secret(?:[-_ ]?value)?
        | secret | passwor[dt] | passwd | passphrase | authorization | dsn[-_]?password | sas[-_ ]?token
      ) \\?['"]?\s?(?::=|=>|[:=])\s?\\?['"]?
    | \b(?!(?:cache|sort|primary|foreign|partition|idempotency|page|next|previous|continuation|public|dedup|routing
          |object|storage|row|hash|index|group|prompt|blob|image|file|git|commit)[-_])
      [a-z][a-z0-9]{1,24}(?:[-_][a-z0-9]{1,16}){0,3}[-_](?:token|key|pat)\\?['"]?\s?(?::=|=>|[:=])\s?\\?['"]?
      (?=(?=[a-z]{0,63}[0-9])(?=[0-9]{0,63}[a-z])[a-z0-9]{20}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})
    | \bcleartextpassword['"]?\s{1,4}value=\\?['"]?
    | \bheroku[\w\-. ]{0,20}\\?['"]?\s?[:=]\s?\\?['"]?(?=[0-9a-f]{8}-)
    | \s-u\s{0,2}['"]?[\w.@\-]{1,64}:
    | \blogin\s{1,4}\S{1,64}\s{1,4}password\s{1,4}
    )
    (?!\[redacted|bearer\ |basic\ |\$|<|%|\{|-----begin
      |(?:os|process|self|this|config|settings|env|secrets|request|data)\.|get|null\b|none\b|undefined\b|required\b)
    (?=[^\s'",}&\\]{0,120}[0-9]|[^\s'",}&\\]{8})[^\s'",}&\\]{4,}
    """
"""Secrets that are known by the name before them."""
