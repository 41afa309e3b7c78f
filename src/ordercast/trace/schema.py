"""The trace format in words: names, types and version. Imports nothing, so that Spark workers stay light."""

FORMAT = 1

MANIFEST = "run.json"
EVENTS = "events"
JOURNALS = "journals"
JOURNAL_SUFFIX = ".jsonl"
JOURNAL_END = "end"
"""The last line of a process that ended in good order. It is no event, and readers drop it."""

KINDS = (
    "publish",
    "deliver",
    "send",
    "receive",
    "subscribe",
    "unsubscribe",
    "join",
    "leave",
    "crash",
    "recover",
    "suspect",
    "link",
    "repair_start",
    "repair_end",
    "drop",
)

# Column, type (as pyarrow spells it), meaning. docs/trace-format.md is generated from this table.
COLUMNS = (
    ("run", "string", "run id"),
    ("node", "string", "where it happened"),
    ("seq", "int64", "position in that node's own history, from 0, no gaps; the only order a judge may trust"),
    ("kind", "string", "what happened: one of the kinds below"),
    ("time_ns", "int64", "virtual or monotonic time, in nanoseconds"),
    ("msg", "string", "message id, unique in the run"),
    ("topic", "string", "topic or group"),
    ("keys", "list<string>", "key items"),
    ("guarantee", "string", "guarantee of that message"),
    ("dst", "list<string>", "explicit destinations, where the message names them (atomic multicast)"),
    ("peer", "string", "the other end, for send and receive; whom, for suspect"),
    ("payload_bytes", "int32", "payload bytes on the wire"),
    ("header_bytes", "int32", "bytes on the wire that are not payload, framing included"),
    ("info", "map<string, string>", "anything else"),
)

# What each guarantee obliges a run to, as names of checks; a stronger one implies the weaker.
OBLIGES = {
    "eventual": ("integrity", "agreement"),
    "fifo": ("integrity", "agreement", "fifo"),
    "causal": ("integrity", "agreement", "fifo", "causal", "optimistic-causal"),
    "total": ("integrity", "agreement", "fifo", "causal", "optimistic-causal", "total"),
    "atomic": ("integrity", "agreement", "prefix", "acyclic"),
    "optimistic-causal": ("integrity", "optimistic-causal"),
}

# The info entries that the judge reads. On a `recover` row: whether the node came back with its state.
INFO_STATE = "state"
STATE_KEPT = "kept"
STATE_LOST = "lost"
# On the first row of a journal: what tells whether two processes read one clock, and the order scope of the broker.
INFO_BOOT = "boot"
INFO_ORDER_SCOPE = "order_scope"
# On a `subscribe` or `unsubscribe` row: it has begun and is not complete, so that messages may come and need not.
INFO_PENDING = "pending"
# On a `subscribe` row: it came with the whole past of its topic, so that everything ever published is owed; or, on a
# later row of a member: that is taken back, a part of the past is lost, and owed is what came since it is a member.
INFO_FROM = "from"
FROM_EVERYTHING = "everything"
FROM_MEMBERSHIP = "membership"
# Or: it counts from an earlier `subscribe` row on, whose topic is the filter that led to this one. That row has the
# filter here, too: it is owed every topic that the filter takes in and that it has no row of.
FROM_FILTER = "filter"
INFO_FILTER = "filter"
# On a `subscribe` row: whether what the node delivers of the topic from here on keeps the order (`no`: it may not).
INFO_ORDERED = "ordered"
ORDERED_NO = "no"
# On a `leave` row: the run ended for this node, which gave up no membership; or why the overlay had given it up.
INFO_END = "end"
INFO_LOST = "lost"
# On any row: a digest of the node's replica at that point; the last one of each live node is compared.
INFO_DIGEST = "digest"
# On a `publish` row of a client: when, in nanoseconds of the epoch by the wall clock of its machine. `time_ns` is not.
INFO_PUBLISHED = "published_ns"
