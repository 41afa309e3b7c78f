"""Tell people: verdicts, metrics and studies as terminal tables and self-contained pages. Nothing is computed here."""
