// The open alerts.

const SEVERITIES = ["critical", "warning", "info"];
const LINKS = { runbook_url: "Runbook", dashboard_url: "Dashboard", spark_ui_url: "Spark UI" };
const SHOWN_APART = new Set(["summary", "description", "reason", "next_steps", ...Object.keys(LINKS)]);
/** Up to this many alerts are shown in full; of more, only the first, so that the queries stay in view. */
const IN_FULL = 3;
/** How many of more alerts are in view before somebody asks for the rest. */
const IN_VIEW = 4;

/** One alert: in full, or as a line that unfolds. */
class AlertCard {
  /** @param alert @param {(query: string) => void} reveal */
  constructor(alert, reveal) {
    const { alertname, query, severity } = alert.labels;
    this.when = el("p", { class: "when" });
    this.summary = el("p", { class: "summary" });
    this.reason = el("p", { class: "reason" });
    this.steps = el("span");
    this.next = el("p", { class: "next" }, el("strong", {}, "Next steps"), "\n", this.steps);
    this.unfold = unfoldButton(`More about ${alertname} of ${query === "*" ? "the whole driver" : query}`);
    this.unfold.addEventListener("click", () => this.toggle());
    this.links = el("p", { class: "runbook" });
    this.evidence = el("dl", { class: "facts" });
    this.facts = new Facts(this.evidence);
    const about = query === "*" ? el("span", {}, "the whole driver") : linkTo(query, reveal);
    this.node = el(
      "li",
      { class: "alert", "data-severity": severity },
      el("span", { class: "severity" }, severity),
      el("h3", {}, alertname, " ", el("span", { class: "soft" }, "of"), " ", about),
      this.when,
      this.unfold,
      this.summary,
      this.reason,
      this.next,
      this.links,
      el("details", {}, el("summary", {}, "Evidence"), this.evidence),
    );
  }

  update(alert) {
    this.alert = alert;
    const { summary = "", reason = "", next_steps: steps = "" } = alert.annotations;
    setText(this.summary, summary);
    setText(this.reason, reason);
    setHidden(this.reason, !reason || includesReason(summary, reason));
    setText(this.steps, steps);
    setHidden(this.next, !steps);
    this.link(alert.annotations);
    const evidence = Object.entries(alert.annotations).filter(([name]) => !SHOWN_APART.has(name));
    this.facts.update(evidence.map(([name, text]) => [name.replaceAll("_", " "), text]));
  }

  /** @param {boolean} folds whether it is a line until somebody unfolds it @param {boolean} inView */
  place(folds, inView) {
    this.folds = folds;
    setHidden(this.node, !inView);
    setHidden(this.unfold, !folds);
    setAttribute(this.node, "data-folded", String(folds && !this.unfolded));
    setAttribute(this.unfold, "aria-expanded", String(Boolean(this.unfolded)));
  }

  toggle() {
    this.unfolded = !this.unfolded;
    this.place(this.folds, true);
  }

  tick(now) {
    const began = Date.parse(this.alert.starts_at);
    setAttribute(this.when, "title", `${this.alert.starts_at.slice(0, 19)} UTC`);
    setText(this.when, `since ${clock(this.alert.starts_at)}, for ${age(Math.max(0, (now - began) / 1000))}`);
  }

  link(annotations) {
    const known = Object.entries(LINKS).filter(([name]) => annotations[name]);
    const addresses = known.map(([name]) => annotations[name]).join("\n");
    if (this.addresses === addresses) return;
    this.addresses = addresses;
    const shown = known.map(([name, words]) => linkOut(annotations[name], words));
    this.links.replaceChildren(...shown.flatMap((one, index) => (index ? [" · ", one] : [one])));
  }
}

/** A link, or plain text if the address is not a link. */
function linkOut(address, words) {
  const href = safeLink(address);
  return href ? el("a", { href, target: "_blank", rel: "noopener noreferrer" }, words) : address;
}

/** Whether a headline includes the reason; the reason may start with a code that it omits. */
function includesReason(summary, reason) {
  const rest = reason.slice(reason.indexOf(": ") + 2);
  return summary.includes(reason) || (reason.includes(": ") && summary.includes(rest));
}

function linkTo(query, reveal) {
  const link = el("button", { type: "button", class: "link" }, query);
  link.addEventListener("click", () => reveal(query));
  return link;
}

function unfoldButton(label) {
  return el("button", { type: "button", class: "unfold" }, el("span", { class: "unseen" }, label));
}

class AlertList {
  /** @param {(query: string) => void} reveal */
  constructor(reveal) {
    this.cards = new KeyedList(byId("alerts"), (alert) => new AlertCard(alert, reveal));
    this.showsAll = false;
    this.more = byId("more-alerts");
    this.more.addEventListener("click", () => {
      this.showsAll = !this.showsAll;
      this.update(this.alerts);
    });
  }

  update(alerts) {
    this.alerts = [...alerts].sort(byUrgency);
    const keyed = this.alerts.map((alert) => [JSON.stringify(alert.labels), alert]);
    this.cards.update(keyed);
    // A button in place of a single line would gain nothing.
    const inView = alerts.length > IN_VIEW + 1 ? IN_VIEW : alerts.length;
    keyed.forEach(([key], index) => {
      const folds = alerts.length > IN_FULL && index > 0;
      this.cards.entries.get(key).place(folds, this.showsAll || index < inView);
    });
    setHidden(byId("alerts-section"), !alerts.length);
    setText(byId("alerts-title"), alertsTitle(this.alerts));
    this.offer(this.alerts.slice(inView));
  }

  /** Offer the alerts that are not in view. */
  offer(rest) {
    setHidden(this.more, !rest.length);
    setAttribute(this.more, "aria-expanded", String(this.showsAll));
    const kinds = countsBy(rest, (alert) => alert.labels.alertname);
    setText(this.more, this.showsAll ? "Show fewer" : `Show ${rest.length} more: ${kinds}`);
  }

  /** @param {number} now the server's time in milliseconds since 1970 */
  tick(now) {
    for (const card of this.cards.entries.values()) card.tick(now);
  }
}

function alertsTitle(alerts) {
  if (alerts.length === 1) return "1 open alert";
  return `${alerts.length} open alerts: ${countsBy(alerts, (alert) => alert.labels.severity)}`;
}

/** @returns {string} such as "10 critical, 30 warning", in the order of the first of each */
function countsBy(alerts, kindOf) {
  const counts = new Map();
  for (const alert of alerts) counts.set(kindOf(alert), (counts.get(kindOf(alert)) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(", ");
}

function byUrgency(a, b) {
  const [left, right] = [a, b].map((alert) => SEVERITIES.indexOf(alert.labels.severity));
  return left - right || Date.parse(a.starts_at) - Date.parse(b.starts_at);
}
