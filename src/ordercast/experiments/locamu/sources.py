"""The documents behind the studies of LoCaMu."""

LOCAMU = (
    "[S19] V. Santos: Localized Reliable Causal Multicast, MSc thesis, Instituto Superior Técnico, Universidade de "
    "Lisboa, 2019"
)
SHORT = "[S19]"
WORDS = {
    "LoCaMu": "Localized Causal Multicast, the source's protocol",
    "Delta-Neighbourhood": "FIFO multicast of the same source that waits for a whole neighbourhood",
    "CBCAST, Causal Barriers": "causal multicast with vector clocks; with lists of what must come first",
    "f": "how many neighbouring nodes may be down together",
    "degree": "neighbours that a node of the tree has",
    "published, corrected radii": "how far neighbourhoods reach: as the source says, and as is needed",
    "source's sizes (model), our encoding (wire)": "bytes as the source counts them, four a node or number; bytes on "
    "the wire",
    "metadata": "bytes of a copy of a message beside its payload",
    "K1 to K14": "claims of the source",
    "P1 to P6": "promises of LoCaMu in its specification here: order, nothing twice, completeness, locality",
    "prototype": "an independent implementation; sizes measured, capacities computed from them",
    "n": "the number of different runs behind a point; without chance in a run, seeds do not make different ones",
    "[S19]": "the source",
}
