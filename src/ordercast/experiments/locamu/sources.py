"""The documents behind the studies of LoCaMu."""

LOCAMU = (
    "[S19] V. Santos: Localized Reliable Causal Multicast, MSc thesis, Instituto Superior Técnico, Universidade de "
    "Lisboa, 2019"
)
SHORT = "[S19]"
SCRIBE = (
    "[RKCD01] Rowstron, Kermarrec, Castro, Druschel: Scribe: The Design of a Large-Scale Event Notification "
    "Infrastructure, NGC 2001"
)
OURS = "Ordercast: of this implementation, not of a paper"
