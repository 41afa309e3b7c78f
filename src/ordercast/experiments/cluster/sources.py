"""The documents behind the studies, and the words that they use."""

LCC05 = "[LCC05] Lightweight Causal Cluster Consistency, Chalmers University of Technology, technical report 2005-09"
P2P05 = "[P2P05] Dynamic and fault-tolerant cluster management, IEEE P2P 2005 (its abstract)"

WORDS = {
    "[LCC05]": f"{LCC05}. Its figures were not legible to us: settings are ours where docs/experiments.md says so",
    "updater": "a member that makes updates: a coordinator, which owns an entry of the vector",
    "round": "all members gossip once; every time-out is a number of rounds",
    "fanout": "how many members a member gossips with in a round",
    "gossip": "no order at all: updates are delivered as they come",
    "none, source, k": "the ordered layer without recovery; with recovery from the maker of an update; from k "
    "arbitrary members",
    "digest": "what a member says it has, so that others see what they miss",
    "attempt": "one missing update that one member asks others for; it succeeds if the member delivers the update",
    "loss": "pairs of an update and a member that lived through the run, where the member never delivers the update",
}
ENTRY_WORDS = {
    "entry": "a place in the vector of a cluster; who owns one may make updates, and is a coordinator",
    "lease": "how long an entry is owned, unless it is renewed",
    "manager": "a member that looks after entries: it takes more than half of an entry's managers to own it",
}
