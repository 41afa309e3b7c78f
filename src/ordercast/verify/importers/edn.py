"""A reader of the part of EDN that histories are written in: maps, vectors, lists, sets, keywords, numbers, text."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r'[\s,]*(?:;[^\n]*\n[\s,]*)*(#\{|#[\w./-]+|[\[\](){}]|"(?:\\.|[^"\\])*"|[^\s,\[\](){}";]+)')
_CLOSE = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_WORDS = {"nil": None, "true": True, "false": False}
_DEEPEST = 50


class EdnError(ValueError):
    """Text that is not EDN, with what is wrong with it."""


def parse(text: str) -> Any:
    """The one value in `text`. Keywords are text that begins with a colon; a tag is dropped."""
    tokens = _TOKEN.findall(text)
    if _TOKEN.sub("", text).strip(" \t\r\n,"):
        raise EdnError("something in it is no word")
    value, rest = _value(tokens, 0, 0)
    if rest != len(tokens):
        raise EdnError(f"{tokens[rest]!r} after its end")
    return value


def _value(tokens: list[str], at: int, depth: int) -> tuple[Any, int]:
    if at >= len(tokens):
        raise EdnError("it ends too early")
    if depth > _DEEPEST:
        raise EdnError("it is nested too deeply")
    token = tokens[at]
    if token in _CLOSE:
        return _several(tokens, at, depth)
    if token in (")", "]", "}"):
        raise EdnError(f"{token!r} closes nothing")
    if token.startswith("#"):
        return _value(tokens, at + 1, depth + 1)
    if token.startswith('"'):
        return token[1:-1].replace('\\"', '"').replace("\\\\", "\\"), at + 1
    return _atom(token), at + 1


def _several(tokens: list[str], at: int, depth: int) -> tuple[Any, int]:
    opened, close = tokens[at], _CLOSE[tokens[at]]
    values = []
    at += 1
    while at < len(tokens) and tokens[at] != close:
        value, at = _value(tokens, at, depth + 1)
        values.append(value)
    if at >= len(tokens):
        raise EdnError(f"{opened!r} is never closed")
    if opened != "{":
        return values, at + 1
    if len(values) % 2:
        raise EdnError("a map has a key without a value")
    keys = [tuple(key) if isinstance(key, list) else key for key in values[::2]]
    try:
        return dict(zip(keys, values[1::2], strict=True)), at + 1
    except TypeError:
        raise EdnError("a map has a key that is no word") from None


def _atom(token: str) -> Any:
    if token in _WORDS:
        return _WORDS[token]
    number = token.rstrip("NM")
    try:
        return int(number) if re.fullmatch(r"[+-]?\d{1,30}", number) else float(number)
    except ValueError:
        return token
