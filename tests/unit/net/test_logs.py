"""Log records of the TCP runtime."""

from __future__ import annotations

import json
import logging

from ordercast.net.json_logs import JsonLines


def test_a_log_record_is_one_line_of_json_with_its_facts() -> None:
    record = logging.LogRecord("ordercast.net", logging.WARNING, __file__, 1, "closed", None, None)
    record.facts = {"peer": "n1", "reason": "silent\nfor long"}
    line = JsonLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["level"], read["event"], read["peer"]) == ("warning", "closed", "n1")
    assert read["reason"] == "silent\nfor long"
