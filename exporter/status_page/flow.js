// Who reads what another query writes: a nested list, the writers outside.

const MAX_NODES = 200;

/** The queries below each other. One with several writers is shown in full below the first. */
class FlowTree {
  /** @param {(name: string) => void} reveal */
  constructor(reveal) {
    this.reveal = reveal;
    this.shown = "";
  }

  update(queries) {
    const lines = flowLines(queries);
    setHidden(byId("flow-section"), !lines.length);
    // Rebuilt only when something visible differs, so that focus and selection stay.
    const shown = JSON.stringify(lines);
    if (shown === this.shown) return;
    this.shown = shown;
    const drawn = lines.slice(0, MAX_NODES);
    byId("flow").replaceChildren(...this.nested(drawn));
    const rest = lines.length - drawn.length;
    setText(byId("flow-rest"), rest > 0 ? `and more: ${MAX_NODES} are shown` : "");
  }

  /** @param {{name: string, depth: number}[]} lines depth first */
  nested(lines) {
    const roots = [];
    const open = [];
    for (const line of lines) {
      const item = el("li", { "data-state": line.state }, this.node(line));
      open.length = line.depth;
      open[line.depth] = item;
      if (line.depth === 0) roots.push(item);
      else this.childrenOf(open[line.depth - 1]).append(item);
    }
    return roots;
  }

  childrenOf(item) {
    const last = item.lastElementChild;
    if (last.tagName === "UL") return last;
    const list = el("ul");
    item.append(list);
    return list;
  }

  node({ name, state, note }) {
    const link = el("button", { type: "button", class: "link" }, name);
    link.addEventListener("click", () => this.reveal(name));
    const text = el("span", { class: "soft" }, [state, note].filter(Boolean).join(", "));
    return el("div", { class: "node" }, symbol(state), link, text);
  }
}

/** The lines of the tree, depth first, at most one more than are shown. */
function flowLines(queries) {
  const byName = new Map(queries.map((query) => [query.name, query]));
  const linked = queries.filter((query) => query.upstream.length || query.downstream.length);
  const seen = new Set();
  const lines = [];
  const visit = (start) => {
    const waiting = [[start, 0]];
    while (waiting.length && lines.length <= MAX_NODES) {
      const [name, depth] = waiting.pop();
      const query = byName.get(name);
      if (!query) continue;
      const again = seen.has(name);
      seen.add(name);
      const state = query.state;
      lines.push({ name, depth, state, note: again ? "see above" : query.reason });
      if (again) continue;
      for (const reader of [...query.downstream].sort().reverse()) waiting.push([reader, depth + 1]);
    }
  };
  for (const query of linked) if (!query.upstream.length) visit(query.name);
  // Queries that are only reachable from each other.
  for (const query of linked) if (!seen.has(query.name) && lines.length <= MAX_NODES) visit(query.name);
  return lines;
}
