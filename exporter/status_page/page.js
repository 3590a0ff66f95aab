// Puts it together: what the driver says is shown, and what it no longer says is said.

const TICK = 500;
const STANDS_AFTER = 4000;
const CLOSING = 1500;
const KNOWN_THEN = "Below is what was known then.";

/** What is shown while the driver does not say that all of it is true now. */
const NOTICES = {
  closed: () => `The monitor was closed in good order: the job has ended, or let it go. ${KNOWN_THEN}`,
  silent: ({ watched }) => {
    const why = watched
      ? "It said no farewell: it was killed, is frozen, or is out of reach."
      : "It was closed or killed, is frozen, or is out of reach.";
    return `The driver does not answer. ${why} ${KNOWN_THEN}`;
  },
  odd: ({ detail }) =>
    `Something answers in place of the driver (${detail}): a proxy that does not reach it, or a login that has expired. ${KNOWN_THEN}`,
  standing: () =>
    `The monitor stands still: the driver answers, and nothing is judged any more. ${KNOWN_THEN}`,
};

class Page {
  constructor() {
    this.queries = new QueryList();
    this.alerts = new AlertList((name) => this.queries.reveal(name));
    this.monitor = new MonitorPanel();
    this.counts = new KeyedList(byId("counts"), ([state]) => countItem(state));
    this.driver = new Driver((found) => this.hear(found));
    this.connection = "asking";
    this.status = null;
    /** When this `status` was first seen, and when one was last heard: performance.now(). */
    this.seenAt = 0;
    this.heardAt = 0;
    this.closedAt = -Infinity;
  }

  start() {
    for (const path of ["status", "metrics", "readyz"]) byId(`link-${path}`).href = BASE + path;
    byId("token-form").addEventListener("submit", (event) => this.unlock(event));
    setInterval(() => this.tick(), TICK);
    this.driver.start();
  }

  hear(found) {
    const now = performance.now();
    if (found.kind === "status") this.heard(found.status, now);
    else if (found.kind === "closed") this.closed(now);
    else if (found.kind === "early") this.early();
    else if (found.kind === "locked") this.locked(found.refused);
    else this.lost(found);
    this.tick();
  }

  heard(status, now) {
    // A driver that has said farewell still answers for a moment.
    if (this.connection === "closed" && now - this.closedAt < CLOSING) return;
    const moved = this.status?.at !== status.at;
    if (moved) this.seenAt = now;
    this.heardAt = now;
    this.status = status;
    this.connect(now - this.seenAt >= STANDS_AFTER ? "standing" : "live");
    if (moved) this.show(status);
  }

  closed(now) {
    this.closedAt = now;
    this.connect("closed");
  }

  lost(found) {
    // Whoever has said farewell is not missed, by whatever stands where it was.
    if (this.connection !== "closed" && this.connection !== found.kind) this.connect(found.kind, found);
  }

  early() {
    this.connect("early");
    setText(byId("sentence"), "The monitor has just come: nothing has been looked at yet.");
  }

  locked(refused) {
    this.connect("locked");
    setText(byId("sentence"), "This driver asks for a token.");
    setText(byId("token-trouble"), refused ? "This token was refused." : "");
  }

  unlock(event) {
    event.preventDefault();
    setText(byId("token-trouble"), "");
    this.driver.unlock(byId("token").value);
    byId("token").value = "";
  }

  /** Say how we stand with the driver; `found` is what the words may need. */
  connect(connection, found = {}) {
    this.connection = connection;
    setAttribute(document.body, "data-connection", connection);
    setHidden(byId("token-form"), connection !== "locked");
    setHidden(byId("main"), this.status === null || connection === "locked" || connection === "early");
    const notice = NOTICES[connection];
    setAttribute(document.body, "data-stale", String(Boolean(notice)));
    setHidden(byId("notice"), !notice);
    setText(byId("notice-text"), notice ? notice(found) : "");
    this.entitle();
  }

  show(status) {
    setText(byId("app"), status.app);
    setText(byId("spark"), `Spark ${status.spark_version}`);
    setText(byId("sentence"), sentence(status.queries));
    const counts = countByState(status.queries);
    this.counts.update(counts.map(([state, count]) => [state, [state, count]]));
    this.alerts.update(status.alerts);
    this.queries.update(status.queries);
    this.monitor.update(status.monitor);
  }

  /** What passes by itself, from the server's figures and the time since we have them. */
  tick() {
    if (document.hidden || this.status === null) return;
    if (this.connection === "live") this.age(performance.now() - this.seenAt);
    const told = clock(new Date(Date.now() - (performance.now() - this.heardAt)).toISOString());
    setText(byId("freshness"), this.connection === "live" ? "live" : `as of ${told}`);
    const silence = (performance.now() - this.heardAt) / 1000;
    setText(byId("notice-age"), `Last heard at ${told}, ${age(silence)} ago.`);
  }

  age(milliseconds) {
    const now = Date.parse(this.status.at) + milliseconds;
    this.alerts.tick(now);
    this.queries.tick(milliseconds / 1000);
    this.monitor.tick(now, milliseconds / 1000);
  }

  /** The tab's title and icon: the worst state, or that nobody answers. */
  entitle() {
    const live = this.connection === "live";
    const worst = live ? counted(this.status.queries)[0]?.state : null;
    const app = this.status?.app ?? "querypulse";
    const title = live ? titleOf(this.status) : `${this.connection} · ${app}`;
    if (document.title !== title) document.title = title;
    setAttribute(byId("icon"), "href", iconOf(worst ?? (live ? "running" : "none")));
  }
}

function countItem(state) {
  const text = el("span");
  const node = el("li", { "data-state": state }, symbol(state), text);
  return { node, update: ([, count]) => setText(text, `${count} ${state}`) };
}

new Page().start();
