// The list of queries, worst first, and the expected queries that are missing.

let nextRow = 0;
const MAX_LISTED = 10;

/** One query. Its nodes are created once; `update` changes only what differs. */
class QueryRow {
  constructor(query) {
    this.name = query.name;
    this.meter = new CommitMeter();
    this.spark = new Sparkline();
    this.symbol = symbol(query.state);
    this.state = el("span");
    this.marks = el("span", { class: "marks" });
    this.reason = el("p", { class: "reason" });
    this.flight = el("dd");
    this.lag = el("dd");
    this.rate = el("dd");
    this.more = el("dl", { class: "facts" });
    this.facts = new Facts(this.more);
    this.node = this.build();
  }

  build() {
    const id = `query-${(nextRow += 1)}`;
    const heading = el("h3", { id: `${id}-name` }, this.name);
    return el(
      "li",
      { class: "query", id, tabindex: "-1", "aria-labelledby": `${id}-name` },
      el("span", { class: "badge" }, this.symbol, this.state),
      el("div", { class: "who" }, heading, this.marks),
      this.figures(),
      this.reason,
      this.details(),
    );
  }

  figures() {
    return el(
      "dl",
      { class: "figures" },
      el("div", {}, el("dt", {}, "last commit"), el("dd", {}, this.meter.node)),
      el("div", {}, el("dt", {}, "in flight"), this.flight),
      el("div", {}, el("dt", {}, "lag"), this.lag),
      el("div", {}, el("dt", {}, "input"), this.rate),
      el("div", {}, el("dt", {}, "recent batches"), el("dd", {}, this.spark.node)),
    );
  }

  details() {
    const label = el("span", { class: "unseen" }, `More about ${this.name}`);
    return el("details", {}, el("summary", { title: "more" }, label), this.more);
  }

  update(query) {
    this.query = query;
    setAttribute(this.node, "data-state", query.state);
    setAttribute(this.node, "data-ignored", String(query.ignored));
    draw(this.symbol, query.state);
    setText(this.state, query.state);
    setText(this.marks, marks(query));
    setText(this.reason, reasonOf(query));
    setHidden(this.reason, !reasonOf(query));
    setText(this.lag, amount(query.lag_offsets));
    setText(this.rate, query.input_rows_per_second === null ? UNKNOWN : `${amount(query.input_rows_per_second)} rows/s`);
    this.spark.update(query.recent_batch_seconds);
    this.facts.update(furtherFacts(query));
  }

  /** @param {number} elapsed seconds since the query's figures were current */
  tick(elapsed) {
    this.meter.update(this.query, elapsed);
    setText(this.flight, flightText(this.query, elapsed));
  }

  get searchText() {
    return `${this.name} ${this.query.state}`.toLowerCase();
  }
}

function marks(query) {
  const words = [query.ignored ? "ignored" : "", query.id === null ? "never seen" : ""];
  return words.filter(Boolean).join(", ");
}

function reasonOf(query) {
  if (query.reason) return query.reason;
  if (query.ignored) return "the settings ignore it: it sends no alerts";
  const idle = query.last_idle_age_seconds;
  if (query.state === "idle" && idle !== null) return "its sources have no new data";
  return query.state === "waiting" ? "its source has data but holds it back" : "";
}

function flightText(query, elapsed) {
  if (query.batch_in_flight_seconds === null) return UNKNOWN;
  return `#${query.batch_in_flight}, ${age(query.batch_in_flight_seconds + elapsed)}`;
}

function nameList(names) {
  const more = names.length - MAX_LISTED;
  return names.slice(0, MAX_LISTED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function costWords(cost) {
  if (!cost) return "";
  const share = cost.cpu_share === null ? "" : `, ${Math.round(100 * cost.cpu_share)}% of the driver's`;
  const spilled = cost.spilled_bytes ? `; ${bytes(cost.spilled_bytes)} spilled` : "";
  return `${duration(cost.cpu_seconds)} of CPU${share}; its tasks ran for ${duration(cost.run_seconds)}${spilled}`;
}

/** `2 min 5 s old, 10 min are promised in 99% of the time; 6 h of 7 h left in 30 days` */
function freshnessWords(fresh) {
  if (!fresh) return "";
  const promised = `${duration(fresh.allowed_seconds)} are promised in ${Number((100 * fresh.objective).toFixed(3))}% of the time`;
  const left = fresh.budget_left_seconds;
  const budget = left < 0 ? `overspent by ${age(-left)}` : `${age(left)} of ${age(fresh.budget_seconds)} left`;
  const planned = fresh.planned ? "; planned time does not count" : "";
  return `newest data ${age(fresh.age_seconds)} old, ${promised}; ${budget} in 30 days${planned}`;
}

/** `dedupe: 38M rows, 7.6 GB, the snapshot of partition 3 lacks 60 batches; ...` */
function stateText(operators) {
  const texts = operators.map((operator) => {
    const { rows, bytes: size, snapshot_lag_batches: lag, snapshot_partition: partition } = operator;
    const parts = [
      rows === null ? "" : `${amount(rows)} rows`,
      size === null ? "" : bytes(size),
      lag ? `the snapshot of partition ${partition} lacks ${amount(lag)} batches` : "",
    ];
    return `${operator.name}: ${parts.filter(Boolean).join(", ")}`;
  });
  return texts.join("; ");
}

/** Details that are needed rarely; none of them changes with time alone. */
function furtherFacts(query) {
  if (query.id === null) return [["expected", "yes, but no signal has shown it yet"]];
  const speed = query.processed_rows_per_second;
  return [
    ["reads from", nameList(query.upstream)],
    ["read by", nameList(query.downstream)],
    ["likely cause", query.likely_cause?.text ?? ""],
    ["caught up", query.caught_up?.text ?? ""],
    ["state", stateText(query.state_operators ?? [])],
    ["age of its newest data, end to end", query.end_to_end_age_seconds === null ? "" : age(query.end_to_end_age_seconds)],
    ["freshness", freshnessWords(query.freshness)],
    ["cost", costWords(query.cost)],
    ["last committed batch", query.last_commit_batch === null ? "none seen" : `#${query.last_commit_batch}`],
    ["error class", query.error_class ?? ""],
    ["this run began", query.started_at === null ? UNKNOWN : clock(query.started_at)],
    ["restarts", amount(query.restarts)],
    ["trigger", query.trigger ?? UNKNOWN],
    ["sink", query.sink ?? UNKNOWN],
    ["checkpoint", query.checkpoint_problem ?? ""],
    ["processed", speed === null ? UNKNOWN : `${amount(speed)} rows/s`],
    ["batches", sparkWords(query.recent_batch_seconds)],
    ["window", query.window_seconds === null ? UNKNOWN : duration(query.window_seconds)],
    ["expected", query.expected ? "yes" : "no"],
    ["query id", query.id],
    ["run id", query.run_id],
  ].filter(([, text]) => text !== "");
}

/** All rows, their filter, and the text for an empty list. */
class QueryList {
  constructor() {
    this.rows = new KeyedList(byId("queries"), (query) => new QueryRow(query));
    this.filter = byId("filter");
    this.filter.addEventListener("input", () => this.sift());
  }

  update(queries) {
    const shown = [...queries].sort(byBadness);
    this.rows.update(shown.map((query) => [query.name, query]));
    setHidden(byId("queries-section"), false);
    setText(byId("expected"), expectedWords(queries));
    this.sift();
  }

  tick(elapsed) {
    for (const row of this.rows.entries.values()) row.tick(elapsed);
  }

  sift() {
    const wanted = this.filter.value.trim().toLowerCase();
    const rows = [...this.rows.entries.values()];
    for (const row of rows) setHidden(row.node, !row.searchText.includes(wanted));
    const left = rows.filter((row) => !row.node.hidden).length;
    setText(byId("shown"), wanted ? `${left} of ${rows.length} shown` : "");
    setText(byId("empty"), rows.length ? `No query matches “${this.filter.value.trim()}”.` : NO_QUERY);
    setHidden(byId("empty"), left > 0);
  }

  /** Scroll to a query, even if the filter hides it. */
  reveal(name) {
    const row = this.rows.entries.get(name);
    if (!row) return;
    if (row.node.hidden) {
      this.filter.value = "";
      this.sift();
    }
    row.node.scrollIntoView({ block: "center" });
    row.node.focus({ preventScroll: true });
  }
}

const NO_QUERY = "No streaming query has been started in this driver since the monitor started.";

function expectedWords(queries) {
  const expected = queries.filter((query) => query.expected);
  const unseen = expected.filter((query) => query.id === null).map((query) => query.name);
  if (!expected.length) return "expected_queries is not set: a query that never starts raises no alert.";
  if (!unseen.length) return `Expected queries: ${expected.length}, all seen.`;
  return `Expected queries: ${expected.length}, not seen: ${unseen.join(", ")}.`;
}
