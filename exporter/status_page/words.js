// Texts for states, ages, numbers and the summary sentence. Pure.

/**
 * Every state, worst first, as in `exporter/published_state.py`: the words for one query in it,
 * and for several.
 */
const STATES = {
  failed: ["has failed", "have failed"],
  missing: ["is missing", "are missing"],
  stopped_unexpectedly: ["stopped unexpectedly", "stopped unexpectedly"],
  stalled: ["is stalled", "are stalled"],
  flapping: ["is flapping", "are flapping"],
  rewound: ["was rewound", "were rewound"],
  slow: ["is slow", "are slow"],
  lagging: ["is lagging", "are lagging"],
  watermark_stuck: ["has a stuck watermark", "have a stuck watermark"],
  waiting: ["is waiting", "are waiting"],
  idle: ["is idle", "are idle"],
  running: ["is running", "are running"],
  starting: ["is starting", "are starting"],
  stopped: ["was stopped", "were stopped"],
  completed: ["has completed", "have completed"],
};
const ORDER = Object.keys(STATES);
const HEALTHY = new Set(["waiting", "idle", "running", "completed"]);
const OVER = new Set(["failed", "missing", "stopped_unexpectedly", "stopped", "completed"]);
const NAMED = 4;
const UNKNOWN = "–";

/** @param {string} state @returns {number} its position; an unknown state comes first */
function badness(state) {
  return ORDER.indexOf(state);
}

/** @param {number|null} seconds @returns {string} such as "75 s" or "3 h 20 min" */
function age(seconds) {
  if (seconds === null) return UNKNOWN;
  if (seconds < 120) return `${Math.floor(Math.max(0, seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

/** @param {number|null} seconds @returns {string} how long something took, such as "640 ms" */
function duration(seconds) {
  if (seconds === null) return UNKNOWN;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 9.95 ? `${(Math.round(seconds * 10) / 10).toFixed(1)} s` : age(seconds);
}

// Made once: to make a formatter takes far longer than to use it.
const MILLIONS = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number|null} value @returns {string} such as "12,345" or "1.2M" */
function amount(value) {
  if (value === null) return UNKNOWN;
  if (value >= 1e6) return MILLIONS.format(value);
  return (value < 10 ? TENTHS : WHOLE).format(value);
}

const BYTES = ["B", "kB", "MB", "GB", "TB"];

/** @param {number} value bytes @returns {string} in decimal units, such as "7.6 GB" */
function bytes(value) {
  const power = Math.floor(Math.log10(Math.max(1, value)) / 3);
  const unit = Math.min(power, BYTES.length - 1);
  const scaled = value / 1000 ** unit;
  return `${(scaled < 10 ? TENTHS : WHOLE).format(scaled)} ${BYTES[unit]}`;
}

/** @param {string} iso @returns {string} the viewer's local time and zone, with the date if not today */
function clock(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  const time = TIME.format(at);
  const sameDay = at.toDateString() === new Date().toDateString();
  return sameDay ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** @param {Record<string, number>} counts @returns {number} */
function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** @param {Record<string, number>} counts @returns {string} such as "12 (mailbox_full 12)" */
function itemised(counts) {
  const parts = Object.entries(counts).filter(([, count]) => count);
  const sum = amount(total(counts));
  return parts.length ? `${sum} (${parts.map(([what, n]) => `${what} ${n}`).join(", ")})` : sum;
}

/** The queries that are not ignored, worst first. */
function counted(queries) {
  return queries.filter((query) => !query.ignored).sort(byBadness);
}

/** Worst first, then by name; ignored queries come last. */
function byBadness(a, b) {
  return (
    a.ignored - b.ignored ||
    badness(a.state) - badness(b.state) ||
    (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)
  );
}

/** @returns {string} such as "7 of 8 queries are healthy; bronze has failed." */
function sentence({ queries, alerts }) {
  const all = counted(queries);
  if (!queries.length) return "No query has started yet.";
  if (!all.length) return "No query is monitored: the settings ignore all of them.";
  const others = all.filter((query) => !HEALTHY.has(query.state));
  const noun = all.length === 1 ? "query" : "queries";
  if (!others.length) {
    const healthy = all.length === 1 ? "The query is healthy" : `All ${all.length} queries are healthy`;
    return `${healthy}${alerts.length ? `, but there ${openAlerts(alerts.length)}` : ""}.`;
  }
  const healthy = all.length - others.length;
  return `${healthy} of ${all.length} ${noun} ${healthy === 1 ? "is" : "are"} healthy; ${problems(others)}.`;
}

function openAlerts(count) {
  return count === 1 ? "is 1 open alert" : `are ${count} open alerts`;
}

/** A few queries by name, more of them by number. */
function problems(queries) {
  if (queries.length <= NAMED) {
    return listed(queries.map((query) => `${query.name} ${stateWords(query.state, 1)}`));
  }
  const states = countByState(queries);
  return listed(states.map(([state, count]) => `${count} ${stateWords(state, count)}`));
}

function stateWords(state, count) {
  const [one, many] = STATES[state] ?? [`is ${state}`, `are ${state}`];
  return count === 1 ? one : many;
}

/** @param {string[]} parts @returns {string} "a, b and c" */
function listed(parts) {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** @returns {[string, number][]} the states that occur, worst first */
function countByState(queries) {
  const counts = new Map();
  for (const { state } of counted(queries)) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts];
}

/** @returns {string} the document's title: the worst state and its query, or the first alert */
function titleOf({ app, queries, alerts }) {
  const all = counted(queries);
  const healthy = all.filter((query) => HEALTHY.has(query.state)).length;
  const shares = all.length ? ` · ${healthy}/${all.length}` : "";
  return `${worstOf(all, alerts)}${shares} · ${app}`;
}

function worstOf(all, alerts) {
  const worst = all.find((query) => !HEALTHY.has(query.state));
  if (worst) return `${worst.state}: ${worst.name}`;
  const [alert] = [...alerts].sort(byUrgency);
  if (alert) return alert.labels.alertname;
  return all.length ? "all healthy" : "no queries";
}

/** @returns {string} the state whose icon the tab shows; an alert of healthy queries counts, too */
function iconStateOf({ queries, alerts }) {
  const worst = counted(queries)[0]?.state ?? "none";
  const isHealthy = worst === "none" || HEALTHY.has(worst);
  if (!isHealthy || !alerts.length) return worst;
  return alerts.some((alert) => alert.labels.severity === "critical") ? "failed" : "slow";
}
