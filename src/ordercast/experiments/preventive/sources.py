"""The documents behind the studies, and what they report."""

PC18 = (
    "[PC18] Nédelec, Molli, Mostéfaoui: Breaking the Scalability Barrier of Causal Broadcast for Large and Dynamic "
    "Networks, SRDS 2018"
)
SPRAY = (
    "[SPRAY] Nédelec, Tanke, Frey, Molli, Mostéfaoui: An adaptive peer-sampling protocol for building networks of "
    "browsers, World Wide Web 21, 2018"
)
CB91 = "[CB91] Charron-Bost: Concerning the Size of Logical Clocks in Distributed Systems, IPL 39(1), 1991"

PC18_NODES, PC18_LATENCY_S = 10_000, 5.0
PC18_UNSAFE_ABOUT, PC18_LINKS_ABOUT = 3.0, 17.0
PC18_UNSAFE = (2.0, 4.0)
"""[PC18]: about 3 unsafe links at most, of about 17, with 10,000 processes, 5 s a hop and a change a minute."""
PC18_LINKS = (16.0, 19.0)
PROTOTYPE_DEGREE = {100: 8.4, 1_000: 13.0, 10_000: 17.0}
PROTOTYPE_PATH = {100: 2.3, 1_000: 3.0, 10_000: 3.5}
"""Of an independent prototype of the corrected protocol, one seed: links of a process, mean path over safe links."""
