// Asks the driver, one question at a time, and hears its farewell.

const ASK_EVERY = { visible: 1000, hidden: 5000 };
const PATIENCE = [2000, 3000, 5000];
const REST_AFTER_FAILURE = [500, 1000, 2000, 3000];
const WATCH_PATIENCE = 30000;
const WATCH_AGAIN = 20000;
const SETTLED = 1000;

/** Where this page is served is where the rest is, also behind a proxy that strips a path. */
const BASE = location.pathname.replace(/\/?$/, "/");
const TOKEN = `querypulse-token ${BASE}`;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const nth = (values, index) => values[Math.min(index, values.length - 1)];

/**
 * Polls `status`. `tell` gets what came of each question: `{kind: "status", status}`,
 * `{kind: "early"}` (nothing looked at yet), `{kind: "locked", refused}` (a token is needed),
 * `{kind: "odd", detail}` (somebody else answered), `{kind: "silent", watched}` (nobody did;
 * whether a farewell would have been heard), and, unasked, `{kind: "closed"}`.
 */
class Driver {
  constructor(tell) {
    this.tell = tell;
    this.failures = 0;
    this.answers = false;
    this.waitsSince = null;
    this.wake = () => {};
    document.addEventListener("visibilitychange", () => this.wake());
  }

  start() {
    this.poll();
    this.watch();
  }

  /** @param {string} token kept for this tab only, and sent as `Authorization` */
  unlock(token) {
    sessionStorage.setItem(TOKEN, token);
    this.wake();
  }

  async poll() {
    for (;;) {
      const found = await this.ask();
      this.answers = found.kind === "status";
      this.failures = found.kind === "silent" ? this.failures + 1 : 0;
      this.tell(found);
      await this.rest();
    }
  }

  async ask() {
    try {
      return await judge(await get("status", nth(PATIENCE, this.failures)));
    } catch {
      return { kind: "silent", watched: this.waits };
    }
  }

  /** Until the next question is due, or somebody wakes us. */
  rest() {
    const usual = document.hidden ? ASK_EVERY.hidden : ASK_EVERY.visible;
    const due = this.failures ? nth(REST_AFTER_FAILURE, this.failures - 1) : usual;
    return new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, due);
    });
  }

  /** Wait where the driver says farewell; a connection that breaks there is looked into at once. */
  async watch() {
    for (;;) {
      while (!this.answers) await pause(SETTLED / 4);
      this.waitsSince = performance.now();
      try {
        const { status } = await (await get("watch/page", WATCH_PATIENCE)).json();
        if (status !== "running") this.tell({ kind: "closed" });
        if (!this.waits) await this.leave(WATCH_AGAIN);
      } catch {
        this.wake();
        await pause(SETTLED);
      }
    }
  }

  /** Whether we have a place where farewells are heard; without one the answer comes at once. */
  get waits() {
    return this.waitsSince !== null && performance.now() - this.waitsSince > SETTLED;
  }

  leave(milliseconds) {
    this.waitsSince = null;
    return pause(milliseconds);
  }
}

/** @returns {Promise<Response>} rejects when nobody answers within `patience` milliseconds */
function get(path, patience) {
  const token = sessionStorage.getItem(TOKEN);
  return fetch(BASE + path, {
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    cache: "no-store",
    signal: AbortSignal.timeout(patience),
  });
}

async function judge(response) {
  if (response.status === 401) {
    return { kind: "locked", refused: sessionStorage.getItem(TOKEN) !== null };
  }
  const answer = await response.json().catch(rethrowTimeout);
  if (response.ok && Array.isArray(answer?.queries) && answer.monitor) {
    return { kind: "status", status: answer };
  }
  if (response.status === 503 && typeof answer?.error === "string") return { kind: "early" };
  return { kind: "odd", detail: `HTTP ${response.status}` };
}

/** An answer that breaks off is silence; one that is no JSON is somebody else's. */
function rethrowTimeout(error) {
  if (error instanceof SyntaxError) return null;
  throw error;
}
