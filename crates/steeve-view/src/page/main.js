// The state of the page, and what the user does to it.

const TABS = tabs();
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const state = {
  tab: TABS[0] || { name: "", memories: MAPS.map(() => null), buffer: null },
  mode: MAPS.length > 1 ? "both" : 0,
  window: { x0: 0, x1: 1, y0: 0, y1: 1 },
  full: { x0: 0, x1: 1, y0: 0, y1: 1 },
  classes: classified(DATA.by || fitting()),
  patterns: true,
  matches: null,
  found: [],
  at: -1,
  hover: null,
  chosen: null,
  step: null,
  step_map: 0,
  // Whether a memory is drawn at the nodes that use it, and not for the whole run.
  cropped: true,
  pointed: null,
};

// Known once the theme is: see the end of this file.
let ink = null;
const panes = MAPS.map((_, index) => new Pane(index));
const shown_panes = () => panes.filter((pane) => state.mode === "both" || state.mode === pane.index);

// The last pane that shows anything: one plan may have nothing in a memory or a buffer that the other fills.
const busy_pane = () => shown_panes().findLast((pane) => pane.count() > 0);

// Drawing happens once per frame, however much has changed.
let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw_now(); });
}
function draw_now() { for (const pane of shown_panes()) pane.draw(); }

function whole() {
  const memories = shown_panes().map((pane) => pane.memory).filter(Boolean);
  const spans = memories.map((memory) => (state.cropped ? memory.crop(state.tab.buffer) : [memory.first, memory.last]));
  const first = Math.min(...spans.map((span) => span[0])), last = Math.max(...spans.map((span) => span[1]));
  const most = Math.max(1, ...shown_panes().map((pane) => pane.peak()));
  return memories.length ? { x0: first, x1: Math.max(first + 1, last), y0: 0, y1: most * 1.045 } : { x0: 0, x1: 1, y0: 0, y1: 1 };
}

// Not further out than everything, not further in than makes sense.
function clamp(win) {
  const axis = (low, high, from, to, least) => {
    const [span, most] = [Math.max(high - low, Math.min(least, to - from)), to - from];
    if (span >= most) return [from, to];
    const middle = Math.min(Math.max((low + high) / 2, from + span / 2), to - span / 2);
    return [middle - span / 2, middle + span / 2];
  };
  const [x0, x1] = axis(win.x0, win.x1, state.full.x0, state.full.x1, 4);
  const [y0, y1] = axis(win.y0, win.y1, state.full.y0, state.full.y1, 64);
  return { x0, x1, y0, y1 };
}

let moving = 0, goal = null;
function go(win, how) {
  goal = clamp(win);
  cancelAnimationFrame(moving);
  if (how === "at once" || calm.matches) {
    state.window = goal;
    draw();
    return;
  }
  const [from, to, begun, time] = [{ ...state.window }, goal, performance.now(), 160];
  const frame = (now) => {
    const part = Math.min(1, Math.max(0, (now - begun) / time)), ease = 1 - (1 - part) ** 3;
    state.window = Object.fromEntries(Object.keys(to).map((key) => [key, from[key] + (to[key] - from[key]) * ease]));
    draw_now();
    if (part < 1) moving = requestAnimationFrame(frame);
  };
  moving = requestAnimationFrame(frame);
}

function zoom(factor, { step, bytes, axis = "time", how } = {}) {
  const win = goal || state.window;
  const [cx, cy] = [step ?? (win.x0 + win.x1) / 2, bytes ?? (win.y0 + win.y1) / 2];
  const [fx, fy] = [axis === "bytes" ? 1 : factor, axis === "time" ? 1 : factor];
  go({ x0: cx + (win.x0 - cx) * fx, x1: cx + (win.x1 - cx) * fx, y0: cy + (win.y0 - cy) * fy, y1: cy + (win.y1 - cy) * fy }, how);
}

function shift(x, y) {
  const win = goal || state.window;
  const [dx, dy] = [(win.x1 - win.x0) * x, (win.y1 - win.y0) * y];
  go({ x0: win.x0 + dx, x1: win.x1 + dx, y0: win.y0 + dy, y1: win.y1 + dy });
}

// Brings a block into view, at a zoom at which it can be seen.
function visit({ map, memory, i }) {
  const pane = panes[map];
  const low = pane.low(i);
  const win = goal || state.window;
  const life = memory.end[i] - memory.start[i], size = memory.size[i];
  const width = Math.max(life * 1.6, Math.min(win.x1 - win.x0, life * 30));
  const height = Math.max(size * 3, Math.min(win.y1 - win.y0, size * 30));
  const [cx, cy] = [(memory.start[i] + memory.end[i]) / 2, low + memory.size[i] / 2];
  go({ x0: cx - width / 2, x1: cx + width / 2, y0: cy - height / 2, y1: cy + height / 2 });
}

function choose(mark, how) {
  state.chosen = mark;
  if (mark && state.tab.buffer !== null && mark.memory.buffer[mark.i] !== state.tab.buffer) {
    const index = TABS.findIndex((tab) => tab.name === state.tab.name && tab.buffer === mark.memory.buffer[mark.i]);
    if (index >= 0) show_tab(index);
    state.chosen = mark;
  }
  show_chosen();
  if (mark && how === "go") visit(mark);
  draw();
}

function choose_step(step, map) {
  const memory = state.tab.memories[map];
  if (!memory) return;
  state.step = Math.min(Math.max(Math.floor(step), memory.first), memory.last - 1);
  state.step_map = map;
  show_alive();
  draw();
}

// The step at which the memory on the screen is fullest, which is what one asks of first.
function choose_peak() {
  const pane = busy_pane();
  const at = pane?.memory.live(pane.buffer).at ?? null;
  Object.assign(state, { step: at, step_map: at === null ? 0 : pane.index });
}

function show_tab(index) {
  state.tab = TABS[index];
  Object.assign(state, { hover: null, chosen: null, pointed: null });
  choose_peak();
  arrange();
  search(byId("search").value);
}

function show_mode(mode) {
  state.mode = mode;
  // What was chosen in a plan that is hidden now would be told of, and not be seen.
  const shown = (map) => shown_panes().some((pane) => pane.index === map);
  if (state.chosen && !shown(state.chosen.map)) state.chosen = null;
  const pane = busy_pane();
  if (!pane || state.step === null) choose_peak();
  else if (!shown(state.step_map)) {
    const at_peak = is_peak(state.tab.memories[state.step_map], state.step);
    state.step_map = pane.index;
    if (at_peak) choose_peak();
  }
  Object.assign(state, { hover: null, pointed: null });
  arrange();
  search(byId("search").value);
  byId("modes").querySelector("[aria-pressed=true]")?.focus();
}

function arrange() {
  const focused = document.activeElement?.getAttribute("role") === "tab";
  byId("panes").replaceChildren(...shown_panes().map((pane) => pane.root));
  panes.forEach((pane) => pane.describe());
  state.full = whole();
  goal = null;
  state.window = { ...state.full };
  show_tabs();
  show_modes();
  show_chosen();
  show_alive();
  if (focused) document.querySelector("[role=tab][aria-selected=true]").focus();
  draw();
}

// Matches of the words in names and operations; /.../ is a regular expression.
function search(text) {
  const query = text.trim().toLowerCase();
  const found = [];
  state.matches = null;
  if (query) {
    const expression = /^\/(.+)\/$/.exec(text.trim());
    let fits = (it) => it.toLowerCase().includes(query);
    if (expression) try { const rule = new RegExp(expression[1], "i"); fits = (it) => rule.test(it); } catch { fits = () => false; }
    const texts = TEXT.map(fits);
    state.matches = new Map();
    // Two plans have mostly the same blocks, so of the first those count that the second has not.
    const names = new Set();
    for (const pane of [...panes].reverse()) {
      const { memory, buffer } = pane;
      if (!memory) continue;
      const hits = new Uint8Array(memory.count), own = [], shown = shown_panes().includes(pane);
      for (const i of memory.byBirth) {
        if ((buffer !== null && memory.buffer[i] !== buffer) || !(texts[memory.label[i]] || texts[memory.operation[i]])) continue;
        hits[i] = 1;
        if (shown && !names.has(memory.label[i])) own.push({ map: pane.index, memory, i });
      }
      for (const { i } of own) names.add(memory.label[i]);
      found.push(...own);
      state.matches.set(memory, hits);
    }
  }
  state.found = found.sort((a, b) => a.memory.start[a.i] - b.memory.start[b.i]);
  state.at = -1;
  const bytes = found.reduce((sum, { memory, i }) => sum + memory.size[i], 0);
  byId("found").textContent = !query ? "" : found.length ? `${found.length.toLocaleString("en")} found, ${human(bytes)}` : "nothing found";
  draw();
}

function next_match(by) {
  if (!state.found.length) return;
  const count = state.found.length;
  state.at = state.at < 0 ? (by > 0 ? 0 : count - 1) : (state.at + by + count) % count;
  byId("found").textContent = `${state.at + 1} of ${state.found.length.toLocaleString("en")}`;
  choose(state.found[state.at], "go");
}

function next_block(by) {
  const pane = state.chosen ? panes[state.chosen.map] : busy_pane();
  if (!pane) return;
  const { memory, buffer, index: map } = pane;
  const order = memory.byBirth.filter((i) => buffer === null || memory.buffer[i] === buffer);
  const at = state.chosen ? order.indexOf(state.chosen.i) : by > 0 ? -1 : order.length;
  const i = order[(at + by + order.length) % order.length];
  choose({ map, memory, i }, "go");
}

function next_step(by) {
  const map = state.step === null ? busy_pane()?.index : state.step_map;
  const memory = state.tab.memories[map];
  if (!memory) return;
  choose_step(state.step === null ? memory.live(state.tab.buffer).at : state.step + by, map);
}

function to_peak() {
  const pane = busy_pane();
  const at = pane?.memory.live(pane.buffer).at ?? null;
  if (at === null) return;
  const width = Math.max(24, (state.full.x1 - state.full.x0) / 12);
  choose_step(at, pane.index);
  go({ ...state.full, x0: at - width / 2, x1: at + width / 2 });
}

function colour_by(by) {
  state.classes = classified(by);
  byId("by").value = by;
  refresh_ink();
}

function refresh_ink() {
  ink = inks(state.classes);
  show_alive();
  draw();
}

// The browser may not let pages that are files remember anything.
function remembered(value) {
  try {
    if (value !== undefined) localStorage.setItem("steeve-theme", value);
    return localStorage.getItem("steeve-theme");
  } catch { return null; }
}

function switch_theme() {
  const theme = ink.dark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remembered(theme);
  refresh_ink();
}

function listen(pane) {
  const { map, curve } = pane;
  const pointers = new Map();
  let moved = 0, last = null;

  // In a window that is too small for the page the wheel scrolls it, unless the map was clicked or a key is held.
  const scrolls = (event) => document.documentElement.scrollHeight > innerHeight + 1
    && !(event.ctrlKey || event.shiftKey || event.altKey) && document.activeElement !== event.currentTarget;

  map.addEventListener("wheel", (event) => {
    if (scrolls(event)) return;
    event.preventDefault();
    const at = pane.at(event, pane.frame);
    const delta = (event.deltaY || event.deltaX) * (event.deltaMode ? 30 : 1);
    const axis = event.shiftKey ? "both" : event.altKey ? "bytes" : "time";
    zoom(Math.exp(Math.max(-240, Math.min(240, delta)) * (event.ctrlKey ? 0.01 : 0.0022)), { ...at, axis, how: event.ctrlKey ? "at once" : undefined });
  }, { passive: false });

  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    moved = 0;
    last = pinch();
    map.classList.add("dragging");
  });

  // The middle and the spread of one or two fingers.
  function pinch() {
    const all = [...pointers.values()];
    const x = all.reduce((sum, it) => sum + it.clientX, 0) / all.length, y = all.reduce((sum, it) => sum + it.clientY, 0) / all.length;
    const spread = all.length > 1 ? Math.hypot(all[0].clientX - all[1].clientX, all[0].clientY - all[1].clientY) : 0;
    return { x, y, spread };
  }

  map.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return hover(event);
    pointers.set(event.pointerId, event);
    const now = pinch(), at = pane.at(event, pane.frame), win = state.window, scale = pane.frame.scale;
    moved += Math.hypot(now.x - last.x, now.y - last.y);
    const [dx, dy] = [(last.x - now.x) * scale / at.per_step, (now.y - last.y) * scale / at.per_byte];
    const factor = now.spread && last.spread ? last.spread / now.spread : 1;
    const [cx, cy] = [at.step, at.bytes];
    const [x0, x1, y0, y1] = [win.x0 + dx, win.x1 + dx, win.y0 + dy, win.y1 + dy];
    go({ x0: cx + (x0 - cx) * factor, x1: cx + (x1 - cx) * factor, y0: cy + (y0 - cy) * factor, y1: cy + (y1 - cy) * factor }, "at once");
    last = now;
    show_tip(event, null);
  });

  for (const name of ["pointerup", "pointercancel"]) map.addEventListener(name, (event) => {
    pointers.delete(event.pointerId);
    if (pointers.size) last = pinch();
    else map.classList.remove("dragging");
    if (name === "pointerup" && moved < 4) {
      const i = pane.hit(pane.at(event, pane.frame));
      choose(i < 0 ? null : { map: pane.index, memory: pane.memory, i });
    }
  });

  function hover(event) {
    const at = pane.at(event, pane.frame);
    const i = at.inside ? pane.hit(at) : -1;
    const mark = i < 0 ? null : { map: pane.index, memory: pane.memory, i };
    if (mark?.i !== state.hover?.i || mark?.map !== state.hover?.map) {
      state.hover = mark;
      map.classList.toggle("over", mark !== null);
      state.tip = mark && fact_list(mark);
      draw();
    }
    show_tip(event, state.tip);
  }

  map.addEventListener("pointerleave", (event) => { state.hover = null; state.tip = null; show_tip(event, null); draw(); });
  map.addEventListener("dblclick", (event) => zoom(0.4, pane.at(event, pane.frame)));

  curve.addEventListener("wheel", (event) => {
    if (scrolls(event)) return;
    event.preventDefault();
    zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY)) * 0.0022), { ...pane.at(event, pane.curve_frame), axis: "time" });
  }, { passive: false });
  curve.addEventListener("pointermove", (event) => {
    const { memory } = pane;
    const at = pane.at(event, pane.curve_frame);
    const step = Math.floor(at.step);
    if (!memory || !at.inside || step < memory.first || step >= memory.last) { state.pointed = null; show_tip(event, null); return draw(); }
    if (event.buttons) choose_step(step, pane.index);
    state.pointed = step;
    const alive = memory.alive(step, state.tab.buffer);
    const bytes = alive.reduce((sum, i) => sum + memory.room[i], 0);
    show_tip(event, [element("p", { class: "named", text: moment(MAPS[pane.index], step) }), element("p", { text: `${exact(bytes)} alive in ${alive.length} blocks` })]);
    draw();
  });
  curve.addEventListener("pointerleave", (event) => { state.pointed = null; show_tip(event, null); draw(); });
  curve.addEventListener("pointerdown", (event) => choose_step(pane.at(event, pane.curve_frame).step, pane.index));
}

function toggle_keys() {
  const keys = byId("keys");
  keys.hidden = !keys.hidden;
  byId("help").setAttribute("aria-expanded", String(!keys.hidden));
  (keys.hidden ? byId("help") : byId("close")).focus();
}

function forget() {
  state.chosen = null;
  choose_peak();
  if (!byId("keys").hidden) toggle_keys();
  byId("search").value = "";
  search("");
  show_chosen();
  show_alive();
  draw();
}

// Layers are offered where any are known.
if (!MAPS.some((map) => map.memories.some((memory) => memory.layer.some((layer) => layer >= 0)))) byId("by").querySelector("[value=layer]").remove();
const COLOURINGS = [...byId("by").options].map((option) => option.value);
const KEYBOARD = {
  ArrowLeft: () => shift(-0.12, 0), ArrowRight: () => shift(0.12, 0), ArrowUp: () => shift(0, 0.12), ArrowDown: () => shift(0, -0.12),
  "0": () => go(state.full), p: to_peak, "/": () => byId("search").focus(), t: switch_theme, "?": toggle_keys, Escape: forget,
  a: () => { state.cropped = !state.cropped; arrange(); },
  ".": () => next_block(1), ",": () => next_block(-1), "]": () => next_step(1), "[": () => next_step(-1),
  c: () => colour_by(COLOURINGS[(COLOURINGS.indexOf(state.classes.by) + 1) % COLOURINGS.length]),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input[type=search], select");
  if (event.ctrlKey || event.metaKey) return;
  if (event.target.id === "search") {
    if (event.key === "Enter") { event.preventDefault(); next_match(event.shiftKey ? -1 : 1); }
    else if (event.key === "Escape") { forget(); shown_panes()[0].map.focus(); }
    return;
  }
  if (event.target.getAttribute?.("role") === "tab" && /^(Arrow(Left|Right)|Home|End)$/.test(event.key)) {
    const at = TABS.indexOf(state.tab), count = TABS.length;
    event.preventDefault();
    return show_tab({ ArrowLeft: (at + count - 1) % count, ArrowRight: (at + 1) % count, Home: 0, End: count - 1 }[event.key]);
  }
  if (typing) return;
  const factor = { "+": 0.7, "=": 0.7, "-": 1 / 0.7, "_": 1 / 0.7, ">": 0.7, "<": 1 / 0.7 }[event.key];
  if (factor) {
    event.preventDefault();
    return zoom(factor, { axis: event.key === ">" || event.key === "<" ? "both" : event.altKey ? "bytes" : "time" });
  }
  if (KEYBOARD[event.key]) { event.preventDefault(); KEYBOARD[event.key](); }
});

const click = (id, act) => byId(id).addEventListener("click", act);
click("in", (event) => zoom(0.6, { axis: event.shiftKey ? "both" : "time" }));
click("out", (event) => zoom(1 / 0.6, { axis: event.shiftKey ? "both" : "time" }));
click("fit", () => go(state.full));
click("peak", to_peak);
click("theme", switch_theme);
click("help", toggle_keys);
click("close", toggle_keys);
click("after", () => next_match(1));
click("before", () => next_match(-1));
click("all", () => { state.classes.shown.fill(true); show_legend(); draw(); });
click("none", () => { state.classes.shown.fill(false); show_legend(); draw(); });
byId("search").addEventListener("input", (event) => search(event.target.value));
byId("by").addEventListener("change", (event) => colour_by(event.target.value));
byId("patterns").addEventListener("change", (event) => { state.patterns = event.target.checked; show_legend(); draw(); });

const theme = remembered();
if (theme && !document.documentElement.dataset.theme) document.documentElement.dataset.theme = theme;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh_ink);
byId("by").value = state.classes.by;
byId("patterns").checked = state.patterns;
ink = inks(state.classes);
panes.forEach(listen);
show_figures();
choose_peak();
arrange();
new ResizeObserver(draw).observe(byId("panes"));

// For those who drive the page by a program.
window.steeve = {
  state,
  maps: MAPS,
  drawn: () => shown_panes().map((pane) => pane.drawn),
  // The block of a name: where on the screen it is.
  point: (map, name) => panes[map].point_of(panes[map].memory.namesake(name, 0)),
  // How long it takes to draw each of some windows between everything and `deepest` of it, in milliseconds.
  measure: (count, deepest = 0.001) => {
    const before = state.window;
    const times = Array.from({ length: count }, (_, n) => {
      const part = deepest ** (n / Math.max(1, count - 1)), full = state.full;
      const [cx, cy] = [(full.x0 + full.x1) / 2, full.y1 * 0.4];
      state.window = clamp({ x0: cx + (full.x0 - cx) * part, x1: cx + (full.x1 - cx) * part, y0: cy + (full.y0 - cy) * part, y1: cy + (full.y1 - cy) * part });
      const begun = performance.now();
      draw_now();
      return performance.now() - begun;
    });
    state.window = before;
    draw();
    return times;
  },
};
