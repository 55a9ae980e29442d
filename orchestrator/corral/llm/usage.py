"""Tokens and money of one answer: as the endpoint reports them, else estimated; priced where the price is known."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from corral.schema.messages import Usage

_CHARS_PER_TOKEN = 4


def parse_usage(value: object) -> Usage | None:
    """The usage an endpoint sent, or None when there is none or it makes no sense."""
    if not isinstance(value, Mapping):
        return None
    sent, got = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if sent is None or got is None or (sent == 0 and got == 0):
        return None
    details = value.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    if cached is None:
        cached = _count(value.get("prompt_cache_hit_tokens")) or 0
    return Usage(input_tokens=sent, output_tokens=got, cached_tokens=min(cached, sent))


def estimate_usage(input_tokens: int, answer_chars: int) -> Usage:
    """What an endpoint that reports nothing has probably used."""
    return Usage(
        input_tokens=input_tokens, output_tokens=answer_chars // _CHARS_PER_TOKEN + 1, cached_tokens=0, reported=False
    )


def find_cost(model: str, usage: Usage, base_url: str | None) -> float | None:
    """The list price in US dollars, or None when nobody knows it. Models on this machine or network have none."""
    from genai_prices import Usage as PricedUsage  # late: only a run that asked a model pays for it
    from genai_prices import calc_price

    if base_url is not None and _is_private(base_url):
        return None
    priced = PricedUsage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cache_read_tokens=usage.cached_tokens
    )
    addresses = ["https://api.openai.com/v1"] if base_url is None else [base_url, None]
    for address in addresses:
        try:
            return float(calc_price(priced, model, provider_api_url=address).total_price)
        except (LookupError, ValueError):
            continue
    return None


def _is_private(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".localhost"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None
