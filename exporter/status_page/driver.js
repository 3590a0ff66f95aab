// Polls the driver, one request at a time, and receives its shutdown notice.

const ASK_EVERY = { visible: 1000, hidden: 5000 };
const PATIENCE = [2000, 3000, 5000];
const REST_AFTER_FAILURE = [500, 1000, 2000, 3000];
const WATCH_PATIENCE = 30000;
const WATCH_AGAIN = 20000;
const SETTLED = 1000;

/** The base path of this page, also behind a proxy that strips a path prefix. */
const BASE = location.pathname.replace(/\/?$/, "/");
const TOKEN = `querypulse-token ${BASE}`;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const nth = (values, index) => values[Math.min(index, values.length - 1)];

/**
 * Polls `status`. `report` receives the result of each poll: `{kind: "status", status}`,
 * `{kind: "early"}` (nothing evaluated yet), `{kind: "locked", refused}` (a token is needed),
 * `{kind: "odd", detail}` (something else answered), `{kind: "silent", watched}` (no answer;
 * whether a shutdown notice would have arrived), and at any time `{kind: "closed"}`.
 */
class Driver {
  constructor(report) {
    this.report = report;
    this.failures = 0;
    this.begun = this.reported = 0;
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
      const poll = ++this.begun;
      const found = await this.ask();
      this.answers = found.kind === "status";
      this.failures = found.kind === "silent" ? this.failures + 1 : 0;
      this.report(found);
      this.reported = poll;
      await this.rest();
    }
  }

  async ask() {
    try {
      return await classify(await get("status", nth(PATIENCE, this.failures)));
    } catch {
      return { kind: "silent", watched: this.waits };
    }
  }

  /** Wait until the next poll is due or `wake` is called. */
  rest() {
    const usual = document.hidden ? ASK_EVERY.hidden : ASK_EVERY.visible;
    const due = this.failures ? nth(REST_AFTER_FAILURE, this.failures - 1) : usual;
    return new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, due);
    });
  }

  /** Wait for the driver's shutdown notice; poll at once if that connection breaks. */
  async watch() {
    for (;;) {
      while (!this.answers) await pause(SETTLED / 4);
      this.waitsSince = performance.now();
      try {
        const { status } = await (await get("watch/page", WATCH_PATIENCE)).json();
        if (status !== "running") this.report({ kind: "closed" });
        if (!this.waits) await this.leave(WATCH_AGAIN);
      } catch {
        // Until a poll that begins from now on is reported, it counts that this request waited.
        const begun = this.begun;
        this.wake();
        await pause(SETTLED);
        while (this.reported <= begun) await pause(SETTLED / 4);
      }
    }
  }

  /** Whether a place for the shutdown notice is held; without a place the answer comes at once. */
  get waits() {
    return this.waitsSince !== null && performance.now() - this.waitsSince > SETTLED;
  }

  leave(milliseconds) {
    this.waitsSince = null;
    return pause(milliseconds);
  }
}

/** @returns {Promise<Response>} rejects without an answer within `patience` milliseconds */
function get(path, patience) {
  const token = sessionStorage.getItem(TOKEN);
  return fetch(BASE + path, {
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    cache: "no-store",
    signal: AbortSignal.timeout(patience),
  });
}

async function classify(response) {
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

/** An interrupted answer counts as no answer; one that is not JSON is from something else. */
function rethrowTimeout(error) {
  if (error instanceof SyntaxError) return null;
  throw error;
}
