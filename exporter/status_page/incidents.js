// The incidents of the last thirty days: a strip of time, and the newest as a table.

const DAY = 86400;
const DAYS = 30;
const NEWEST = 10;
const REFRESH = 60000;
const STORE_PATIENCE = 6000;
const STRIP_ROWS = 3;
/** Marks that are closer, as a share of the strip, lie below each other. */
const STRIP_GAP = 0.016;
const TICK_DAYS = 5;
/** The shapes of severities, as in the page of an incident (`recording/picture.py`). */
const MARKS = {
  critical: "M5 1.5H11L14.5 5V11L11 14.5H5L1.5 11V5ZM5.5 5.5L10.5 10.5M10.5 5.5L5.5 10.5",
  warning: "M8 2L15 14H1ZM8 6.5V9.5M8 11.7V11.8",
};
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const COUNTED = { 0: "No incident", 1: "1 incident" };

const inSeconds = (iso) => Date.parse(iso) / 1000;
const isoOf = (unix) => new Date(unix * 1000).toISOString();

/** What was recorded, read again every minute and whenever the open alerts change. */
class IncidentPanel {
  constructor() {
    this.strip = byId("strip");
    this.marks = new KeyedList(this.strip, (incident) => stripMark(incident));
    this.rows = new KeyedList(byId("incidents"), (incident) => incidentRow(incident));
    this.strip.addEventListener("keydown", (event) => this.walk(event));
    this.askedAt = -Infinity;
    this.alerts = "";
  }

  /** @param status the newest one: it says what time it is, and whether something has changed */
  update(status) {
    this.now = inSeconds(status.at);
    const alerts = JSON.stringify(status.alerts.map((alert) => [alert.labels, alert.starts_at]));
    const isDue = performance.now() - this.askedAt > REFRESH;
    if (!isDue && alerts === this.alerts) return;
    this.alerts = alerts;
    this.refresh();
  }

  async refresh() {
    this.askedAt = performance.now();
    try {
      const response = await get("incidents", STORE_PATIENCE);
      const answer = await response.json();
      if (response.ok && Array.isArray(answer)) this.show(answer);
      else if (response.status === 404) this.show(null);
      else this.trouble(answer.error ?? `HTTP ${response.status}`);
    } catch {
      this.trouble("no answer");
    }
  }

  /** @param {object[]|null} incidents the newest first; null where nothing is recorded */
  show(incidents) {
    setHidden(byId("incidents-section"), incidents === null);
    setHidden(byId("link-incidents"), incidents === null);
    if (incidents === null) return;
    const count = COUNTED[incidents.length] ?? `${incidents.length} incidents`;
    setText(byId("link-incidents"), "incidents");
    setText(byId("incidents-count"), `${count} in the last thirty days.`);
    setText(byId("incidents-trouble"), "");
    setHidden(byId("strip-box"), !incidents.length);
    setHidden(byId("incidents-box"), !incidents.length);
    this.place([...incidents].reverse());
    const newest = incidents.slice(0, NEWEST);
    this.rows.update(newest.map((incident) => [incident.id, { ...incident, now: this.now }]));
  }

  trouble(words) {
    setText(byId("incidents-trouble"), `The incidents cannot be shown: ${words}.`);
    if (byId("incidents-section").hidden) setText(byId("incidents-count"), "");
    setHidden(byId("incidents-section"), false);
  }

  /** @param {object[]} incidents the oldest first */
  place(incidents) {
    const begin = this.now - DAYS * DAY;
    const share = (at) => Math.min(1, Math.max(0, (at - begin) / (DAYS * DAY)));
    const free = [];
    const placed = incidents.map((incident) => {
      const [since, until] = [share(incident.since), share(incident.until ?? this.now)];
      const row = free.findIndex((from) => from <= since);
      const line = Math.min(row < 0 ? free.length : row, STRIP_ROWS - 1);
      free[line] = Math.max(free[line] ?? 0, until, since) + STRIP_GAP;
      return [incident.id, { ...incident, x: since, wide: Math.max(0, until - since), line }];
    });
    this.marks.update(placed);
    this.strip.style.setProperty("--lines", String(Math.max(1, free.length)));
    this.ticks(begin, share);
    this.enter(this.strip.querySelector('[tabindex="0"]') ?? this.strip.querySelector("li:last-child a"));
  }

  ticks(begin, share) {
    const first = Math.ceil(begin / DAY) * DAY;
    const days = [];
    for (let at = first; at < this.now; at += TICK_DAYS * DAY) days.push(at);
    const ticks = days.map((at) => {
      const tick = el("span", {}, DATE.format(new Date(at * 1000)));
      tick.style.setProperty("--x", share(at).toFixed(4));
      return tick;
    });
    byId("strip-ticks").replaceChildren(...ticks);
  }

  /** The strip is one stop of the Tab key; the arrow keys move along it. */
  walk(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const links = [...this.strip.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + step];
    if (!step || !next) return;
    event.preventDefault();
    this.enter(next);
    next.focus();
  }

  enter(link) {
    for (const other of this.strip.querySelectorAll("a")) setAttribute(other, "tabindex", "-1");
    if (link) setAttribute(link, "tabindex", "0");
  }
}

function stripMark({ id, severity }) {
  const bar = el("span", { class: "span" });
  const link = incidentLink(id, severityMark(severity));
  const node = el("li", { "data-severity": severity }, bar, link);
  const update = (incident) => {
    const words = `${clock(isoOf(incident.since))}, ${severity}: ${incident.headline}`;
    setAttribute(link, "aria-label", words);
    setAttribute(link, "title", words);
    node.style.setProperty("--x", incident.x.toFixed(4));
    node.style.setProperty("--wide", incident.wide.toFixed(4));
    node.style.setProperty("--line", String(incident.line));
  };
  return { node, update };
}

function incidentRow({ id, severity }) {
  // On a phone a row is a card, which is a part of a table only by its role.
  const [since, lasted, query, how] = [0, 1, 2, 3].map(() => el("td", { role: "cell" }));
  const link = incidentLink(id);
  const badge = el("span", { class: "unseen" }, `${severity}: `);
  const what = el("td", { role: "cell", "data-severity": severity }, severityMark(severity), badge, link);
  const node = el("tr", { role: "row" }, since, lasted, query, what, how);
  const update = (incident) => {
    setText(since, clock(isoOf(incident.since)));
    setText(lasted, lastedWords(incident));
    setText(query, incident.query === "*" ? "the driver" : incident.query);
    setText(link, incident.headline);
    setText(how, incident.how);
  };
  return { node, update };
}

function lastedWords({ since, until, how, now }) {
  if (until !== null) return age(until - since);
  return how === "open" ? `${age(now - since)} so far` : UNKNOWN;
}

function severityMark(severity) {
  const svg = symbol("");
  setAttribute(svg.firstChild, "d", MARKS[severity] ?? MARKS.warning);
  return svg;
}

/** A link to the page of an incident; with a token, the script has to fetch that page. */
function incidentLink(id, ...children) {
  const path = `incidents/${encodeURIComponent(id)}.html`;
  const link = el("a", { href: BASE + path, target: "_blank", rel: "noopener" }, ...children);
  link.addEventListener("click", (event) => {
    if (sessionStorage.getItem(TOKEN) === null) return;
    event.preventDefault();
    openWithToken(path);
  });
  return link;
}

async function openWithToken(path) {
  const response = await get(path, STORE_PATIENCE).catch(() => null);
  if (!response?.ok) {
    const why = response === null ? "no answer" : `HTTP ${response.status}`;
    setText(byId("incidents-trouble"), `The incident cannot be shown: ${why}.`);
    return;
  }
  const address = URL.createObjectURL(new Blob([await response.text()], { type: "text/html;charset=utf-8" }));
  window.open(address, "_blank");
}
