// Which class a block belongs to, what classes are called, and how they look: a colour and a pattern each.

const COLOURS = DATA.light.length;
const SPREAD = [2, 3, 4, 1, 5, 6, 0, 8, 7, 9, 10, 11, 12, 13];
const REST = "other";

const KEYS = {
  role: (memory, i) => DATA.roles[memory.role[i]],
  layer: (memory, i) => memory.layer_of(i),
  operation: (memory, i) => memory.maker_of(i),
  name: (memory, i) => {
    const [name, operation] = [memory.name_of(i), memory.operation_of(i)];
    return no_name(name) && operation ? `(${operation})` : name.replace(/\d+/g, "#");
  },
};

// Buckets of a quantity by its largest value, in steps of four.
function bucketed(of, what) {
  const COLOUR = [1, 3, 6, 4, 9];
  const most = Math.max(1, ...MAPS.flatMap((map) => map.memories.map((memory) => memory.start.reduce((max, _, i) => Math.max(max, of(memory, i)), 0))));
  const last = COLOUR.length - 1;
  const title = (bucket) => (bucket === 0 ? `above 1/2 of the ${what}` : bucket === last ? `up to 1/${2 ** (2 * last - 1)}` : `above 1/${2 ** (2 * bucket + 1)}`);
  const bucket = (value) => {
    for (let [at, limit] = [0, most / 2]; at < last; at++, limit /= 4) if (value > limit) return at;
    return last;
  };
  return { titles: COLOUR.map((_, at) => title(at)), colours: COLOUR, of: (memory, i) => bucket(of(memory, i)) };
}

// Roles keep their colours; of names and operations those with most bytes have one of their own.
function keyed(by) {
  const key = KEYS[by];
  const kinds = new Map();
  for (const memory of MAPS.flatMap((map) => map.memories)) {
    for (let i = 0; i < memory.count; i++) {
      const kind = key(memory, i);
      kinds.set(kind, (kinds.get(kind) || 0) + memory.size[i]);
    }
  }
  if (by === "role") {
    const titles = DATA.roles.filter((role) => kinds.has(role));
    const at = new Map(titles.map((title, i) => [title, i]));
    return { titles, colours: titles.map((title) => Math.min(DATA.roles.indexOf(title), COLOURS - 1)), of: (memory, i) => at.get(key(memory, i)) };
  }
  // Layers come in their order, so neighbours in the map lie apart in the palette. Classes are bytes, so there are no more.
  if (by === "layer") {
    const MOST = 250;
    const all = [...new Set(MAPS.flatMap((map) => map.memories.flatMap((memory) => [...memory.layer])))].sort((a, b) => a - b);
    const layers = all.slice(0, MOST);
    const at = new Map(layers.map((layer, i) => [layer, i]));
    const more = all.length > MOST;
    const titles = [...layers.map((layer) => (layer < 0 ? "no layer" : `layer ${layer}`)), ...(more ? ["more layers"] : [])];
    const colours = [...layers.map((layer) => (layer < 0 ? COLOURS - 1 : SPREAD[layer % (COLOURS - 1)])), ...(more ? [COLOURS - 1] : [])];
    return { titles, colours, of: (memory, i) => at.get(memory.layer[i]) ?? titles.length - 1 };
  }
  const ranked = [...kinds].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([title]) => title);
  const own = ranked.length > COLOURS ? ranked.slice(0, COLOURS - 1).filter((title) => title !== REST) : ranked;
  const titles = own.length < ranked.length ? [...own, REST] : own;
  const at = new Map(own.map((title, i) => [title, i]));
  return { titles, colours: titles.map((title, i) => (title === REST ? COLOURS - 1 : SPREAD[i])), of: (memory, i) => at.get(key(memory, i)) ?? titles.length - 1 };
}

// What is drawn best by default: roles if they tell anything of most blocks, names if there are a few, else sizes.
function fitting() {
  const plain = new Set(["input", "output", REST]);
  const memories = MAPS.flatMap((map) => map.memories);
  const all = memories.reduce((sum, memory) => sum + memory.count, 0);
  const unknown = memories.reduce((sum, memory) => sum + memory.role.filter((role) => DATA.roles[role] === REST).length, 0);
  if (keyed("role").titles.filter((title) => !plain.has(title)).length > 1 && 2 * unknown < all) return "role";
  const names = new Set(memories.flatMap((memory) => Array.from(memory.start, (_, i) => KEYS.name(memory, i))));
  return names.size > 1 && names.size <= COLOURS ? "name" : "size";
}

// Classes of all blocks: `classes.of.get(memory)[i]` is an index into `titles`.
function classified(by) {
  const rule = by === "size" ? bucketed((memory, i) => memory.size[i], "largest")
    : by === "life" ? bucketed((memory, i) => memory.end[i] - memory.start[i], "longest")
    : keyed(by);
  const of = new Map();
  for (const memory of MAPS.flatMap((map) => map.memories)) {
    of.set(memory, Uint8Array.from(memory.start, (_, i) => rule.of(memory, i)));
  }
  // A role keeps its pattern as it keeps its colour, whatever other roles there are.
  const patterns = rule.colours.map((colour, index) => (by === "role" ? colour : index) % PATTERNS.length);
  return { by, titles: rule.titles, colours: rule.colours, patterns, of, shown: rule.titles.map(() => true) };
}

const parse = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const mix = (a, b, part) => a.map((it, i) => Math.round(it + (b[i] - it) * part));
const packed = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
const bright = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 150;

// The colours of the theme, ready for pixels: plain, faded, edge and pattern of each class.
function inks(classes) {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const ground = parse(value("--map"));
  const dark = !bright(ground);
  const palette = (dark ? DATA.dark : DATA.light).map(parse);
  const own = classes.colours.map((colour) => palette[colour]);
  return {
    dark, value, ground: packed(ground),
    plain: Uint32Array.from(own, (it) => packed(it)),
    faded: Uint32Array.from(own, (it) => packed(mix(it, ground, 0.84))),
    edge: Uint32Array.from(own, (it) => packed(mix(it, ground, 0.45))),
    mark: Uint32Array.from(own, (it) => packed(dark ? mix(it, ground, 0.3) : mix(it, [255, 255, 255], 0.32))),
    css: own.map(css), text: own.map((it) => (bright(it) ? "#10151c" : "#ffffff")),
  };
}

// Eight patterns, each a rule for the pixels of an 8 by 8 square. The first is plain.
const PATTERNS = [
  () => false,
  (x, y) => (x + y) % 8 < 2,
  (x, y) => x % 4 === 1 && y % 4 === 1,
  (x, y) => y % 4 === 1,
  (x, y) => (x - y + 8) % 8 < 2,
  (x, y) => x % 4 === 1,
  (x, y) => x % 8 === 3 || y % 8 === 3,
  (x, y) => (x >> 2 & 1) === (y >> 2 & 1),
].map((rule) => {
  const marks = [];
  for (let y = 0; y < 8; y++) for (let x = 0; x < 8; x++) if (rule(x, y)) marks.push([x, y]);
  return marks;
});
