// The open alerts.

const SEVERITIES = ["critical", "warning", "info"];
const LINKS = { runbook_url: "Runbook", dashboard_url: "Dashboard", spark_ui_url: "Spark UI" };
const SHOWN_APART = new Set(["summary", "description", "reason", ...Object.keys(LINKS)]);

class AlertCard {
  /** @param alert @param {(query: string) => void} reveal */
  constructor(alert, reveal) {
    const { alertname, query, severity } = alert.labels;
    this.when = el("p", { class: "when" });
    this.summary = el("p", { class: "summary" });
    this.reason = el("p", { class: "reason" });
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
      this.summary,
      this.reason,
      this.links,
      el("details", {}, el("summary", {}, "Evidence"), this.evidence),
    );
  }

  update(alert) {
    this.alert = alert;
    const { summary = "", reason = "" } = alert.annotations;
    setText(this.summary, summary);
    setText(this.reason, reason);
    setHidden(this.reason, !reason || includesReason(summary, reason));
    this.link(alert.annotations);
    const evidence = Object.entries(alert.annotations).filter(([name]) => !SHOWN_APART.has(name));
    this.facts.update(evidence.map(([name, text]) => [name.replaceAll("_", " "), text]));
  }

  tick(now) {
    const began = Date.parse(this.alert.starts_at);
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

class AlertList {
  /** @param {(query: string) => void} reveal */
  constructor(reveal) {
    this.cards = new KeyedList(byId("alerts"), (alert) => new AlertCard(alert, reveal));
  }

  update(alerts) {
    const shown = [...alerts].sort(byUrgency);
    this.cards.update(shown.map((alert) => [JSON.stringify(alert.labels), alert]));
    setHidden(byId("alerts-section"), !shown.length);
    setText(byId("alerts-title"), shown.length === 1 ? "1 open alert" : `${shown.length} open alerts`);
  }

  /** @param {number} now the server's time in milliseconds since 1970 */
  tick(now) {
    for (const card of this.cards.entries.values()) card.tick(now);
  }
}

function byUrgency(a, b) {
  const [left, right] = [a, b].map((alert) => SEVERITIES.indexOf(alert.labels.severity));
  return left - right || Date.parse(a.starts_at) - Date.parse(b.starts_at);
}
