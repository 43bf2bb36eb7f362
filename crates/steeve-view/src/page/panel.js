// What is shown beside the map: figures, tabs, legend, the chosen block, what is alive at a step.

const byId = (id) => document.getElementById(id);

function element(tag, { text, ...rest } = {}, ...children) {
  const it = document.createElement(tag);
  if (text !== undefined) it.textContent = text;
  for (const [name, value] of Object.entries(rest)) {
    if (name.startsWith("on")) it.addEventListener(name.slice(2), value);
    else if (name === "class") it.className = value;
    else it.setAttribute(name, value);
  }
  it.append(...children);
  return it;
}

// The end of a run is no node any more.
function moment(map, step) {
  if (map.shift && map.nodes.length && step > map.nodes.length / 2) return "after the run";
  const what = running(map, step);
  return what ? `${step_name(map, step)} (${what})` : step_name(map, step);
}

const list = (memory, blocks, most) => {
  const names = blocks.slice(0, most).map((i) => memory.title_of(i));
  return blocks.length > most ? `${names.join(", ")} and ${blocks.length - most} more` : names.join(", ");
};

// Everything that is known of a block, as pairs.
function facts({ map, memory, i }) {
  const plan = MAPS[map];
  const rows = [];
  const row = (name, value) => { if (value) rows.push([name, value]); };
  row("operation", memory.operation_of(i));
  row("shape", TEXT[memory.layout[i]]);
  row("role", DATA.roles[memory.role[i]]);
  row("layer", memory.layer[i] < 0 ? "" : String(memory.layer[i]));
  row("bytes", exact(memory.size[i]) + (memory.room[i] > memory.size[i] ? `, takes ${memory.room[i].toLocaleString("en")}` : ""));
  row("offset", exact(memory.offset[i]) + (memory.buffers.length > 1 ? ` in buffer ${memory.buffer[i]}` : ""));
  row("first use", moment(plan, memory.start[i]));
  last_use_rows(plan, memory, i).forEach(([name, value]) => row(name, value));
  if (memory.follows[i] >= 0) row("in place of", memory.name_of(memory.follows[i]));
  if (memory.taker[i] >= 0) row("taken over by", memory.name_of(memory.taker[i]));
  const also = memory.also.get(i);
  if (also) row("same bytes", also.map((text) => TEXT[text]).join(", "));
  const { before, after } = memory.sharing(i);
  row("shares with", before.length + after.length ? "" : DATA.steps ? `no other block at these ${plan.unit}s` : "no other block");
  row("before it", list(memory, before, 3));
  row("after it", list(memory, after, 3));
  MAPS.forEach((other, index) => {
    const there = index === map ? null : other.memories.find((it) => it.name === memory.name);
    if (!there) return;
    const j = there.namesake(memory.name_of(i), memory.start[i]);
    row(`in ${other.name}`, j < 0 ? "not there" : `offset ${exact(there.offset[j])}${there.buffers.length > 1 ? ` in buffer ${there.buffer[j]}` : ""}`);
  });
  return rows;
}

// Why a block is alive until it ends: what reads it last, and how long its bytes are kept behind that.
function last_use_rows(plan, memory, i) {
  // A node that takes over the bytes of a block reads them at the step at which the block has ended.
  const taken = plan.shift && memory.taker[i] >= 0 && memory.end[i] === memory.start[memory.taker[i]];
  const [last, until] = [memory.last_use[i], memory.end[i] - 1];
  const end = plan.shift && plan.nodes.length && until >= plan.nodes.length / 2 ? "the end of the run" : moment(plan, until);
  if (last === 0) return [["last use", moment(plan, taken ? memory.end[i] : until) + (taken ? ", which takes over its bytes" : "")]];
  if (last > 0) return [["last read by", moment(plan, last) + (taken && last === memory.end[i] ? ", which takes over its bytes" : "")], ...(until > last ? [["alive until", end]] : [])];
  return [["last use", DATA.last_uses[-last]], ["alive until", end]];
}

// The same in a few words.
const reason = (plan, memory, i) => (memory.last_use[i] > 0 ? `last read by ${moment(plan, memory.last_use[i])}` : DATA.last_uses[-memory.last_use[i]]);

function fact_list(mark) {
  const rows = facts(mark).flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]);
  return [element("p", { class: "named", text: mark.memory.name_of(mark.i).trim() || "(no name)" }), element("dl", { class: "facts" }, ...rows)];
}

function show_chosen() {
  byId("chosen").replaceChildren(...(state.chosen ? fact_list(state.chosen) : [element("p", { class: "dim", text: "Point at a block, or press . and , to go from one to the next." })]));
}

function show_tip(event, content) {
  const tip = byId("tip");
  tip.hidden = !content;
  if (!content) return;
  tip.replaceChildren(...content);
  const [gap, box] = [14, tip.getBoundingClientRect()];
  const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
  const top = event.clientY + gap + box.height > innerHeight ? Math.max(4, innerHeight - box.height - 6) : event.clientY + gap;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${top}px`;
}

// Whether the memory or buffer on the screen is fullest at a step.
const is_peak = (memory, step) => memory.live(state.tab.buffer).at === step;

function show_alive() {
  const box = byId("alive");
  const memory = state.step === null ? null : state.tab.memories[state.step_map];
  show_legend();
  if (!memory) {
    box.replaceChildren(element("p", { class: "dim", text: "Nothing needs memory here." }));
    return;
  }
  const SHOWN = 100;
  const map = MAPS[state.step_map];
  const alive = memory.alive(state.step, state.tab.buffer);
  const bytes = alive.reduce((sum, i) => sum + memory.room[i], 0);
  const of = state.classes.of.get(memory);
  const whose = MAPS.length > 1 ? `${map.name}, ` : "";
  const row = (i) => {
    const [name, why] = [memory.title_of(i), reason(map, memory, i)];
    return element("tr", {}, element("td", {}, element("button", { type: "button", onclick: () => choose({ map: state.step_map, memory, i }, "go") },
      element("i", { style: `background:${ink.css[of[i]]}` }), element("span", { class: "name", text: name, title: why ? `${name}: ${why}` : name }), element("span", { class: "bytes", text: human(memory.room[i]) }))));
  };
  box.replaceChildren(
    element("p", { class: "named", text: `${whose}${moment(map, state.step)}` }),
    element("p", { class: "dim", text: `${alive.length.toLocaleString("en")} alive, ${exact(bytes)}${is_peak(memory, state.step) ? ", the peak" : ""}` }),
    // Of the blocks of a list, neither is known.
    ...["role", "layer"].filter((by) => map.shift && by !== state.classes.by).flatMap((by) => sum_list(memory, by, bytes)),
    element("table", { class: "alive-list", "aria-label": "Alive, largest first" }, element("tbody", {}, ...alive.slice(0, SHOWN).map(row))),
    ...(alive.length > SHOWN ? [element("p", { class: "dim", text: `and ${(alive.length - SHOWN).toLocaleString("en")} more with ${human(alive.slice(SHOWN).reduce((sum, i) => sum + memory.room[i], 0))}` })] : []),
  );
}

// Live bytes by role or by layer; nothing where that tells nothing.
function sum_list(memory, by, all) {
  const SHOWN = 6;
  const sums = memory.sums(state.step, state.tab.buffer, KEYS[by]);
  if (sums.length < 2) return [];
  const rest = sums.slice(SHOWN).reduce((sum, [, bytes]) => sum + bytes, 0);
  const shown = [...sums.slice(0, SHOWN), ...(rest ? [[`${sums.length - SHOWN} more`, rest]] : [])];
  const row = ([title, bytes]) => element("li", { style: `--part:${(bytes / all * 100).toFixed(2)}%` }, element("span", { class: "name", text: title, title }), element("span", { class: "bytes", text: human(bytes) }));
  return [element("ul", { class: "sums", "aria-label": `Live bytes by ${by}` }, ...shown.map(row))];
}

// Bytes of each class that are alive at a step.
function class_bytes(memory, step) {
  const [of, bytes] = [state.classes.of.get(memory), state.classes.titles.map(() => 0)];
  for (const i of memory.alive(step, state.tab.buffer)) bytes[of[i]] += memory.room[i];
  return bytes;
}

function show_legend() {
  const SHOWN = 18;
  const { classes } = state;
  const counts = classes.titles.map(() => 0);
  // Of two plans the one is counted that has more of a kind: mostly they have the same blocks.
  for (const { memory, buffer } of shown_panes()) {
    if (!memory) continue;
    const [of, own] = [classes.of.get(memory), classes.titles.map(() => 0)];
    for (let i = 0; i < memory.count; i++) if (buffer === null || memory.buffer[i] === buffer) own[of[i]]++;
    own.forEach((count, kind) => { counts[kind] = Math.max(counts[kind], count); });
  }
  const memory = state.step === null ? null : state.tab.memories[state.step_map];
  const bytes = memory ? class_bytes(memory, state.step) : counts.map(() => 0);
  const most = memory ? class_bytes(memory, memory.live(state.tab.buffer).at) : bytes;
  const all = bytes.reduce((sum, it) => sum + it, 0) || 1;
  byId("legend-note").textContent = memory ? `Bytes alive ${step_name(MAPS[state.step_map], state.step).replace(/^(?=node|step)/, "at ")}${is_peak(memory, state.step) ? ", the peak" : ""}` : "";
  const entry = (index) => {
    const title = classes.titles[index], blocks = `${counts[index].toLocaleString("en")} ${counts[index] === 1 ? "block" : "blocks"}`;
    const swatch = element("canvas", { width: 18, height: 14, "aria-hidden": "true" });
    paint_swatch(swatch, index);
    const button = element("button", { type: "button", "aria-pressed": String(classes.shown[index]), "data-blocks": counts[index], style: `--part:${(bytes[index] / all * 100).toFixed(2)}%`,
      title: `${title}: ${blocks}. Click to hide or show; with Shift to show nothing else`, onclick: (event) => toggle_class(index, event.shiftKey) },
      swatch, element("span", { class: "name", text: title }), element("span", { class: "count", text: bytes[index] ? human(bytes[index]) : "–" }));
    return element("li", {}, button);
  };
  // What has most bytes at the peak comes first, so that nothing changes its place from step to step.
  const present = classes.titles.map((_, index) => index).filter((index) => counts[index]);
  const order = present.sort((a, b) => most[b] - most[a] || a - b);
  const [shown, rest] = [order.slice(0, SHOWN), order.slice(SHOWN)];
  // The keyboard's focus stays where it is.
  const focused = [...byId("legend").querySelectorAll("button")].findIndex((it) => it === document.activeElement);
  byId("legend").replaceChildren(...shown.map(entry), ...(rest.length ? [element("li", { class: "dim", text: `and ${rest.length} more` })] : []));
  if (focused >= 0) byId("legend").querySelectorAll("button")[focused]?.focus();
}

function paint_swatch(canvas, index) {
  const raster = new Raster();
  raster.resize(canvas.width, canvas.height);
  raster.rect(0, 0, canvas.width, canvas.height, ink.plain[index]);
  if (state.patterns) raster.pattern({ left: 0, top: 0, right: canvas.width, bottom: canvas.height, x: 0, y: 0 }, PATTERNS[state.classes.patterns[index]], ink.mark[index]);
  canvas.getContext("2d").putImageData(raster.image, 0, 0);
}

function toggle_class(index, alone) {
  const { shown } = state.classes;
  if (alone) shown.fill(false).splice(index, 1, true);
  else shown[index] = !shown[index];
  show_legend();
  draw();
}

// Totals over all memories, and what the second plan saves.
function show_figures() {
  const total = (map) => map.memories.reduce((sum, memory) => sum + memory.peak(null), 0);
  const bound = (map) => map.memories.reduce((sum, memory) => sum + memory.bound, 0);
  const figure = (value, label, tone = "") => element("div", { class: `figure ${tone}` }, element("b", { text: value }), element("span", { text: label }));
  const last = MAPS[MAPS.length - 1];
  const list = MAPS.map((map) => figure(human(total(map)), map.name));
  if (MAPS.length === 2) {
    const [before, after] = MAPS.map(total);
    const less = before - after;
    const part = Math.abs(less / before * 100);
    const percent = !before ? "" : part < 0.05 ? ", under 0.1 %" : `, ${part.toFixed(1)} %`;
    const label = less === 0 ? "the same size" : `${less > 0 ? "less" : "more"} (${Math.abs(less).toLocaleString("en")} bytes${percent})`;
    list.push(figure(human(Math.abs(less)), label, less > 0 ? "good" : less < 0 ? "bad" : ""));
  }
  const [peak, least] = [total(last), bound(last)];
  list.push(figure(human(least), peak === least ? "lower bound, reached" : `lower bound, × ${(Math.ceil(peak / least * 1e4 - 1e-6) / 1e4).toFixed(4)}`, peak === least ? "good" : ""));
  byId("figures").replaceChildren(...list);
  const blocks = last.memories.reduce((sum, memory) => sum + memory.count, 0);
  const number = (it) => it.toLocaleString("en");
  const nodes = last.shift && last.nodes.length ? `${number(last.nodes.length / 2)} nodes` : "";
  const memories = last.memories.length === 1 ? "" : ` in ${last.memories.length} memories`;
  const counted = `${number(blocks)} blocks${memories}`;
  const [from, until] = [FROM - last.shift, Math.min(UNTIL - last.shift, last.nodes.length / 2 || Infinity)];
  const part = `${last.unit}s ${number(from)} to ${number(until - 1)}${nodes ? ` of ${number(last.nodes.length / 2)}` : ""} with ${counted}`;
  byId("subtitle").textContent = `${DATA.steps ? part : [nodes, counted].filter(Boolean).join(", ")} · steeve ${DATA.version}`;
}

function show_tabs() {
  const bar = byId("tabs");
  bar.hidden = TABS.length < 2 && MAPS.length < 2 && TABS[0]?.name === "memory";
  bar.replaceChildren(...TABS.map((tab, index) => {
    const name = tab.buffer === null ? tab.name : `${tab.name} · ${tab.buffer}`;
    const sizes = tab.memories.map((memory) => (memory ? human(memory.peak(tab.buffer)) : "–")).join(" → ");
    const chosen = tab === state.tab;
    return element("button", { type: "button", role: "tab", id: `tab-${index}`, "aria-selected": String(chosen), "aria-controls": "panes", tabindex: chosen ? "0" : "-1",
      onclick: () => show_tab(index) }, `${name} `, element("small", { text: sizes }));
  }));
}

function show_modes() {
  const modes = MAPS.length < 2 ? [] : [...MAPS.map((map, index) => [map.name, index]), ["both", "both"]];
  byId("modes").hidden = modes.length === 0;
  byId("modes").replaceChildren(...modes.map(([text, mode]) => element("button", { type: "button", text, "aria-pressed": String(state.mode === mode), onclick: () => show_mode(mode) })));
}
