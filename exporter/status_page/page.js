// Connects the parts: shows the driver's status, and says when it is no longer current.

const TICK = 500;
const STUCK_AFTER = 4000;
const CLOSING = 1500;
const LAST_STATUS = "Below is the last known status.";

/** The notices that are shown while the status is not current. */
const NOTICES = {
  closed: () => `The monitor was shut down: the job has ended or has closed it. ${LAST_STATUS}`,
  silent: ({ watched }) => {
    const why = watched
      ? "It sent no shutdown notice: it was killed, is frozen, or cannot be reached."
      : "It was shut down or killed, is frozen, or cannot be reached.";
    return `The driver does not answer. ${why} ${LAST_STATUS}`;
  },
  odd: ({ detail }) =>
    `Something answers in place of the driver (${detail}): a proxy that cannot reach it, or an expired login. ${LAST_STATUS}`,
  stuck: () =>
    `The monitor is stuck: the driver answers, but the queries are no longer evaluated. ${LAST_STATUS}`,
};

class Page {
  constructor() {
    this.queries = new QueryList();
    this.alerts = new AlertList((name) => this.queries.reveal(name));
    this.flow = new FlowTree((name) => this.queries.reveal(name));
    this.monitor = new MonitorPanel();
    this.incidents = new IncidentPanel();
    this.counts = new KeyedList(byId("counts"), ([state]) => countItem(state));
    this.driver = new Driver((found) => this.receive(found));
    this.connection = "asking";
    this.status = null;
    /** When this `status` was first seen, and when one was last received: performance.now(). */
    this.seenAt = 0;
    this.receivedAt = 0;
    this.closedAt = -Infinity;
  }

  start() {
    for (const path of ["status", "metrics", "readyz"]) byId(`link-${path}`).href = BASE + path;
    byId("token-form").addEventListener("submit", (event) => this.unlock(event));
    setInterval(() => this.tick(), TICK);
    this.driver.start();
  }

  receive(found) {
    const now = performance.now();
    if (found.kind === "status") this.received(found.status, now);
    else if (found.kind === "closed") this.closed(now);
    else if (found.kind === "early") this.early();
    else if (found.kind === "locked") this.locked(found.refused);
    else this.lost(found);
    this.tick();
  }

  received(status, now) {
    // A driver that is shutting down still answers for a moment.
    if (this.connection === "closed" && now - this.closedAt < CLOSING) return;
    const moved = this.status?.at !== status.at;
    if (moved) this.seenAt = now;
    this.receivedAt = now;
    this.status = status;
    this.connect(now - this.seenAt >= STUCK_AFTER ? "stuck" : "live");
    if (moved) this.show(status);
  }

  closed(now) {
    this.closedAt = now;
    this.connect("closed");
  }

  lost(found) {
    // After a shutdown notice, no answer or another server's answer is expected.
    if (this.connection !== "closed" && this.connection !== found.kind) this.connect(found.kind, found);
  }

  early() {
    this.connect("early");
    setText(byId("sentence"), "The monitor has just started: nothing has been evaluated yet.");
  }

  locked(refused) {
    this.connect("locked");
    setText(byId("sentence"), "This driver requires a token.");
    setText(byId("token-trouble"), refused ? "This token was refused." : "");
  }

  unlock(event) {
    event.preventDefault();
    setText(byId("token-trouble"), "");
    this.driver.unlock(byId("token").value);
    byId("token").value = "";
  }

  /** Show the state of the connection; `found` holds the details for its notice. */
  connect(connection, found = {}) {
    this.connection = connection;
    setAttribute(document.body, "data-connection", connection);
    setHidden(byId("token-form"), connection !== "locked");
    setHidden(byId("main"), this.status === null || connection === "locked" || connection === "early");
    const notice = NOTICES[connection];
    setAttribute(document.body, "data-stale", String(Boolean(notice)));
    setHidden(byId("notice"), !notice);
    setText(byId("notice-text"), notice ? notice(found) : "");
    this.setTitle();
  }

  show(status) {
    setText(byId("app"), status.app);
    setText(byId("spark"), `Spark ${status.spark_version}`);
    setText(byId("version"), status.version);
    setText(byId("labels"), Object.entries(status.labels).map((pair) => pair.join(" = ")).join(", "));
    setText(byId("sentence"), sentence(status));
    const counts = countByState(status.queries);
    this.counts.update(counts.map(([state, count]) => [state, [state, count]]));
    this.alerts.update(status.alerts);
    this.queries.update(status.queries);
    this.flow.update(status.queries);
    this.monitor.update(status.monitor, status.resources);
    this.incidents.update(status);
  }

  /** Update the figures that change with time, from the server's figures and their age. */
  tick() {
    if (document.hidden || this.status === null) return;
    if (this.connection === "live") this.age(performance.now() - this.seenAt);
    const silence = performance.now() - this.receivedAt;
    const last = clock(new Date(Date.now() - silence).toISOString());
    setText(byId("freshness"), this.connection === "live" ? "live" : `as of ${last}`);
    setText(byId("notice-age"), `Last answer at ${last}, ${age(silence / 1000)} ago.`);
  }

  age(milliseconds) {
    const now = Date.parse(this.status.at) + milliseconds;
    this.alerts.tick(now);
    this.queries.tick(milliseconds / 1000);
    this.monitor.tick(now, milliseconds / 1000);
  }

  /** Set the tab's title and icon: the worst state, or the connection's state. */
  setTitle() {
    const live = this.connection === "live";
    const app = this.status?.app ?? "querypulse";
    const title = live ? titleOf(this.status) : `${this.connection} · ${app}`;
    if (document.title !== title) document.title = title;
    setAttribute(byId("icon"), "href", iconOf(live ? iconStateOf(this.status) : "none"));
  }
}

function countItem(state) {
  const text = el("span");
  const node = el("li", { "data-state": state }, symbol(state), text);
  return { node, update: ([, count]) => setText(text, `${count} ${state}`) };
}

new Page().start();
