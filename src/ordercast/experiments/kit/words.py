"""Words that every study may use, so that none has to explain them by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ordercast.experiments.kit.study import Study

_COMMON = {
    "n": (r"\bn = ", "the number of different runs, or other observations, behind a point or a number"),
    "±": ("±", "half of the 95 % confidence interval; nothing where there was one observation"),
    "R²": ("R²", "share of the variance that a line explains; 1: all points are on it"),
    "B": (r"\d B\b", "bytes"),
    "p50, p95, p99": (r"_p\d\d", "what 50, 95, 99 % of the values are no larger than"),
}
"""Word to how it is found in a text, and what it stands for."""


def words_of(study: Study, texts: Iterable[str]) -> dict[str, str]:
    """The study's own words, and the common ones that its page says."""
    said = "\n".join(texts)
    common = {word: told for word, (pattern, told) in _COMMON.items() if re.search(pattern, said)}
    return {**study.words, **{word: told for word, told in common.items() if word not in study.words}}
