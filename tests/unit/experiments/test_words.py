"""Abbreviations are resolved on the page that uses them."""

from __future__ import annotations

import msgspec

from ordercast.experiments.kit.study import Study
from ordercast.experiments.kit.words import words_of
from tests.unit.experiments.test_study import a_study

STUDY = a_study()
WITH_WORDS: Study = msgspec.structs.replace(STUDY, words={"B": "brokers"})


def test_common_abbreviations_are_explained_where_they_are_said() -> None:
    assert list(words_of(STUDY, ["n = 3 runs a point.", "7 ± 2 ms", "latency_ms_p99"])) == ["n", "±", "p50, p95, p99"]
    assert list(words_of(STUDY, ["line, R² 0.9", "12 B"])) == ["R²", "B"]
    assert words_of(STUDY, ["nothing of the kind"]) == {}


def test_what_a_study_says_of_its_own_words_goes_before() -> None:
    assert words_of(WITH_WORDS, ["12 B"]) == {"B": "brokers"}
