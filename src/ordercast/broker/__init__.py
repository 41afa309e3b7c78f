"""The broker: one machine made of small ones. Its rules (BRK-O1, BRK-S1, ...) are in docs/protocols/broker.md."""
