"""The document behind the studies."""

GINGER = (
    "[Ginger] P. C. Leite de Matos: Fault-tolerant publish-subscribe system with multiple delivery guarantees, "
    "NOVA University Lisbon, 2024"
)
SHORT = "[Ginger] Leite de Matos, 2024"
"""For every single claim; the study names it in full."""
