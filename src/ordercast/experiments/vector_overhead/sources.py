"""The documents behind the study."""

BSS91 = "[BSS91] Birman, Schiper, Stephenson: Lightweight Causal and Atomic Group Multicast, ACM TOCS 9(3), 1991"
CB91 = "[CB91] Charron-Bost: Concerning the Size of Logical Clocks in Distributed Systems, IPL 39(1), 1991"
PC18 = (
    "[PC18] Nédelec, Molli, Mostéfaoui: Breaking the Scalability Barrier of Causal Broadcast for Large and Dynamic "
    "Networks, SRDS 2018"
)
