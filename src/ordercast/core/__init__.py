"""The shared words: ids, messages, guarantees, machines and what they ask of the world. Imports nothing of ours."""
