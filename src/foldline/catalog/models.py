"""Look up windows, limits, prices and cache rules of models by the name in a request.

The figures come from the TOML tables of this folder, each with its source and the day on which it was read. They are
the last resort: a user's setting, a learned limit or the server's own answer takes precedence.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Any, Final

from foldline import catalog
from foldline.catalog.prices import CacheRule, PriceStep
from foldline.errors import InvalidInput

__all__ = ["CACHE_RULES", "HOUR_SECONDS", "CacheRule", "Model", "PriceStep", "default_window", "lookup", "models"]

# For a server on one's own machine that does not say its window.
_LOCAL_WINDOW: Final = 8_192
_NOT_VENDORS: Final = frozenset({"cache_rules.toml", "families.toml"})
# Below this no policy can work; a smaller figure in a table is a slip, thousands instead of tokens.
_SMALLEST_WINDOW: Final = 1_024

HOUR_SECONDS: Final = 3_600
"""The longer cache lifetime, which usage reports count separately."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model. Unknown prices are None; a limit is None if only the window binds.

    `known` is False if the window is a guess from the family name or a default. `summaries` is "off" for models too
    small to be trusted with a summary, else "on". `read_on` is the day on which `source` was read. `cache` is the
    default rule; `caches` are the other lifetimes on request, with their prices. `compacts` says that its maker's API
    compacts conversations on request.
    """

    name: str
    vendor: str
    window_tokens: int
    max_input_tokens: int | None
    max_output_tokens: int | None
    input_usd_per_million: float | None
    output_usd_per_million: float | None
    cache: CacheRule
    known: bool
    source: str
    read_on: date
    summaries: str = "on"
    caches: tuple[CacheRule, ...] = ()
    compacts: bool = False

    @property
    def warning(self) -> str | None:
        """One line for the user when the window is a guess; None for a known model."""
        if self.known:
            return None
        which = f"model {self.name!r} is not in the catalogue" if self.name else "no model is named"
        return f"{which}: its window is taken to be {self.window_tokens:,} tokens ({self.source}); better set it"

    def cache_living(self, seconds: float) -> CacheRule:
        """Return the rule with the cheapest writes that keeps a prefix for `seconds`, or else the longest-lived one."""
        rules = (self.cache, *self.caches)
        long = [rule for rule in rules if rule.lifetime_seconds >= seconds]
        if not long:
            return max(rules, key=lambda rule: rule.lifetime_seconds)
        return min(long, key=lambda rule: (rule.write_ratio, rule.read_ratio))

    def usd(
        self,
        prompt_tokens: int,
        cached_tokens: int = 0,
        output_tokens: int = 0,
        written_tokens: int = 0,
        written_long_tokens: int = 0,
    ) -> float | None:
        """Return the price of one reported call in US dollars; None without a known price.

        `prompt_tokens` includes tokens read from the cache and written to it. `written_long_tokens` of the written ones
        were written for an hour.
        """
        # The provider has decided what was read and written, so minimum and blocks do not matter here; steps do.
        if not self.known or self.input_usd_per_million is None or self.output_usd_per_million is None:
            return None
        rule, step = self.cache, self.cache.step(prompt_tokens)
        fresh = prompt_tokens - cached_tokens - written_tokens
        paid = fresh + cached_tokens * rule.read_ratio + written_tokens * rule.write_ratio
        paid += written_long_tokens * (self.cache_living(HOUR_SECONDS).write_ratio - rule.write_ratio)
        usd = paid * step.input_ratio * self.input_usd_per_million
        return (usd + output_tokens * step.output_ratio * self.output_usd_per_million) / 1e6


@lru_cache(1024)  # a proxy asks for each request
def lookup(name: str | None, *, local: bool = False) -> Model:
    """Return the model that a request's `model` field names; a guess with `known=False` for an unknown one.

    Tries in order: the name itself; without provider prefix ("openrouter/anthropic/…", "us.anthropic.…"); without date,
    version or "-latest"; the longest id that it begins with; then the family's window, or 128,000 tokens. With `local`
    (a server on the user's machine) an unknown model gets 8,192 tokens. O(models) at most.
    """
    table = _by_name()
    plain = _plain(name or "")
    # OpenRouter writes Claude's versions with a dot, Anthropic with a dash.
    plain = plain.replace(".", "-") if "claude" in plain else plain
    for candidate in (_canonical(name or ""), plain, _UNDATED.sub("", plain), f"{plain}-latest"):
        if candidate in table:
            return table[candidate]
    # With a dash behind it, so that "gpt-4" does not stand for "gpt-4o". The longest id is the most specific one.
    begun = [known for known in _prefixes() if plain.startswith(f"{known}-")]
    return table[max(begun, key=len)] if begun else _guess(name or "", plain, local)


def default_window(name: str) -> int:
    """Return the window of a model's family, as the layered system documents it; 128,000 for any other name."""
    return _family(name)[1]


@cache
def models() -> tuple[Model, ...]:
    """Return all models of the catalogue, vendor by vendor. The first call reads the tables."""
    return tuple(model for model, _ in _entries())


class _CacheRules(Mapping[str, CacheRule]):
    """Cache rules by provider, read on first access."""

    def __getitem__(self, provider: str) -> CacheRule:
        return _provider_rules()[provider]

    def __iter__(self) -> Iterator[str]:
        return iter(_provider_rules())

    def __len__(self) -> int:
        return len(_provider_rules())


CACHE_RULES: Final[Mapping[str, CacheRule]] = _CacheRules()
"""Cache rules by provider: "anthropic", "openai", "deepseek", "gemini", and "none" or "nocache"."""


# --- Names ------------------------------------------------------------------------------------------------------------

_LABELS: Final = re.compile(r"^(?:[a-z-]+\.)+")  # "us.anthropic." of Bedrock; a version's dot follows a digit
_UNDATED: Final = re.compile(r"(?:-latest|-preview|-\d{4}-\d{2}-\d{2}|-\d{8}|-\d{4})?(?:-v\d+(?:-\d+)?)?$")


def _canonical(name: str) -> str:
    """Lower case; the separators of tags and versions (Ollama's ":", Vertex's "@") as dashes."""
    return name.strip().lower().replace(":", "-").replace("@", "-")


def _plain(name: str) -> str:
    return _LABELS.sub("", _canonical(name.strip().removeprefix("ft:").rsplit("/", 1)[-1]))


def _guess(name: str, plain: str, local: bool) -> Model:
    rules, families = _provider_rules(), _table("families.toml")
    family, window = _family(name)
    if local:
        # A small guess folds too early, a large one loses the beginning of the prompt without a word.
        window, source = _LOCAL_WINDOW, "default of a local server"
    else:
        source = f"the family {family!r}" if family else "default of a hosted model"
    vendor, provider = _MAKERS.get(re.split(r"[-\d]", family)[0], ("", "openai"))
    return Model(
        name=name or plain,
        vendor="local" if local else vendor,
        window_tokens=window,
        max_input_tokens=None,
        max_output_tokens=None,
        input_usd_per_million=None,
        output_usd_per_million=None,
        cache=rules["none" if local else provider],
        known=False,
        source=source,
        read_on=families["read"],
    )


# The vendor of each model family, and the provider whose cache rule applies to it.
_MAKERS: Final = {
    "claude": ("anthropic", "anthropic"),
    "gpt": ("openai", "openai"),
    "gemini": ("google", "gemini"),
    "deepseek": ("deepseek", "deepseek"),
}


def _family(name: str) -> tuple[str, int]:
    table = _table("families.toml")
    lower = name.lower()
    for part, window in table["windows"]:
        if part in lower:
            return part, window
    return "", table["default_tokens"]


# --- Tables -----------------------------------------------------------------------------------------------------------


@cache
def _folder() -> Any:
    """Return the location of the tables, in a folder or in a zip."""
    # `importlib.resources.files` asks the same reader, but loads pathlib, tempfile and shutil: 7 ms of the import.
    loader: Any = catalog.__loader__
    return loader.get_resource_reader(catalog.__name__).files()


@cache
def _table(file: str) -> dict[str, Any]:
    return tomllib.loads((_folder() / file).read_text(encoding="utf-8"))


@cache
def _by_name() -> dict[str, Model]:
    return {_canonical(model.name): model for model, _ in _entries()}


@cache
def _prefixes() -> tuple[str, ...]:
    return tuple(_canonical(model.name) for model, exact in _entries() if not exact)


@cache
def _provider_rules() -> dict[str, CacheRule]:
    return {
        provider: _rule({key: value for key, value in entry.items() if key not in {"read", "source"}}, provider)
        for provider, entry in _table("cache_rules.toml").items()
    }


@cache
def _entries() -> tuple[tuple[Model, bool], ...]:
    """Return every model, and whether it matches its exact name only."""
    files = sorted(entry.name for entry in _folder().iterdir() if entry.name.endswith(".toml"))
    return tuple(read for file in files if file not in _NOT_VENDORS for read in _vendor(_table(file), file))


def _vendor(table: Mapping[str, Any], file: str) -> Iterator[tuple[Model, bool]]:
    seen: set[str] = set()
    for entry in table["models"]:
        place = f"{file}: {entry.get('name')}"
        # An entry has the date and source of its file, and compacts as it says, unless it says otherwise.
        of_file = {name: table.get(name) for name in ("read", "source", "compacts")}
        fields = {**of_file, **entry}
        # The later entry would win silently, and nobody would see which price counts.
        if entry.get("name") in seen:
            raise InvalidInput("is listed twice", place=place)
        seen.add(entry["name"])
        # A vendor has one rule for most models, so an entry states only what differs.
        rule = {**table["cache"], **entry.get("cache", {})}
        others = [{**rule, **other} for other in entry.get("caches", table.get("caches", []))]
        yield _model(fields, table["vendor"], rule, others, place), bool(entry.get("exact"))


_FIELDS: Final = frozenset(
    {
        "name", "exact", "window_tokens", "max_input_tokens", "max_output_tokens", "input_usd_per_million",
        "output_usd_per_million", "cache", "caches", "summaries", "read", "source", "compacts",
    }
)  # fmt: skip


def _model(
    entry: Mapping[str, Any], vendor: str, rule: Mapping[str, Any], others: Sequence[Mapping[str, Any]], place: str
) -> Model:
    """Return the model of a table entry. Raises InvalidInput for an impossible figure."""
    # A misspelt field would pass for a missing one, and its model for one without a limit or a price.
    if unknown := entry.keys() - _FIELDS:
        raise InvalidInput(f"has unknown fields {sorted(unknown)}", place=place)
    if not isinstance(entry["read"], date) or not entry["source"]:
        raise InvalidInput("needs the day it was read and its source", place=place)
    window = entry["window_tokens"]
    caps = [entry[field] for field in ("max_input_tokens", "max_output_tokens") if field in entry]
    if window < _SMALLEST_WINDOW or any(not 0 < cap <= window for cap in caps):
        raise InvalidInput("has a window under 1,024 tokens, or a limit outside it", place=place)
    prices = [entry[field] for field in ("input_usd_per_million", "output_usd_per_million") if field in entry]
    # Catches a price per token or per thousand, the other units that price lists use.
    if any(not 0 < price < 1_000 for price in prices):
        raise InvalidInput("has a price that is not between 0 and 1,000 dollars a million", place=place)
    if entry.get("summaries", "on") not in {"on", "off"}:
        raise InvalidInput('"summaries" must be "on" or "off"', place=place)
    return Model(
        name=entry["name"],
        vendor=vendor,
        window_tokens=window,
        max_input_tokens=entry.get("max_input_tokens"),
        max_output_tokens=entry.get("max_output_tokens"),
        input_usd_per_million=entry.get("input_usd_per_million"),
        output_usd_per_million=entry.get("output_usd_per_million"),
        cache=_rule(rule, place),
        known=True,
        source=entry["source"],
        read_on=entry["read"],
        summaries=entry.get("summaries", "on"),
        caches=tuple(_rule(other, place) for other in others),
        compacts=entry["compacts"] is True,
    )


def _rule(entry: Mapping[str, Any], place: str) -> CacheRule:
    steps = tuple(PriceStep(**step) for step in entry.get("steps", ()))
    rule = CacheRule(**{**entry, "steps": steps})
    # Reading from a cache never costs more than the input itself, writing to it never less: no provider has it
    # otherwise.
    if not 0 < rule.read_ratio <= 1 <= rule.write_ratio <= 3 or rule.minimum_tokens < 1 or rule.block_tokens < 1:
        raise InvalidInput("has a cache rule outside 0 < read <= 1 <= write <= 3, or without sizes", place=place)
    marks = [step.above_tokens for step in steps]
    if marks != sorted(set(marks)) or any(mark < 0 for mark in marks):
        raise InvalidInput("has price steps that do not ascend", place=place)
    if any(min(step.input_ratio, step.output_ratio) < 1 for step in steps):
        raise InvalidInput("has a price step that makes long requests cheaper", place=place)
    return rule
