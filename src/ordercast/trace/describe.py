"""docs/trace-format.md, written from the schema: `python -m ordercast.trace.describe > docs/trace-format.md`."""

from __future__ import annotations

import sys

import msgspec

from ordercast.trace.schema import (
    COLUMNS,
    EVENTS,
    FORMAT,
    FROM_EVERYTHING,
    FROM_FILTER,
    FROM_MEMBERSHIP,
    INFO_BOOT,
    INFO_DIGEST,
    INFO_END,
    INFO_FILTER,
    INFO_FROM,
    INFO_LOST,
    INFO_ORDER_SCOPE,
    INFO_ORDERED,
    INFO_PENDING,
    INFO_PUBLISHED,
    INFO_STATE,
    JOURNAL_END,
    JOURNAL_SUFFIX,
    JOURNALS,
    KINDS,
    MANIFEST,
    OBLIGES,
    ORDERED_NO,
)
from ordercast.trace.store import Manifest

_KIND_MEANINGS = {
    "publish": "the application handed a message to its node; the row has its topic or destinations and guarantee",
    "deliver": "the node handed a message to its application",
    "send": "a packet left for a neighbour; without `msg` it is a control packet, whose type `info` names",
    "receive": "a packet from a neighbour reached the protocol",
    "subscribe": "from here on the node is a member of the topic",
    "unsubscribe": "from here on it is not",
    "join": "the node entered the overlay",
    "leave": f"the node left the overlay in good order; or the run ended for it (`info.{INFO_END}`), or its session "
    f"was given up (`info.{INFO_LOST}`)",
    "crash": "the process is gone",
    "recover": f"it is back; `info.{INFO_STATE}` says whether with its state (`kept`) or without (`lost`)",
    "suspect": "the failure detector of this node suspects `peer`",
    "link": "a link from this node to `peer` changed, in an overlay that chooses its links; `info.state` says what it "
    "is from here on: `pending`, `open`, `safe`, `retiring`, or `closed`",
    "repair_start": "the overlay began to route around a failure",
    "repair_end": "it is done",
    "drop": "a packet was lost on the way; `info.why` says how",
}

_FIELD_MEANINGS = {
    "format": "version of this format",
    "run_id": "the same as in the column `run`",
    "protocol": "name of the protocol that ran",
    "guarantee": "what the run claims: a guarantee, or `mixed`",
    "scope": "of causal order: `topic` or `global`",
    "order_scope": "of program order: all that one publisher published (`session`), or only what shares a key (`key`)",
    "seed": "of the simulation",
    "scenario": "name of the scenario",
    "nodes": "everyone who took part",
    "groups": "topic to members at the start; null: membership is in the events",
    "version": "of the program that wrote the run",
    "clock": "`global`: all times come from one clock; `local`: each node has its own",
    "drained": "whether the run ended with a fault-free drain that came to rest; null: nobody says",
    "genuine": "whether it claims that only the publisher and the destinations of a message take part",
    "uniform": "whether what a node that died or left had delivered is owed to everybody; false: only what was "
    "published or delivered by one that is there at the end",
    "leavers_pass_on": "where `uniform` is false: whether what a node that left had published or delivered is owed all "
    "the same, unless its `leave` says `info.lost`",
    "claims": "checks that the run claims beyond what its guarantees oblige it to: `total-topic`, `real-time`, "
    "`one-order`",
    "records": "`all` events, or only those of the application (`app`: no send, receive, drop)",
    "faults": "faults that fired, by kind",
    "totals": "counters of the whole run, also where `records` left the rows out",
    "options": "settings of the protocol",
    "crc32": "CRC-32 of each event file by its name; a file that it does not vouch for is read by a child process",
}

_JOURNALS = f"""\
## Journals of real processes

A run of real processes may have `{JOURNALS}/` instead of `{EVENTS}/`: files `NAME.LIFE{JOURNAL_SUFFIX}` of JSON lines,
one for each process and life. A line has the columns above without `run`, `node` (the file's NAME) and `seq` (its
place); what is null is left out, and `info` is an object. A torn last line is no row.

- The lives of a node are read in the order of their numbers. A life whose last line is neither `leave` nor the mark
  `{{"kind": "{JOURNAL_END}", "time_ns": ...}}` ended in a crash, at the time of its last line. `{JOURNAL_END}` is for a
  process that stops in good order: a member that stops so, and does not come back with its state, is given a `leave`
  with `info.{INFO_END}`. A client's `close()` says that it stayed, `close(stay=False)` that it left.
- A later life begins with a `recover` row; if it does not, one is put there. `info.{INFO_STATE}` of the first line says
  whether it had its state; lost, if nothing is said.
- Without a `{MANIFEST}` the run is taken for one of brokers: guarantee `mixed`, scope `topic`, order scope as the first
  lines say in `info.{INFO_ORDER_SCOPE}` (`session` if none does), clock `global` if `info.{INFO_BOOT}` is the same in
  all first lines, nothing known of a drain. The verdict says so. If everybody had everything when the processes were
  stopped, say `--complete`, or write a `{MANIFEST}` that says `drained`.

"""


def trace_format_page() -> str:
    """The page, complete. Fails on a kind or a field that nobody has described."""
    return (
        "\n".join(
            [
                *_introduction(),
                *_columns(),
                *_kinds(),
                *_manifest(),
                *_guarantees(),
                *_JOURNALS.splitlines(),
                *_foreign(),
            ]
        )
        + "\n"
    )


def _introduction() -> list[str]:
    return [
        "# Trace format",
        "",
        "<!-- Generated by `python -m ordercast.trace.describe`; edit that module, not this page. -->",
        "",
        f"A run is a directory: `{MANIFEST}` says what was run and what it claims, `{EVENTS}/*.parquet` what happened,",
        f"one row an event. This is format {FORMAT}. A reader refuses a newer format and ignores unknown columns.",
        "",
    ]


def _columns() -> list[str]:
    rows = [f"| `{name}` | `{type_}` | {meaning} |" for name, type_, meaning in COLUMNS]
    return ["## Events", "", "| column | type | meaning |", "| --- | --- | --- |", *rows, ""]


def _kinds() -> list[str]:
    rows = [f"| `{kind}` | {_KIND_MEANINGS[kind]} |" for kind in KINDS]
    digest = (
        f"Any row may carry `info.{INFO_DIGEST}`, a digest of the node's replica at that point; "
        "the last one of every live node is compared."
    )
    brokers = (
        "In a tree of brokers, `join` and `repair_end` rows of a broker carry `info.parent` (empty for the root), and "
        "`repair_end` also `rounds`, `role`, `term` and `election_ms`; a further `repair_end` with `info.phase` "
        "`synchronised` says that its topics are complete again. `subscribe` and `repair_end` rows of a client carry "
        "`info.broker`, its edge broker. `repair_start` says in `info.lost` who was lost."
    )
    pending = (
        f"A `subscribe` row with `info.{INFO_PENDING}` says that the node may get messages of the topic from here on; "
        "it is owed those that are published after a later row without. An `unsubscribe` row with it says that the "
        "node is owed nothing any more; nothing may come that is published after a later row without."
    )
    past = (
        f'A `subscribe` row with `info.{INFO_FROM} = "{FROM_EVERYTHING}"` says that the subscription came with the '
        "whole past of its topic, so that all of it is owed; one of a member with "
        f'`info.{INFO_FROM} = "{FROM_MEMBERSHIP}"` takes that back: what was published before the membership began is '
        f'owed no longer. One with `info.{INFO_FROM} = "{FROM_FILTER}"` is of a topic that began while the node '
        f"followed the filter in `info.{INFO_FILTER}`, which has a `subscribe` row of its own with the filter in the "
        "place of the topic: it is owed what was published since that one, unless it has left the topic in between. If "
        f"`info.{INFO_FILTER}` of a row is its topic, it is the row of a filter: owed is, too, what is published since "
        "then on topics that the filter takes in (`*`: any one segment; `>` at the end: one or more) and of which the "
        "node has no row."
    )
    ordered = (
        f"A `subscribe` row with `info.{INFO_ORDERED}` `{ORDERED_NO}` says that the node takes what it delivers of the "
        "topic as it comes; a later one with `yes` says that it keeps the order again. "
        "`optimistic-causal` and `one-order` leave out what is delivered in between; no other check does."
    )
    endings = (
        "How a node's part in the run ended is in its last `leave`. Without more, it gave its memberships up: what was "
        f"under way to it then may be missing. With `info.{INFO_END}`, the run ended for it and it stayed a member: it "
        f"is owed everything that was published before. With `info.{INFO_LOST}` (why, in words), the overlay gave its "
        "session up, or it went while publications of its own were not safe: it counts as dead, and what nobody got "
        "of what it published is owed to nobody. [Verification](verification.md#who-owes-what) says what follows."
    )
    carried = (
        f"The `publish` row of a client says in `info.{INFO_PUBLISHED}` when that was by the wall clock of its machine "
        "(nanoseconds of the epoch), and what the message carries: `header.NAME`, `expires_ns`, `dedup`, `reply_to`, "
        "`answers`, `parts`. A `deliver` row says that the message has taken its place in the node's order; one that "
        "had expired, or repeats a `dedup`, is not handed to the application."
    )
    told = [carried, "", digest, "", pending, "", past, "", ordered, "", endings, "", brokers, ""]
    return ["## Kinds of event", "", "| kind | what happened |", "| --- | --- |", *rows, "", *told]


def _manifest() -> list[str]:
    rows = [f"| `{name}` | {_FIELD_MEANINGS[name]} |" for name in Manifest.__struct_fields__]
    required = [
        f"`{field.name}`"
        for field in msgspec.structs.fields(Manifest)
        if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    ]
    needs = f"`format`, {', '.join(required[:-1])} and {required[-1]} must be there; the rest have defaults."
    return [f"## {MANIFEST}", "", "| field | meaning |", "| --- | --- |", *rows, "", needs, ""]


def _guarantees() -> list[str]:
    rows = [f"| `{name}` | {', '.join(f'`{check}`' for check in checks)} |" for name, checks in OBLIGES.items()]
    intro = "Each message is held to its own guarantee, and a guarantee to these checks:"
    return ["## What a guarantee obliges to", "", intro, "", "| guarantee | checks |", "| --- | --- |", *rows, ""]


def _foreign() -> list[str]:
    return [
        "## Traces of other programs",
        "",
        "The judge also reads files that other programs wrote, as people have them: `.parquet`, `.csv`, `.tsv`, and",
        "JSON as one event a line (`.jsonl`, `.ndjson`, `.json`) or as one array; text files may be compressed",
        "(`.csv.gz`) and may begin with a byte-order mark. A directory of such files is one trace, its files in the",
        "order of their names. Needed are `node`, `kind` (`publish` and `deliver`) and `msg`, and on the `publish`",
        "rows `topic` or `dst`; `seq`, `guarantee` and `keys` mean what they mean above. Without `seq`, the rows of a",
        "node happened in the order in which they stand in the files. With `topic` and no membership rows, a node",
        "that delivers anything of a topic counts as its subscriber from its first event; if no node ever delivers a",
        "message of its own, such deliveries are not asked for. The verdict says what was assumed; `--members FILE`,",
        "a JSON object of topics and lists of nodes, and `--own-deliveries yes|no` say otherwise, and `--complete`",
        "that nothing was under way at the end.",
    ]


if __name__ == "__main__":
    sys.stdout.write(trace_format_page())
