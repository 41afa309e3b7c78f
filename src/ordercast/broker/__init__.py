"""The broker: one machine made of small ones. docs/protocols/broker.md has the numbered rules (O1, S1, P1, ...)."""
