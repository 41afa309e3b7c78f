"""Kept topics: what is stable is written to an archive that anybody may replay. Rules ARC-1 to ARC-9."""
