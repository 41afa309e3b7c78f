"""Which part of the topics half handles which packet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ordercast.broker.topics.parts import TopicsParts
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.pubsub import client_packets as c
from ordercast.pubsub import topic_packets as t

Handler = Callable[[Connection, Any], None]


def client_handlers(parts: TopicsParts) -> dict[type[Packet], Handler]:
    """By the type of what a client sends."""

    def with_client(act: Callable[[AttachedClient, Any], None]) -> Handler:
        return lambda sender, packet: act(parts.clients[sender], packet)

    def published(sender: Connection, packet: c.Entries) -> None:
        node = parts.nodes.get(packet.topic)
        if node is not None:
            if not node.flow_open:
                parts.budgets.check(node, parts.clients[sender])
            parts.ordering.publish(node, parts.clients[sender], packet)

    members = parts.members
    return {
        c.Subscribe: with_client(members.subscribe),
        c.Resume: with_client(members.resume),
        c.Sealed: with_client(members.sealed),
        c.Unsubscribe: with_client(parts.leaving.unsubscribe),
        c.Entries: published,
        c.StableReport: with_client(parts.stability.reported),
        c.Goodbye: with_client(parts.endings.goodbye),
        c.Watch: with_client(parts.following.watch),
        c.Unwatch: with_client(parts.following.unwatch),
        c.AskCopies: with_client(parts.serving.asked_for_copies),
        c.AskCut: with_client(parts.cuts.ask),
        c.LookFor: with_client(parts.looking.look),
        c.LookNoMore: with_client(parts.looking.unlook),
    }


def link_handlers(parts: TopicsParts) -> dict[type[Packet], Handler]:
    """By the type of what a neighbour in the tree sends; what does not come from where it must is dropped."""

    def on_channel(act: Callable[[TopicNode, Connection, Any], None], *, down_only: bool = False) -> Handler:
        def handle(sender: Connection, packet: Any) -> None:
            node = parts.nodes.get(packet.topic)
            if node is not None and parts.channels.accepts(node, sender) and not (
                down_only and sender not in node.down
            ):  # fmt: skip
                act(node, sender, packet)

        return handle

    def from_child(act: Callable[[Any], None]) -> Handler:
        return lambda sender, packet: act(packet) if sender in parts.tree.children else None

    def from_parent(act: Callable[[Any], None]) -> Handler:
        return lambda sender, packet: act(packet) if sender == parts.tree.parent else None

    def entries(sender: Connection, packet: c.Entries) -> None:
        node = parts.nodes.get(packet.topic)
        if node is not None and parts.channels.accepts(node, sender):
            parts.channels.received(parts.ordering.take(node, sender, packet, link=True))

    channels, relaying = parts.channels, parts.relaying
    return {
        c.Entries: entries,
        t.OpenTopic: channels.child_opens,
        t.TopicBuffer: channels.parent_answers,
        t.Prepare: on_channel(parts.ordering.prepare),
        t.SyncEnd: channels.sync_ended,
        t.TopicClose: channels.child_closes,
        t.TopicClosed: channels.closed_by_parent,
        t.Grounded: channels.child_grounded,
        t.TopicReset: channels.parent_resets,
        t.TotalAck: on_channel(parts.ordering.acknowledged, down_only=True),
        t.MemberReport: on_channel(relaying.reported, down_only=True),
        t.AttachRequest: from_child(relaying.request),
        t.AttachGranted: relaying.relay_answer,
        t.AttachDenied: relaying.relay_answer,
        t.MemberGone: from_child(parts.members.tell_gone),
        t.RosterUpdate: from_parent(parts.waves.begin),
        t.RosterAck: parts.waves.acknowledged,
        t.RosterSync: lambda sender, packet: parts.learn(packet, sender),
        t.FoldRound: from_parent(parts.folding.asked),
        t.FoldAnswer: parts.folding.answered,
        t.CutRequest: from_child(parts.cuts.relay),
        t.CutReply: from_parent(parts.cuts.answer),
        t.Absent: from_parent(parts.absence.told),
        t.StableVote: on_channel(parts.stability.voted, down_only=True),
        t.BaseUpdate: on_channel(parts.stability.base_told),
        t.Held: on_channel(parts.copies.told),
        t.HeldAsk: on_channel(parts.copies.asked),
        t.Reach: parts.copies.reached,
        t.Keep: from_parent(channels.keep),
        t.KeepNews: lambda sender, packet: parts.archive.learn(packet, sender),
    }
