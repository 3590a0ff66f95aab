// Shows `fleet.html` as it is now, again and again, and keeps what the reader has opened and chosen.

const REFRESH = 10000;
const PATIENCE = 20000;
/** The base path of this page, also behind a proxy that strips a path prefix. */
const BASE = location.pathname.replace(/\/?$/, "/");
const TOKEN = `querypulse-token ${BASE}`;
const ROWS = "tbody tr, .causes li";

const byId = (id) => document.getElementById(id);
let shown = "";
let answeredAt = null;

async function refresh() {
  try {
    const response = await get("fleet.html");
    if (response.status === 401) return lock();
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    show(await response.text());
    answeredAt = new Date();
    notify("");
  } catch (error) {
    const last = answeredAt ? ` Below is what it showed at ${answeredAt.toLocaleTimeString()}.` : "";
    notify(`The watcher does not answer (${error.message}).${last}`);
  }
}

/** @returns {Promise<Response>} rejects without an answer in time */
function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  return fetch(BASE + path, {
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE),
  });
}

function lock() {
  const refused = sessionStorage.getItem(TOKEN) !== null;
  notify(refused ? "This token was refused." : "This watcher requires a token.");
  byId("token-form").hidden = false;
}

function notify(text) {
  const notice = byId("notice");
  if (notice.textContent !== text) notice.textContent = text;
  notice.hidden = !text;
}

/** Replace what has changed; the server has escaped all text in it. */
function show(text) {
  byId("token-form").hidden = true;
  if (text === shown) return;
  shown = text;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  const head = fresh.querySelector("header");
  const main = byId("main");
  const open = new Set([...main.querySelectorAll("details[open]")].map((details) => details.id));
  for (const details of fresh.querySelectorAll("details")) details.open = open.has(details.id);
  const focused = place(document.activeElement);
  head.remove();
  byId("head").replaceChildren(head);
  main.replaceChildren(...fresh.childNodes);
  for (const name of main.querySelectorAll(".pick")) name.replaceWith(button(name.textContent));
  document.title = `${byId("sentence").textContent} · querypulse`;
  byId("bar").hidden = !main.querySelector(ROWS);
  filter();
  find(focused)?.focus({ preventScroll: true });
}

/** Where the focus is in what is replaced: the list, and the text of the link or button. */
function place(node) {
  const box = node?.closest("#main [id]");
  return box && { box: box.id, tag: node.tagName, text: node.textContent };
}

function find(focused) {
  const box = focused && byId(focused.box);
  if (!box) return null;
  const same = [...box.querySelectorAll(focused.tag)].find((node) => node.textContent === focused.text);
  return same ?? (box.tabIndex >= 0 ? box : null);
}

/** A group of drivers: chosen, it becomes the filter. */
function button(words) {
  const node = document.createElement("button");
  node.type = "button";
  node.className = "pick";
  node.textContent = words;
  node.addEventListener("click", () => {
    byId("filter").value = words;
    filter();
  });
  return node;
}

/** Hide the rows without all the words of the filter; what is found in a fold opens it. */
function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const row of byId("main").querySelectorAll(ROWS)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !row.closest("#groups") && !words.every((word) => text.includes(word));
    left += !row.hidden && !row.closest("#groups");
  }
  for (const section of byId("main").querySelectorAll("section, details")) {
    section.hidden = words.length > 0 && ![...section.querySelectorAll(ROWS)].some((row) => !row.hidden);
    if (words.length && section.matches("details:not([hidden])")) section.open = true;
  }
  const count = words.length ? `${left} ${left === 1 ? "line" : "lines"} found` : "";
  if (byId("shown").textContent !== count) byId("shown").textContent = count;
}

byId("filter").addEventListener("input", filter);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value);
  byId("token").value = "";
  refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(() => document.hidden || refresh(), REFRESH);
refresh();
