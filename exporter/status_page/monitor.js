// The health of the monitor itself.

const LATE_HEARTBEAT = 5;
const LATE_PROBE = 5;

class MonitorPanel {
  constructor() {
    this.facts = new Facts(byId("monitor"));
    this.receivers = new KeyedList(byId("receivers"), (receiver) => receiverRow(receiver.name));
  }

  update({ monitor, resources, unowned_cost: unowned }) {
    this.monitor = monitor;
    this.unowned = costWords(unowned);
    this.resources = resources;
    setHidden(byId("monitor-section"), false);
    setHidden(byId("receivers-box"), !monitor.receivers.length);
    this.receivers.update(monitor.receivers.map((name) => [name, receiverOf(monitor, name)]));
  }

  /** @param {number} now the server's time in milliseconds since 1970 @param {number} elapsed */
  tick(now, elapsed) {
    const cost = this.unowned ? [["cost of jobs of no query", this.unowned]] : [];
    const facts = monitorFacts(this.monitor, now, elapsed);
    this.facts.update([...facts, ...resourceFacts(this.resources), ...cost]);
  }
}

/** @returns {[string, string, string?][]} */
function monitorFacts(monitor, now, elapsed) {
  const facts = [
    heartbeat(monitor, now),
    listener(monitor),
    ["events", itemised(monitor.events)],
    probe(monitor, elapsed),
    ["callback", timing(monitor.callback_duration_seconds)],
    ["mailbox", `${amount(monitor.mailbox_depth)} queued`],
    ["dropped", itemised(monitor.events_dropped), total(monitor.events_dropped) ? "note" : ""],
    ["errors", itemised(monitor.internal_errors), total(monitor.internal_errors) ? "bad" : ""],
  ];
  if (monitor.spool_problem) facts.push(["spool", monitor.spool_problem, "bad"]);
  if (monitor.recordings?.problem) facts.push(["recordings", monitor.recordings.problem, "bad"]);
  for (const [what, problem] of Object.entries(monitor.file_problems)) {
    facts.push([`${what} file`, problem, "bad"]);
  }
  for (const [target, { problem }] of Object.entries(monitor.pushes)) {
    if (problem) facts.push([`push to ${target}`, problem, "bad"]);
  }
  for (const what of monitor.missing) facts.push(["not visible", what, "note"]);
  for (const text of monitor.other_listeners) facts.push(["other listeners", text, "note"]);
  if (monitor.app_name_problem) facts.push(["app name", monitor.app_name_problem, "note"]);
  if (!monitor.receivers.length) facts.push(["receivers", "none: alerts are not sent", "note"]);
  return facts;
}

/** What the driver uses, and when it is full. @returns {[string, string, string?][]} */
function resourceFacts({ heap, container, disks } = { disks: [] }) {
  const facts = [];
  if (heap) {
    const used = heap.after_gc_bytes ?? heap.used_bytes;
    facts.push(resource("heap", used, heap.max_bytes, heap, " after collection"));
  }
  if (container) facts.push(resource("container", container.used_bytes, container.max_bytes, container));
  for (const disk of disks) {
    const text = ` (${disk.holds.join(", ")})`;
    facts.push(resource(`disk ${disk.path}`, disk.max_bytes - disk.free_bytes, disk.max_bytes, disk, text));
  }
  return facts;
}

function resource(name, used, most, { full_seconds: seconds }, more = "") {
  const text = `${bytes(used)} of ${bytes(most)}${more}`;
  if (seconds === null) return [name, text, ""];
  return [name, `${text}, full ${seconds ? `in ${age(seconds)}` : "now"}`, "bad"];
}

function heartbeat({ heartbeat_timestamp: beat }, now) {
  if (beat === null) return ["heartbeat", "none yet", "note"];
  const since = Math.max(0, now / 1000 - beat);
  return ["heartbeat", `${age(since)} ago`, since > LATE_HEARTBEAT ? "bad" : ""];
}

function listener({ listener_path: path, listener_registered: registered, reregistrations: again }) {
  const words = { true: "registered", false: "NOT registered", null: "not checked yet" }[registered];
  const ways = path ? `${words}, by ${path.replaceAll("_", " ")}` : words;
  const text = again ? `${ways}, registered again ${amount(again)} times` : ways;
  return ["listener", text, registered === false ? "bad" : again ? "note" : ""];
}

function probe({ probe_age_seconds: seconds, probe_duration_seconds: durations }, elapsed) {
  if (seconds === null) return ["probe", "none yet", "note"];
  const since = seconds + elapsed;
  return ["probe", `${age(since)} ago, ${timing(durations)}`, since > LATE_PROBE ? "bad" : ""];
}

function timing({ count, p99_seconds: p99 }) {
  if (!count) return "none yet";
  return p99 === null ? "more than 1 % above the largest bucket" : `99 % within ${micro(p99)}`;
}

function micro(seconds) {
  return seconds < 0.001 ? `${Math.round(seconds * 1e6)} µs` : duration(seconds);
}

function receiverOf(monitor, name) {
  const { delivered = 0, ...failed } = monitor.deliveries[name] ?? {};
  return {
    name,
    delivered,
    failed,
    pending: monitor.outbox_pending[name] ?? 0,
    lost: monitor.alerts_lost[name] ?? {},
    open: monitor.circuits_open[name] ?? false,
  };
}

function receiverRow(name) {
  const cells = [0, 1, 2, 3, 4].map(() => el("td"));
  const node = el("tr", {}, el("th", { scope: "row" }, name), ...cells);
  const update = (receiver) => {
    const circuit = receiver.open ? "open: paused after failures" : "closed";
    const texts = [
      [amount(receiver.delivered), ""],
      [itemised(receiver.failed), total(receiver.failed) ? "note" : ""],
      [amount(receiver.pending), receiver.pending ? "note" : ""],
      [itemised(receiver.lost), total(receiver.lost) ? "bad" : ""],
      [circuit, receiver.open ? "bad" : ""],
    ];
    texts.forEach(([text, mood], index) => {
      setText(cells[index], text);
      setAttribute(cells[index], "data-mood", mood);
    });
  };
  return { node, update };
}
