"""The live page in a real Chromium: it draws, names who is slow, finds a message, publishes, and has no error.

Not part of the default suite, which must run where there is no browser: `make page-test`.
"""

from __future__ import annotations

import asyncio

import ordercast
from tests.support.browser import Tab, tab
from tests.support.doors import doors

READY = "typeof brokers === 'undefined' ? 0 : brokers.size"
SLOW = """
brokers.forEach(one => one.now.connections.push({peer: "sloth", kind: "client", queued: 2e5, came: 0, went: 0}));
drawTables();
document.getElementById("slow").textContent
"""
BUSY = """(() => {
  const at = [...brokers.keys()][0];
  for (let i = 0; i < 10000; i++)
    hops.push({us: clock - 800 * i, came: false, peer: "n" + i % 5, kind: "client", id: i, level: LEVELS[i % 4], at});
  const began = performance.now();
  for (let i = 0; i < 10; i++) drawSpace();
  return (performance.now() - began) / 10;
})()"""
OVERTAKEN = """(() => {
  const at = [...brokers.keys()][0], hop = (us, came, peer, id, level) =>
    unseen.push({us: clock - 5e6 + us, came, peer, kind: "client", id, level, wire: 9, at});
  hop(1, true, "ann", "ann/t#1", LEVEL); hop(2, true, "ann", "ann/t#2", LEVEL);
  hop(3, false, "cho", "ann/t#2", LEVEL); hop(4, false, "cho", "ann/t#1", LEVEL);
  judge();
  return document.getElementById("broken").textContent;
})()"""
TOLD = """(() => {
  log("b2", [1, 2000, "repair_end", {parent: "", role: "root", election_ms: "721.1"}]);
  log("b2", [2, 1000, "repair_start", {lost: "b0", why: "down"}]);
  log("b1", [3, 3000, "repair_end", {phase: "synchronised", topics: "4", received: "110", ms: "1937.4"}]);
  log("b1", [4, 500, "something", {new: "yes"}]);
  log("b0", [5, 400, "repair_start", {lost: "b0", why: "lease"}]);
  return [...document.getElementById("log").children].slice(-5).map(line => line.textContent.replace(/^.*?[AP]M /, ""));
})()"""
WAITING = """(() => {
  const roster = ["ann~1", "cho~1"];
  const topic = (blockers, log) => ({log, blockers, pending: 1, held: 1, members: [], roster, flow_open: true});
  const [one] = [...brokers.values()];
  const fake = (id, blockers, log) => {
    const now = {...one.now, id, connections: [], topics: {orders: topic(blockers, log)}};
    brokers.set(id, {heard: Date.now(), now});
  };
  fake("x0", ["x1"], 7); fake("x1", ["cho~29122.1.277.x1"], 5);
  drawTables();
  return [...document.querySelectorAll("#topics tr")].slice(1).map(row => [...row.cells].map(cell => cell.textContent));
})()"""
CLIENT = """(async () => {
  const { Ordercast } = await import("/ordercast.js");
  const bus = new Ordercast(`ws://${location.host}/socket`), got = [];
  await bus.subscribe("orders.*", message => got.push([message.topic, message.text, message.guarantee, message.keys]));
  const id = await bus.publish("orders.PT", "one book", { guarantee: "total", key: "shelf-7" });
  const refused = await bus.publish("orders..PT", "x").catch(error => error.message);
  while (!got.length) await new Promise(done => setTimeout(done, 50));
  await bus.unsubscribe("orders.*");
  bus.close();
  return [got, id.includes("/orders.PT#"), refused];
})()"""
INK = """(() => {
  const tree = document.getElementById("tree");
  const seen = tree.getContext("2d").getImageData(0, 0, tree.width, tree.height).data;
  return seen.some((value, at) => at % 4 === 3 && value > 0);
})()"""


async def press(page: Tab, form: str, **fields: str) -> None:
    for name, value in fields.items():
        await page.value(f"document.getElementById({name!r}).value = {value!r}")
    await page.value(f"document.getElementById({form!r}).requestSubmit()")


def test_the_page_draws_publishes_finds_and_names_the_slow_client() -> None:
    async def look() -> None:
        async with doors() as opened, tab(f"http://{opened.web.address}/") as page:
            await page.until(READY)
            await press(page, "pub", topic="orders", text="hello")
            said = await page.until("document.getElementById('published').textContent")
            message = said.partition('"id":"')[2].partition('"')[0]
            assert message, said

            await press(page, "find", msg=message)
            found = await page.until("document.getElementById('found').textContent")
            assert found.startswith(f"{opened.process.host.me.name}: "), found
            assert await page.until("document.getElementById('studied').textContent")
            assert await page.until(INK)
            assert "sloth" in await page.value(SLOW)
            print(f"10,000 arrows are drawn in {await page.value(BUSY):.1f} ms")
            assert page.complaints == []

    asyncio.run(look())


def test_the_page_draws_what_led_to_a_message_and_what_it_led_to() -> None:
    async def look() -> None:
        async with (
            doors() as opened,
            tab(f"http://{opened.web.address}/") as page,
            ordercast.connect(opened.broker, client_id="ann") as ann,
            ordercast.connect(opened.broker, client_id="bob") as bob,
            ordercast.connect(opened.broker, client_id="cho") as cho,
        ):
            await page.until(READY)
            inbox, others = await bob.subscribe("orders"), await cho.subscribe("other")
            cause = await ann.publish("orders", b"why?")
            aside = await cho.publish("other", b"by the way")
            assert (await inbox.get(20)).id == cause
            effect = await bob.publish("orders", b"because")
            await others.get(20)
            await page.until(
                f"hops.filter(hop => hop.id === {effect!r}).length > 1 && hops.some(hop => hop.id === {aside!r})"
            )

            await press(page, "find", msg=effect)
            assert await page.until("study && [[...study.past], [...study.future]]") == [[cause], []]
            assert cause in await page.value("document.getElementById('studied').textContent")
            await press(page, "find", msg=cause)
            assert await page.until("study && [[...study.past], [...study.future]]", lambda told: told[0] == []) == [
                [],
                [effect],
            ]
            await press(page, "find", msg="")
            assert await page.value("study") is None
            assert page.complaints == []

    asyncio.run(look())


def test_the_page_names_a_message_that_came_after_one_that_followed_it() -> None:
    async def look() -> None:
        async with doors() as opened, tab(f"http://{opened.web.address}/") as page:
            await page.until(READY)
            assert await page.value(OVERTAKEN.replace("LEVEL", "'eventual'").replace("/t#", "/unordered#")) == ""
            said = await page.value(OVERTAKEN.replace("LEVEL", "'fifo'"))
            assert said.startswith("Order broken at cho: ann/t#1 came after ann/t#2"), said
            assert page.complaints == []

    asyncio.run(look())


def test_a_page_whose_broker_ends_says_so() -> None:
    async def look() -> None:
        async with doors() as opened:
            browser = tab(f"http://{opened.web.address}/")
            page = await browser.__aenter__()
            await page.until(READY)
        try:
            await page.until("document.getElementById('state').className", lambda kind: kind == "bad")
        finally:
            await browser.__aexit__(None, None, None)

    asyncio.run(look())


def test_the_page_tells_what_happened_in_words_and_in_the_order_in_which_it_happened() -> None:
    async def look() -> None:
        async with doors() as opened, tab(f"http://{opened.web.address}/") as page:
            await page.until(READY)
            assert await page.value(TOLD) == [
                "b1 has caught up: 4 topics, 110 messages that it had missed, in 1,937 ms",
                "b2 is the new root after 721 ms",
                "b2 has lost b0 (down) and looks for a new place in the tree",
                "b1 something new yes",
                "b0 may not be the root any longer (lease)",
            ]
            assert page.complaints == []

    asyncio.run(look())


def test_a_topic_is_shown_once_with_the_client_that_a_total_waits_for() -> None:
    """The root knows only the broker that has not answered; that one knows its client."""

    async def look() -> None:
        async with doors() as opened, tab(f"http://{opened.web.address}/") as page:
            await page.until(READY)
            assert await page.value(WAITING) == [["ordersa total waits for cho", "2", "7", "1", "2"]]
            assert page.complaints == []

    asyncio.run(look())


def test_the_javascript_client_subscribes_publishes_and_says_what_is_refused() -> None:
    async def look() -> None:
        async with doors() as opened, tab(f"http://{opened.web.address}/") as page:
            await page.ask("Page.setBypassCSP", enabled=True)  # The live page itself may load no other script.
            await page.ask("Page.navigate", url=f"http://{opened.web.address}/")
            await page.until(READY)
            got, published, refused = await page.value(CLIENT)
            assert (got, published) == ([["orders.PT", "one book", "total", ["shelf-7"]]], True)
            assert "empty segment" in refused

    asyncio.run(look())
