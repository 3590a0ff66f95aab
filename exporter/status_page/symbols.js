// A shape for every state, so that colour is never the only sign.

/** Paths in a box of 16 x 16, drawn with a round stroke 2 wide. */
const SHAPES = {
  failed: "M4 4L12 12M12 4L4 12",
  missing: "M5.5 6A2.5 2.5 0 1 1 8 8.5V9.5M8 12.5V12.6",
  stopped_unexpectedly: "M4.5 4.5H11.5V11.5H4.5ZM8 6.5V8.5M8 9.9V10",
  stalled: "M5.5 3.5V12.5M10.5 3.5V12.5",
  flapping: "M2.5 10L5.5 5L8.5 11L11 5L13.5 10",
  rewound: "M8 4L4 8L8 12M13 4L9 8L13 12",
  slow: "M8 3A5 5 0 1 0 13 8M8 5V8L10 9.5",
  lagging: "M3 12.5H13M3 8.5H10M3 4.5H6",
  watermark_stuck: "M8 2.5C10.5 6 11.5 7.5 11.5 9.5A3.5 3.5 0 0 1 4.5 9.5C4.5 7.5 5.5 6 8 2.5Z",
  waiting: "M3.5 8V8.1M8 8V8.1M12.5 8V8.1",
  idle: "M4 8H12",
  running: "M5.5 3.5L12 8L5.5 12.5Z",
  starting: "M8 12.5V4M4.5 7.5L8 4L11.5 7.5",
  stopped: "M4.5 4.5H11.5V11.5H4.5Z",
  completed: "M3 8.5L6.5 12L13 4.5",
};
const NO_ANSWER = "M8 3.5V8.5M8 12.4V12.5";
const SVG = "http://www.w3.org/2000/svg";

/** @param {string} state @returns {SVGElement} for sighted people; the state's name is next to it */
function symbol(state) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "symbol");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "path"));
  draw(svg, state);
  return svg;
}

/** Draw another state's shape into a symbol. */
function draw(svg, state) {
  setAttribute(svg.firstChild, "d", SHAPES[state] ?? NO_ANSWER);
}

/** @returns {string} a data: URL of the state's shape on its colour, or on grey */
function iconOf(state) {
  const style = getComputedStyle(document.documentElement);
  const ground = style.getPropertyValue(`--${state}`).trim() || "#999999";
  const ink = state === "starting" ? "#ffffff" : "#000000";
  const shape = SHAPES[state] ?? NO_ANSWER;
  const svg =
    `<svg xmlns="${SVG}" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="${ground}"/>` +
    `<path d="${shape}" fill="none" stroke="${ink}" stroke-width="2" stroke-linecap="round"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
