"""Secrets leave what is logged and summed up; ordinary words stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.text.redaction import REDACTED, redact

RUN = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC3dE5f"  # forty letters and digits, no secret of anybody
LINE = (RUN + RUN)[:64]
KIND = "PRIVATE KEY"  # put together here, so that no scanner takes this file for a key
PEM = f"-----BEGIN RSA {KIND}-----\n{LINE}\n{LINE}\nabc=\n-----END RSA {KIND}-----"

SECRETS = {
    "openai": f"sk-{RUN}",
    "openai project": f"sk-proj-{RUN[:20]}_{RUN[:12]}-{RUN}",
    "anthropic": f"sk-ant-api03-{RUN}-{RUN[:8]}_AA",
    "openrouter": f"sk-or-v1-{'0123456789abcdef' * 4}",
    "groq": f"gsk_{RUN}",
    "hugging face": f"hf_{RUN[:34]}",
    "stripe": f"sk_live_{RUN[:24]}",
    "aws": "AKIA" + "ABCDEFGHIJKLMNOP",
    "github": f"ghp_{RUN[:36]}",
    "github fine-grained": f"github_pat_{RUN[:22]}_{RUN}",
    "gitlab": f"glpat-{RUN[:20]}",
    "slack": f"xoxb-123456789012-{RUN[:24]}",
    "google": f"AIza{RUN[:35]}",
    "token of three parts": f"eyJhbGciOiJIUzI1NiJ9.{RUN}.{RUN}",
    "private key": PEM,
}

HEX = "[0-9a-f]"
ANY = "[A-Za-z0-9]"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

KINDS = {
    "telegram bot": "[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "aws access key": "(AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    "aws bedrock": "ABSK[A-Za-z0-9+/]{109}[A-Za-z0-9]",
    "azure ad": "[A-Za-z0-9_~]{3}8Q~[A-Za-z0-9_~-]{34}",
    "azure cognitive": f"{ANY}{{52}}JQQJ99{ANY}{{26}}",
    "azure devops": f"{ANY}{{76}}AZDO{ANY}{{4}}",
    "sendgrid": "SG\\.[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]{43}",
    "brevo": f"xkeysib-{HEX}{{64}}-{ANY}{{16}}",
    "slack bot": f"xoxb-[0-9]{{10,13}}-[0-9]{{10,13}}-{ANY}{{24}}",
    "slack user": f"xoxp-[0-9]{{11}}-[0-9]{{11}}-[0-9]{{11}}-{HEX}{{32}}",
    "slack app": f"xapp-1-A{ANY}{{10}}-[0-9]{{13}}-{HEX}{{64}}",
    "slack refresh": f"xoxe-1-{ANY}{{146}}",
    "slack rotated": f"xoxe\\.xoxb-1-{ANY}{{163}}",
    "github": f"gh[pousr]_{ANY}{{36}}",
    "github fine-grained": f"github_pat_{ANY}{{22}}_{ANY}{{59}}",
    "gitlab": "gl(pat|dt|rt|ptt|ft|imt|agent|oas|soat|ffct)-[A-Za-z0-9_-]{20,26}",
    "gitlab runner": "GR1348941[A-Za-z0-9_-]{20}",
    "npm": f"npm_{ANY}{{36}}",
    "pypi": "pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,80}",
    "rubygems": f"rubygems_{HEX}{{48}}",
    "docker": "dckr_pat_[A-Za-z0-9_-]{27}",
    "google api": "AIza[A-Za-z0-9_-]{35}",
    "google client secret": "GOCSPX-[A-Za-z0-9_-]{28}",
    "google access token": "ya29\\.[A-Za-z0-9_-]{60,90}",
    "google refresh token": "1//0[A-Za-z0-9_-]{40,60}",
    "stripe": f"(sk|rk|pk)_(live|test)_{ANY}{{24,90}}",
    "stripe webhook": f"whsec_{ANY}{{32}}",
    "twilio": f"SK{HEX}{{32}}",
    "mailgun": f"key-{HEX}{{32}}",
    "mailgun newer": f"{HEX}{{32}}-{HEX}{{8}}-{HEX}{{8}}",
    "mailchimp": f"{HEX}{{32}}-us[0-9]{{1,2}}",
    "discord bot": "[MN][A-Za-z0-9_-]{23,25}\\.[A-Za-z0-9_-]{6}\\.[A-Za-z0-9_-]{38}",
    "shopify": f"shp(at|ca|pa|ss)_{HEX}{{32}}",
    "heroku": "HRKU-AA[A-Za-z0-9_-]{58}",
    "digitalocean": f"do[opr]_v1_{HEX}{{64}}",
    "databricks": f"dapi{HEX}{{32}}",
    "hugging face": "hf_[A-Za-z]{34}",
    "hugging face organisation": "api_org_[A-Za-z]{34}",
    "openai": f"sk-{ANY}{{20}}T3BlbkFJ{ANY}{{20}}",
    "openai project": f"sk-(proj|svcacct|admin)-{ANY}{{58}}_{ANY}{{15}}T3BlbkFJ{ANY}{{74}}",
    "anthropic": "sk-ant-(api03|admin01)-[A-Za-z0-9]{2}[A-Za-z0-9_-]{91}AA",
    "openrouter": f"sk-or-v1-{HEX}{{64}}",
    "groq": f"gsk_{ANY}{{52}}",
    "xai": f"xai-{ANY}{{80}}",
    "perplexity": f"pplx-{ANY}{{48}}",
    "replicate": f"r8_{ANY}{{37}}",
    "nvidia": "nvapi-[A-Za-z0-9]{2}[A-Za-z0-9_-]{62}",
    "langsmith": f"lsv2_pt_{HEX}{{32}}_{HEX}{{10}}",
    "token of three parts": "eyJ[A-Za-z0-9_-]{17,40}\\.eyJ[A-Za-z0-9_-]{17,90}\\.[A-Za-z0-9_-]{43}",
    "vault": "hv[sb]\\.[A-Za-z0-9_-]{90,100}",
    "terraform": f"{ANY}{{14}}\\.atlasv1\\.[A-Za-z0-9_-]{{60,70}}",
    "doppler": f"dp\\.pt\\.{ANY}{{43}}",
    "grafana": f"glsa_{ANY}{{32}}_{HEX}{{8}}",
    "new relic": "NRAK-[A-Z0-9]{27}",
    "postman": f"PMAK-{HEX}{{24}}-{HEX}{{34}}",
    "linear": f"lin_api_{ANY}{{40}}",
    "notion": f"ntn_[0-9]{{11}}{ANY}{{35}}",
    "airtable": f"pat{ANY}{{14}}\\.{HEX}{{64}}",
    "atlassian": f"ATATT3{ANY}{{180,190}}",
    "age": "AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}",
    "square": "sq0(atp|csp)-[A-Za-z0-9_-]{22,43}",
    "sentry": f"sntryu_{HEX}{{64}}",
    "supabase": f"sbp_{HEX}{{40}}",
    "planetscale": "pscale_tkn_[A-Za-z0-9_-]{43}",
    "pulumi": f"pul-{HEX}{{40}}",
    "grafana api key": f"eyJrIjoi{ANY}{{70,90}}",
    "frame.io": f"fio-u-{ANY}{{64}}",
    "scalingo": f"tk-us-{ANY}{{48}}",
    "defined networking": "dnkey-[a-z0-9]{26}-[a-z0-9]{52}",
    "netlify": f"nfp_[0-9]{ANY}{{39}}",
    "vercel": f"vcp_[0-9]{ANY}{{55}}",
    "sonar": f"sq[pua]_{HEX}{{40}}",
    "settlemint": f"sm_(aat|pat|sat)_{ANY}{{16}}",
    "yandex iam": "t1\\.[A-Za-z0-9_-]{30,60}\\.[A-Za-z0-9_-]{86}",
    "endor labs": f"endr\\+{ANY}{{16}}",
    "octopus deploy": "API-[0-9][A-Z0-9]{25}",
    "maxmind": f"{ANY}{{6}}_{ANY}{{29}}_mmk",
    "vault legacy": f"s\\.[0-9][A-Z]{ANY}{{22}}",
    "mapbox": f"pk\\.{ANY}{{60}}\\.{ANY}{{22}}",
    "authress": f"sc_{ANY}{{8}}\\.{ANY}{{5}}\\.acc-[a-z0-9]{{12}}\\.{ANY}{{40}}",
    "twitter bearer": f"A{{22}}[0-9]{ANY}{{84}}",
    "clickhouse cloud": f"4b1d{ANY}{{38}}",
}
"""The shapes of secrets by their issuers; examples are made while the tests run."""

PLACES = {
    "aws secret": ("aws_secret_access_key = {}", "[A-Za-z0-9+/]{39}[A-Za-z0-9]"),
    "aws session": ('"SessionToken": "{}"', "[A-Za-z0-9+/]{100,160}"),
    "azure storage": ("AccountName=x;AccountKey={};EndpointSuffix=core", "[A-Za-z0-9+/]{86}=="),
    "azure bus": ("SharedAccessKeyName=all;SharedAccessKey={}", "[A-Za-z0-9+/]{43}="),
    "azure openai": ("api-key: {}", f"{HEX}{{32}}"),
    "azure sas": ("https://x.example/c?sv=2024-01-01&sig={}&se=2026", "[A-Za-z0-9]{40}%3D"),
    "twilio": ("TWILIO_AUTH_TOKEN={}", f"{HEX}{{32}}"),
    "heroku": ("HEROKU_KEY={}", UUID),
    "mistral": ("export MISTRAL_API_KEY={}\n", f"{ANY}{{32}}"),
    "environment": ("DB_PASSWORD={}", "[A-Za-z0-9!#*+]{9,20}[0-9]"),
    "json": ('{{"clientSecret": "{}"}}', f"[a-z0-9]{{3}}{ANY}{{30}}[0-9]"),
    "yaml": ("secret_key: {}\nnext: 1", f"[a-z0-9]{{3}}{ANY}{{30}}[0-9]"),
    "url": ("postgresql://app:{}@db.example:5432/x", "[A-Za-z0-9!#$*+]{6,30}"),
    "url without a user": ("redis://:{}@cache.example", "[A-Za-z0-9]{6,30}"),
    "url with a token": ("https://{}@git.example/x.git", f"{ANY}{{20,60}}"),
    "basic": ("Authorization: Basic {}", "[A-Za-z0-9]{19}="),
    "bearer": ("-H 'Authorization: Bearer {}'", f"[0-9]{ANY}{{20,60}}"),
    "token": ("Authorization: token {}", f"{ANY}{{20,60}}"),
    "cookie": ("Cookie: session={}", f"{ANY}{{20,60}}"),
    "set-cookie": ("set-cookie: sid={}; Path=/; HttpOnly", f"{ANY}{{20,60}}"),
    "slack webhook": ("https://hooks.slack.com/services/{}", f"T[A-Z0-9]{{8}}/B[A-Z0-9]{{8}}/{ANY}{{24}}"),
    "discord webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", "[A-Za-z0-9_-]{68}"),
    "telegram url": ("https://api.telegram.org/bot{}/getMe", "[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    "curl": ("curl -u ann:{} https://x.example", f"{ANY}{{9,20}}[0-9]"),
    "token of an issuer": ("OKTA_TOKEN={}", f"0a{ANY}{{40}}"),
    "key of an issuer": ('{{"fastly_key": "{}"}}', f"[a-z][0-9]{ANY}{{30}}"),
    "token that is a uuid": ("snyk-token: {}", UUID),
    "nuget": ('<add key="ClearTextPassword" value="{}" />', f"{ANY}{{16}}[0-9]"),
    "netrc": ("machine x.example login ann password {}", f"{ANY}{{9,20}}[0-9]"),
}
"""What comes before and after a secret, and what stands there."""

WORDS = [
    "pk_orders_customer_id is the primary key; sk-learn 1.4 and hf_transformers_version are installed",
    "Basic authentication is off; bearer tokens are refused; the bearer of bad news",
    "the password must be longer; password: none; secret = True; authorization: no",
    "see https://example.org:8080/path?page=2&key_count=3 and git@example.org:team/repo.git",
    "commit 3f2a9c1b7d4e5f60718293a4b5c6d7e8f9012345 by ann@example.org",
    "the file begins with -----BEGIN CERTIFICATE----- and eyJ is how base64 of an object begins",
    "mask-rcnn-resnet50-fpn-v2, task_20240101_abcdef123456, disk-0123456789abcdef",
    "README.md src/app.py test_login 404 sha256:0f1e2d",
    "password = os.environ['DB_PASSWORD']; api_key=${API_KEY}; token = get_token(); secret: {{ vault.secret }}",
    "the token count is 12345 and tokens_before=20000; key: value; max_tokens: 4096; cookie: chocolate",
    "at 12:30 the build 20240101:ABC took 3 minutes; ratio 16:9; see line 1024:8",
    "tasks/ask-anything-about-sk-learn-and-hf-transformers.md; git@host.example:team/repo; user@host.example",
    "class SecretKeyRotation: pass  # the secret keys are rotated by rotate_secret_keys",
    "cache_key=9f86d081884c7d659a2feaa0c55ad015 sort_key: a1b2c3d4e5f6a1b2c3d4e5f6 page-token=a1b2c3d4e5f6a1b2c3d4e5f6",
    "API-REFERENCE-DOCUMENTATION-2, key_result_2026, primary_key: order_items_2024_01, group_token = next_one",
    "https://example.org/a/very/long/path/that/is/no/secret/at/all?page=2&sort=key and ftp://ann@example.org/x",
]

NOT_SECRET = {
    "md5": f"{HEX}{{32}}",
    "sha1": f"{HEX}{{40}}",
    "sha256": f"{HEX}{{64}}",
    "sha512": f"{HEX}{{128}}",
    "uuid": UUID,
    "picture": "data:image/png;base64,iVBORw0KGgo[A-Za-z0-9+/]{200,400}=",
    "words": "([a-z]{2,9} ){3,12}[a-z]{2,9}\\.",
    "snake": "[a-z]{2,9}(_[a-z]{2,9}){1,5}",
    "path": "/[a-z]{2,9}(/[a-z_-]{2,9}){1,5}\\.[a-z]{2,4}",
    "time": "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[012][0-9]:[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}Z",
    "number": "[0-9]{1,20}(\\.[0-9]{1,9})?",
    "image digest": f"sha256:{HEX}{{64}}",
}
"""What looks random and is none."""


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "the key is {}.", '{{"key": "{}"}}', "export KEY={}\nnext line", "({})"])
def test_a_key_leaves_and_what_stands_around_it_stays(secret: str, around: str) -> None:
    assert redact(around.format(secret)) == around.format(REDACTED)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Authorization: Bearer abcDEF1234567890", "Authorization: [redacted]"),
        ('{"password": "hunter2", "user": "ann"}', '{"password": "[redacted]", "user": "ann"}'),
        ('{\\"api_key\\": \\"abcd1234efgh\\"}', '{\\"api_key\\": \\"[redacted]\\"}'),
        ("postgres://ann:hunter2@db.example:5432/app", "postgres://[redacted]@db.example:5432/app"),
        ("redis://:hunter2@cache.example/0", "redis://[redacted]@cache.example/0"),
        ("https://api.example/v1?key=abcd1234&page=2", "https://api.example/v1?key=[redacted]&page=2"),
        ("client_secret=abcd1234efgh", "client_secret=[redacted]"),
        ("Incorrect API key provided: sk-abc***********xyz.", "Incorrect API key provided: [redacted]"),
    ],
)
def test_a_secret_is_known_by_its_place(text: str, safe: str) -> None:
    assert redact(text) == safe


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(data=st.data())
def test_a_secret_of_any_kind_leaves_wherever_it_stands(kind: str, data: st.DataObject) -> None:
    secret = data.draw(st.from_regex(KINDS[kind], fullmatch=True))
    around = data.draw(
        st.sampled_from(["{}", "it is {}.", '{{"x": "{}"}}', "X={}\nnext", "({})", "`{}`", "<{}>", "x {} y"])
    )
    assert redact(around.format(secret)) == around.format(REDACTED)


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=6)
@given(data=st.data())
def test_a_secret_leaves_that_only_its_place_tells(place: str, data: st.DataObject) -> None:
    around, shape = PLACES[place]
    secret = data.draw(st.from_regex(shape, fullmatch=True))
    safe = redact(around.format(secret))
    assert secret not in safe
    assert REDACTED in safe
    assert redact(safe) == safe


@pytest.mark.parametrize("kind", NOT_SECRET)
@settings(max_examples=6)
@given(data=st.data())
def test_what_only_looks_random_stays(kind: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(NOT_SECRET[kind], fullmatch=True))
    around = data.draw(st.sampled_from(["{}", "it is {}.", '{{"x": "{}"}}', "commit {}\n", "({})", "x {} y"]))
    assert redact(around.format(text)) == around.format(text)


def test_a_private_key_in_json_text_and_one_that_was_cut_off_leave_too() -> None:
    inside = json.dumps({"key": PEM, "after": "stays"})
    assert redact(inside) == json.dumps({"key": REDACTED, "after": "stays"})
    assert redact(f"{PEM[:120]}") == REDACTED
    encrypted = PEM.replace("-----\n", f"-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{RUN}\n\n", 1)
    assert redact(f"before {encrypted} after") == f"before {REDACTED} after"


@pytest.mark.parametrize("text", WORDS)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text


@given(st.lists(st.sampled_from([*SECRETS.values(), *WORDS, " ", "\n", "-", ":", "password=", "://", "@"])))
def test_what_is_redacted_stays_as_it_is(pieces: list[str]) -> None:
    once = redact(" ".join(pieces))
    assert redact(once) == once
    assert RUN[:20] not in once.replace(f"disk-{RUN}", "")


@pytest.mark.parametrize(
    "unit",
    [
        "eyJaaaaaaaa-",
        "sk-",
        "sk-a",
        "password=",
        "bearer ",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "AKIA",
        "?key=",
        "a",
        "a-",
        "A.",
        "0123456789abcdef",
        "12345678:A",
        "glpat-",
        "cookie: a",
        " authorization: token ",
        " login a password ",
        " -u a",
        "heroku ",
        "1//0",
        "dp.pt.",
        "pat.",
        "secret_",
    ],
)
def test_the_work_grows_as_the_text_does(unit: str) -> None:
    """Beginnings of secrets, one after the other: with work that grew by its square this test would not end."""
    text = unit * (100_000 // len(unit))
    assert len(redact(text)) <= len(text)
