// The only ways to put data into the document: as text, or as a harmless attribute.

const byId = (id) => document.getElementById(id);

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node|string)} children strings become text
 * @returns {HTMLElement}
 */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Change only what differs, so that a screen reader is not interrupted. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** @returns {string|null} the address, if it is an HTTP or HTTPS link */
function safeLink(text) {
  try {
    const { protocol, href } = new URL(text);
    return protocol === "https:" || protocol === "http:" ? href : null;
  } catch {
    return null;
  }
}

/** A list that keeps each entry's node by key, and so its focus, selection and open details. */
class KeyedList {
  /** @param {Element} container @param {(item) => {node: Element, update: (item) => void}} make */
  constructor(container, make) {
    this.container = container;
    this.make = make;
    this.entries = new Map();
  }

  /** @param {[string, any][]} keyed the items in their order, each with its key */
  update(keyed) {
    const wanted = new Set(keyed.map(([key]) => key));
    for (const [key, entry] of this.entries) {
      if (wanted.has(key)) continue;
      entry.node.remove();
      this.entries.delete(key);
    }
    let next = this.container.firstElementChild;
    for (const [key, item] of keyed) {
      const entry = this.entry(key, item);
      entry.update(item);
      if (entry.node === next) next = next.nextElementSibling;
      else this.move(entry.node, next);
    }
  }

  entry(key, item) {
    let entry = this.entries.get(key);
    if (!entry) this.entries.set(key, (entry = this.make(item)));
    return entry;
  }

  /** Move a node and restore the focus in it. */
  move(node, before) {
    const focused = node.contains(document.activeElement) ? document.activeElement : null;
    this.container.insertBefore(node, before);
    focused?.focus({ preventScroll: true });
  }
}

/** Facts as a description list: one pair for each entry of `update`. */
class Facts {
  constructor(list) {
    this.pairs = new KeyedList(list, ([name]) => this.pair(name));
  }

  pair(name) {
    const value = el("dd");
    const node = el("div", {}, el("dt", {}, name), value);
    const update = ([, text, mood]) => {
      setText(value, text);
      setAttribute(node, "data-mood", mood ?? "");
    };
    return { node, update };
  }

  /** @param {[string, string, string?][]} facts name, text, and "bad" or "note" if it needs attention */
  update(facts) {
    this.pairs.update(facts.map((fact) => [fact[0], fact]));
  }
}
