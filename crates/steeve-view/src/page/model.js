// What the page was given, as typed arrays, and what follows from it: live bytes, which blocks share bytes.

const DATA = JSON.parse(document.getElementById("data").textContent);
const TEXT = DATA.strings;
// The steps that are shown, the end left out.
const [FROM, UNTIL] = DATA.steps || [-Infinity, Infinity];

// One memory of one map. `base` is where each buffer starts when they are stacked on each other.
class Memory {
  constructor(data) {
    const count = data.start.length;
    this.name = data.name;
    this.buffers = data.buffers;
    this.bound = data.bound;
    this.count = count;
    this.start = Float64Array.from(data.start);
    this.end = Float64Array.from(data.start, (start, i) => start + data.steps[i]);
    this.buffer = data.buffer ? Int32Array.from(data.buffer) : new Int32Array(count);
    this.offset = Float64Array.from(data.offset);
    this.size = Float64Array.from(data.size);
    this.room = data.padding ? Float64Array.from(data.size, (size, i) => size + data.padding[i]) : this.size;
    this.shared = data.shared || [];
    this.label = data.label;
    this.operation = data.operation;
    this.leaf = data.leaf;
    this.layout = data.layout;
    this.role = data.role;
    this.layer = data.layer ? Int32Array.from(data.layer, (layer) => layer - 1) : new Int32Array(count).fill(-1);
    this.last_use = data.last ? Float64Array.from(data.last) : new Float64Array(count);
    this.used = data.used;
    this.follows = data.follows ? Int32Array.from(data.follows, (before) => before - 1) : new Int32Array(count).fill(-1);
    this.taker = new Int32Array(count).fill(-1);
    this.follows.forEach((before, i) => { if (before >= 0) this.taker[before] = i; });
    this.also = new Map(data.also || []);
    this.base = new Float64Array(this.buffers.length + 1);
    this.buffers.forEach((size, i) => { this.base[i + 1] = this.base[i] + size; });
    // Large ones first, so that small ones are drawn over them and are not lost.
    this.order = Int32Array.from(this.start, (_, i) => i).sort((a, b) => this.size[b] - this.size[a] || a - b);
    this.byBirth = Int32Array.from(this.start, (_, i) => i).sort((a, b) => this.start[a] - this.start[b] || this.size[b] - this.size[a] || a - b);
    this.first = Math.max(FROM, this.start.reduce((least, it) => Math.min(least, it), Infinity));
    this.last = Math.min(UNTIL, this.end.reduce((most, it) => Math.max(most, it), -Infinity));
  }

  // The steps to draw: those at which nodes use the memory and the fullest one. A few more at either end are not worth a
  // cut.
  crop(buffer) {
    const { first, last } = this;
    if (!this.used) return [first, last];
    const { at } = this.live(buffer);
    const [from, until] = [Math.max(first, Math.min(this.used[0], at ?? Infinity)), Math.min(last, Math.max(this.used[1], (at ?? 0) + 1))];
    const worth = Math.max(4, (last - first) / 20);
    return [from - first > worth ? from : first, last - until > worth ? until : last];
  }

  peak(buffer) { return buffer === null ? this.base[this.buffers.length] : this.buffers[buffer] || 0; }
  name_of(i) { return TEXT[this.label[i]]; }
  operation_of(i) { return TEXT[this.operation[i]]; }
  // What makes a block; where no operation does, what it is instead.
  maker_of(i) { return this.operation_of(i) || DATA.leafs[this.leaf ? this.leaf[i] : 0]; }
  // A name to list a block by: where it has none, what makes it and its shape.
  title_of(i) {
    const name = this.name_of(i);
    if (!no_name(name)) return name;
    const made = [this.operation_of(i), TEXT[this.layout[i]]].filter(Boolean).join(" ");
    return [/^\S/.test(name) ? name : "", made].filter(Boolean).join(" · ") || name.trim() || "(no name)";
  }
  layer_of(i) { return this.layer[i] < 0 ? "no layer" : `layer ${this.layer[i]}`; }

  // Bytes that are alive at a step by what `key` says of blocks, the most first.
  sums(step, buffer, key) {
    const sums = new Map();
    for (const i of this.alive(step, buffer)) sums.set(key(this, i), (sums.get(key(this, i)) || 0) + this.room[i]);
    return [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  // Live bytes from each step at which they change: all of the memory, or one buffer of it.
  live(buffer) {
    this.curves ??= new Map();
    if (this.curves.has(buffer)) return this.curves.get(buffer);
    const changes = [];
    for (let i = 0; i < this.count; i++) {
      if (buffer !== null && this.buffer[i] !== buffer) continue;
      changes.push([Math.max(FROM, this.start[i]), this.room[i]], [Math.min(UNTIL, this.end[i]), -this.room[i]]);
    }
    // What a result and its source have at once counts once.
    for (const [step, other, bytes] of this.shared) {
      if (buffer === null || buffer === other) changes.push([step, -bytes], [step + 1, bytes]);
    }
    changes.sort((a, b) => a[0] - b[0]);
    const steps = [], bytes = [];
    let live = 0, most = 0, at = null;
    for (let i = 0; i < changes.length; i++) {
      live += changes[i][1];
      if (i + 1 < changes.length && changes[i + 1][0] === changes[i][0]) continue;
      steps.push(changes[i][0]);
      bytes.push(live);
      if (live > most) [most, at] = [live, changes[i][0]];
    }
    const curve = { steps, bytes, most, at };
    this.curves.set(buffer, curve);
    return curve;
  }

  // The blocks that are alive at a step, largest first.
  alive(step, buffer) {
    const alive = [];
    for (const i of this.order) {
      if (this.start[i] <= step && step < this.end[i] && (buffer === null || this.buffer[i] === buffer)) alive.push(i);
    }
    return alive;
  }

  // The blocks that have some of the same bytes at another time.
  sharing(i) {
    const [low, high, buffer] = [this.offset[i], this.offset[i] + this.size[i], this.buffer[i]];
    const before = [], after = [];
    for (let j = 0; j < this.count; j++) {
      if (j === i || this.buffer[j] !== buffer || this.offset[j] >= high || this.offset[j] + this.size[j] <= low) continue;
      if (this.end[j] <= this.start[i]) before.push(j);
      else if (this.start[j] >= this.end[i]) after.push(j);
    }
    before.sort((a, b) => this.end[b] - this.end[a] || this.size[b] - this.size[a]);
    after.sort((a, b) => this.start[a] - this.start[b] || this.size[b] - this.size[a]);
    return { before, after };
  }

  // The block of that name which is alive closest to a step, for the other plan of a comparison.
  namesake(name, step) {
    if (!this.names) {
      this.names = new Map(this.label.map((label) => [TEXT[label], []]));
      this.label.forEach((label, i) => this.names.get(TEXT[label]).push(i));
    }
    const found = this.names.get(name) || [];
    return found.reduce((best, i) => (best < 0 || Math.abs(this.start[i] - step) < Math.abs(this.start[best] - step) ? i : best), -1);
  }
}

// What ggml calls a tensor that has no name.
const no_name = (name) => /^($|[ #]|(node|leaf)_\d+( |$))/.test(name);

const MAPS = DATA.maps.map((map) => ({
  name: map.name,
  unit: map.unit,
  // Steps of a graph are nodes, counted from 0; the step before them is before the run.
  shift: map.unit === "node" ? 1 : 0,
  nodes: map.nodes,
  memories: map.memories.map((memory) => new Memory(memory)),
}));

// One tab for each memory, and one for each buffer where a memory has several in any of the plans.
function tabs() {
  const names = [...new Set(MAPS.flatMap((map) => map.memories.map((memory) => memory.name)))];
  return names.flatMap((name) => {
    const memories = MAPS.map((map) => map.memories.find((memory) => memory.name === name) || null);
    const buffers = Math.max(...memories.map((memory) => (memory ? memory.buffers.length : 0)));
    const whole = { name, memories, buffer: null };
    const each = Array.from({ length: buffers }, (_, buffer) => ({ name, memories, buffer }));
    return buffers > 1 ? [whole, ...each] : [whole];
  });
}

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// 1536 as 1.50 KiB.
function human(bytes) {
  const size = Math.abs(bytes);
  if (size < 1024) return `${bytes} B`;
  let [value, unit] = [size / 1024, 0];
  while (value >= 1023.995 && unit + 1 < UNITS.length) [value, unit] = [value / 1024, unit + 1];
  return `${bytes < 0 ? "−" : ""}${value.toFixed(2)} ${UNITS[unit]}`;
}

const exact = (bytes) => `${human(bytes)}${Math.abs(bytes) < 1024 ? "" : ` (${bytes.toLocaleString("en")})`}`;

function step_name(map, step) {
  return step < map.shift ? "before the run" : `${map.unit} ${step - map.shift}`;
}

// What runs at a step, where that is known.
function running(map, step) {
  const at = 2 * (step - 1);
  if (!map.shift || at < 0 || at >= map.nodes.length) return "";
  const [name, operation] = [TEXT[map.nodes[at]], TEXT[map.nodes[at + 1]]];
  // A name such as node_12 says no more than the step.
  return [no_name(name) ? "" : name, operation].filter(Boolean).join(", ");
}
