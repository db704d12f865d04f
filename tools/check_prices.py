"""Compares the catalogue's prices, cache ratios and price steps with the price map that litellm ships.

    pip download --no-deps litellm && unzip litellm-*.whl 'litellm/model_prices*'
    python tools/check_prices.py litellm/model_prices_and_context_window_backup.json

One line for each figure that differs, or that the map has and the catalogue has not. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from foldline.catalog.models import Model, models
from foldline.catalog.prices import PriceStep

# Under which prefix the map has the vendor's own prices; resellers have prices of their own.
PREFIXES = {
    "amazon": ("amazon.",),
    "anthropic": ("", "anthropic.", "vertex_ai/"),
    "cohere": ("",),
    "deepseek": ("deepseek/",),
    "google": ("gemini/",),
    "meta": ("meta/",),
    "minimax": ("minimax/",),
    "mistral": ("mistral/",),
    "moonshot": ("moonshot/",),
    "openai": ("", "azure/"),
    "qwen": ("dashscope/",),
    "xai": ("xai/",),
    "zhipu": ("zai/",),
}
DATED = re.compile(r"(?:-latest|-\d{8}|-\d{4}-\d{2}-\d{2})?(?:-v\d+(?::\d+)?|@\d{8})?")
ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
# Longer lifetimes by the field that prices a write for them, in seconds.
LONGER = {"cache_creation_input_token_cost_above_1hr": 3_600, "cache_creation_input_token_cost_above_12hr": 43_200}
NEAR = 0.002  # ratios are rounded to four digits


def entry_of(model: Model, table: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The map's entry for a model, by its own name or the newest dated one."""
    for prefix in PREFIXES.get(model.vendor, ()):
        wanted = f"{prefix}{model.name}"
        if "input_cost_per_token" in table.get(wanted, {}) or "tiered_pricing" in table.get(wanted, {}):
            return wanted, table[wanted]
        dated = [key for key in table if key.startswith(wanted) and DATED.fullmatch(key[len(wanted) :])]
        if dated:
            return max(dated), table[max(dated)]
    return None


def flat(entry: Mapping[str, Any]) -> dict[str, float]:
    """The entry's first prices; those of its first tier where it has tiers."""
    tiers = entry.get("tiered_pricing") or [{}]
    prices = {key: value for key, value in {**entry, **tiers[0]}.items() if "cost" in key}
    return {key: float(value) for key, value in prices.items() if isinstance(value, int | float)}


def steps_of(entry: Mapping[str, Any], price: float, output: float) -> Iterator[PriceStep]:
    """The entry's price steps as multiples of its first prices."""
    for tier in (entry.get("tiered_pricing") or [])[1:]:
        above = int(tier["range"][0])
        yield PriceStep(above, tier["input_cost_per_token"] / price, tier["output_cost_per_token"] / output)
    for field, found in sorted((key, match) for key in entry if (match := ABOVE.fullmatch(key))):
        longer = entry.get(field.replace("input_", "output_"), output)
        yield PriceStep(int(found[1]) * 1_000, entry[field] / price, longer / output)


def differences(model: Model, entry: Mapping[str, Any]) -> Iterator[str]:
    """What of a model's prices the map has otherwise. A cache ratio may be that of any lifetime the model has."""
    prices = flat(entry)
    price, output = prices.get("input_cost_per_token", 0.0), prices.get("output_cost_per_token", 0.0)
    if not price:
        yield from () if model.input_usd_per_million is None else ["the map has no price"]
        return
    pairs: list[tuple[str, list[float | None], float]] = [
        ("input $", [model.input_usd_per_million], price * 1e6),
        ("output $", [model.output_usd_per_million], output * 1e6),
    ]
    rules = (model.cache, *model.caches)
    if read := prices.get("cache_read_input_token_cost"):
        pairs.append(("read", [rule.read_ratio for rule in rules], read / price))
    if write := prices.get("cache_creation_input_token_cost"):
        pairs.append(("write", [rule.write_ratio for rule in rules], write / price))
    for field, seconds in LONGER.items():
        if field in prices:
            ours: list[float | None] = [rule.write_ratio for rule in rules if rule.lifetime_seconds == seconds]
            pairs.append((f"write for {seconds:,} s", ours, prices[field] / price))
    for what, mine, theirs in pairs:
        if not any(one is not None and abs(one - theirs) <= NEAR * max(1.0, theirs) for one in mine):
            yield f"{what} is {mine}, the map has {theirs:.4g}"
    theirs_steps = list(steps_of(entry, price, output))
    for step in theirs_steps:
        if not any(same(step, other) for other in model.cache.steps):
            yield f"no {step}"
    for step in model.cache.steps:
        if not any(same(step, other) for other in theirs_steps):
            yield f"{step} is not in the map"


def same(one: PriceStep, other: PriceStep) -> bool:
    """Whether two steps are the same to four digits."""
    ratios = (one.input_ratio - other.input_ratio, one.output_ratio - other.output_ratio)
    return one.above_tokens == other.above_tokens and max(map(abs, ratios)) < NEAR


def main() -> int:
    """Print the differences; their number decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("map", type=Path, help="litellm's model_prices_and_context_window_backup.json")
    table = json.loads(parser.parse_args().map.read_bytes())
    found = checked = 0
    for model in models():
        entry = entry_of(model, table)
        if entry is None:
            print(f"{model.vendor:10} {model.name}: not in the map")
            continue
        checked += 1
        for text in differences(model, entry[1]):
            found += 1
            print(f"{model.vendor:10} {model.name} ({entry[0]}): {text}")
    print(f"{checked} of {len(models())} models compared, {found} figures differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
