// Two small charts of one query, each with the same information as text.

const BAR = 3;
const BARS = 30;
const HEIGHT = 24;
const CUT_AT_MEDIANS = 4;

/** The part of its stall window that a query has used since its last commit. */
class CommitMeter {
  constructor() {
    this.fill = el("span", { class: "fill" });
    this.bar = el("span", { class: "bar", role: "meter", "aria-label": "age of the last commit" }, this.fill);
    this.text = el("span", { class: "value" });
    this.node = el("span", { class: "commit" }, this.bar, this.text);
  }

  /** @param query @param {number} elapsed seconds since the query's figures were current */
  update(query, elapsed) {
    const since = commitAge(query, elapsed);
    const limit = query.window_seconds;
    const used = since === null || !limit ? 0 : Math.min(1, since / limit);
    const calm = quiet(query) || query.state === "completed" || query.state === "stopped";
    setText(this.text, commitText(query, since, calm));
    setAttribute(this.bar, "aria-valuetext", commitWords(query, since));
    setAttribute(this.bar, "aria-valuemin", "0");
    setAttribute(this.bar, "aria-valuemax", String(Math.round(limit ?? 0)));
    setAttribute(this.bar, "aria-valuenow", String(Math.round(Math.min(since ?? 0, limit ?? 0))));
    this.show(calm ? 0 : used);
  }

  show(used) {
    const shown = used.toFixed(2);
    if (this.shown === shown) return;
    this.shown = shown;
    this.fill.style.setProperty("--used", shown);
  }
}

/** Whether it has nothing to commit, so that its stall window does not run. */
function quiet(query) {
  return query.state === "idle" || query.state === "waiting";
}

function commitAge(query, elapsed) {
  return query.last_commit_age_seconds === null ? null : query.last_commit_age_seconds + elapsed;
}

function commitText(query, since, calm) {
  if (since === null) return query.last_commit_batch === null ? "none yet" : "before monitoring";
  const limit = query.window_seconds;
  return calm || !limit || OVER.has(query.state) ? age(since) : `${age(since)} / ${age(limit)}`;
}

function commitWords(query, since) {
  if (query.id === null) return "never seen";
  if (since === null) return "no commit seen in this run";
  const words = `last commit ${age(since)} ago`;
  if (quiet(query)) return `${words}; nothing to commit since`;
  return query.window_seconds ? `${words}, ${age(query.window_seconds)} are allowed` : words;
}

/** The durations of the last batches, one bar each, the newest last. */
class Sparkline {
  constructor() {
    this.path = document.createElementNS(SVG, "path");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${BARS * BAR} ${HEIGHT}`);
    this.svg.setAttribute("class", "spark");
    this.svg.setAttribute("role", "img");
    this.svg.append(this.path);
    this.text = el("span", { class: "value" });
    this.node = el("span", { class: "batches" }, this.svg, this.text);
  }

  /** @param {number[]} seconds */
  update(seconds) {
    setAttribute(this.path, "d", bars(seconds));
    setAttribute(this.svg, "aria-label", sparkWords(seconds));
    setText(this.text, duration(seconds.at(-1) ?? null));
  }
}

/** Cut very long bars, so that the others still differ visibly. */
function bars(seconds) {
  const full = Math.min(Math.max(...seconds, 1e-9), (median(seconds) || Infinity) * CUT_AT_MEDIANS);
  return seconds
    .slice(-BARS)
    .map((value, index) => {
      const x = (index + 0.5) * BAR;
      const height = Math.max(1, (Math.min(value, full) / full) * HEIGHT);
      return `M${x} ${HEIGHT}V${(HEIGHT - height).toFixed(1)}`;
    })
    .join("");
}

function sparkWords(seconds) {
  if (!seconds.length) return "no batch yet";
  const [newest, longest] = [seconds.at(-1), Math.max(...seconds)];
  const count = seconds.length === 1 ? "1 batch" : `${seconds.length} batches`;
  return `${count}: the last took ${duration(newest)}, the median ${duration(median(seconds))}, the longest ${duration(longest)}`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
