// Ordercast for browsers and Node: one WebSocket, opened again when it is lost. No dependencies.
//   const bus = new Ordercast("ws://127.0.0.1:8080/socket", { user: "shop", token: "..." });
//   await bus.subscribe("orders.*", message => console.log(message.topic, message.text));
//   const id = await bus.publish("orders.PT", "one book", { guarantee: "total", key: "shelf-7" });
// publish returns when two brokers hold the message. One that was under way when the connection was lost is rejected: it
// may have arrived or not. Subscriptions are made again; what was published in between is missed, unless the topic is kept
// and the subscription says from where ({ from: "earliest" } comes whole again).
export class Ordercast {
  constructor(url, { user = "", token = "", onstate = () => {} } = {}) {
    if (typeof WebSocket === "undefined") throw new Error("no WebSocket here: Node 22 has one, Node 20 with --experimental-websocket");
    Object.assign(this, { url, user, token, onstate, refs: 0, pause: 250 });
    this.waiting = new Map(); // ref -> { resolve, reject }
    this.subscriptions = new Map(); // topic -> { callback, options }
    this.open();
  }
  open() {
    this.socket = new WebSocket(this.url);
    this.ready = new Promise((resolve, reject) => {
      this.socket.onopen = () => this.order("hello", { user: this.user, token: this.token }).then(resolve, reject);
      this.waiting.set("ready", { resolve: () => {}, reject });
    });
    this.ready.then(() => { this.pause = 250; this.onstate("connected"); this.again(); }, () => {});
    this.socket.onmessage = event => this.heard(JSON.parse(event.data));
    this.socket.onclose = event => this.lost(event.reason || "the connection is lost");
  }
  async again() {
    for (const [topic, { options }] of this.subscriptions) await this.order("subscribe", { topic, ...options }).catch(() => {});
  }
  lost(reason) {
    for (const { reject } of this.waiting.values()) reject(new Error(reason));
    this.waiting.clear();
    this.onstate("lost", reason);
    if (!this.closed) setTimeout(() => this.open(), this.pause = Math.min(2 * this.pause, 5000));
  }
  heard(said) {
    if (said.op === "message") return this.subscriptions.get(said.subscription)?.callback(said);
    const { resolve, reject } = this.waiting.get(said.ref) ?? {};
    this.waiting.delete(said.ref);
    if (said.op === "error") reject?.(new Error(said.reason)); else resolve?.(said);
  }
  order(op, fields) {
    return new Promise((resolve, reject) => {
      this.waiting.set(++this.refs, { resolve, reject });
      this.socket.send(JSON.stringify({ op, ref: this.refs, ...fields }));
    });
  }
  async publish(topic, text, options = {}) {
    await this.ready;
    return (await this.order("publish", { topic, text, ...options })).id;
  }
  async subscribe(topic, callback, options = {}) {
    await this.ready;
    await this.order("subscribe", { topic, ...options });
    this.subscriptions.set(topic, { callback, options });
  }
  async unsubscribe(topic) { this.subscriptions.delete(topic); await this.order("unsubscribe", { topic }); }
  close() { this.closed = true; this.socket.close(); }
}
