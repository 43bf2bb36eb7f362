// A memory as pixels. Blocks of a plan never overlap, so filling them one by one writes each pixel about once, whatever
// their number: that is all the level of detail that is needed. What is smaller than a pixel is one pixel, and small
// blocks come last so that they stay visible.

class Raster {
  constructor() { this.width = 0; this.height = 0; }

  resize(width, height) {
    if (this.width === width && this.height === height) return;
    [this.width, this.height] = [width, height];
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  rect(left, top, right, bottom, ink) {
    const { pixels, width } = this;
    if (right - left === 1) {
      for (let at = top * width + left, end = bottom * width + left; at < end; at += width) pixels[at] = ink;
      return;
    }
    for (let y = top; y < bottom; y++) pixels.fill(ink, y * width + left, y * width + right);
  }

  // Marks of a pattern that is fixed to the block, not to the window.
  pattern(box, marks, ink) {
    const { pixels, width } = this;
    const [fromX, fromY] = [box.left + (((box.x - box.left) % 8) + 8) % 8 - 8, box.top + (((box.y - box.top) % 8) + 8) % 8 - 8];
    for (const [mx, my] of marks) {
      for (let y = fromY + my; y < box.bottom; y += 8) {
        if (y < box.top) continue;
        for (let x = fromX + mx; x < box.right; x += 8) if (x >= box.left) pixels[y * width + x] = ink;
      }
    }
  }
}

// Fills the raster with the blocks of a memory within a window of steps and bytes. Answers which are large enough for a
// label, largest first, and how many were drawn at all.
function rasterise(raster, memory, scene) {
  const { window: win, buffer, classes, ink, matches, patterns, scale } = scene;
  const { width: W, height: H, pixels } = raster;
  const [sx, sy] = [W / (win.x1 - win.x0), H / (win.y1 - win.y0)];
  const of = classes.of.get(memory);
  const shown = Uint8Array.from(classes.shown, Number);
  const { start, end, offset, size, order, base } = memory;
  const labels = [];
  let drawn = 0;
  pixels.fill(ink.ground);
  for (let n = 0; n < order.length; n++) {
    const i = order[n];
    if (buffer !== null && memory.buffer[i] !== buffer) continue;
    if (start[i] >= win.x1 || end[i] <= win.x0) continue;
    const low = offset[i] + (buffer === null ? base[memory.buffer[i]] : 0);
    if (low >= win.y1 || low + size[i] <= win.y0) continue;
    const kind = of[i];
    if (!shown[kind]) continue;
    drawn++;
    const x = Math.round((start[i] - win.x0) * sx), y = H - Math.round((low + size[i] - win.y0) * sy);
    const x2 = Math.max(x + 1, Math.round((end[i] - win.x0) * sx)), y2 = Math.max(y + 1, H - Math.round((low - win.y0) * sy));
    const left = x < 0 ? 0 : x >= W ? W - 1 : x, top = y < 0 ? 0 : y >= H ? H - 1 : y;
    const right = x2 > W ? W : x2 <= left ? left + 1 : x2, bottom = y2 > H ? H : y2 <= top ? top + 1 : y2;
    const faded = matches !== null && !matches[i];
    const fill = faded ? ink.faded[kind] : ink.plain[kind];
    if (right - left === 1 && bottom - top === 1) {
      pixels[top * W + left] = fill;
      continue;
    }
    raster.rect(left, top, right, bottom, fill);
    if (right - left < 3 || bottom - top < 3) continue;
    if (patterns && !faded && right - left >= 8 && bottom - top >= 8) {
      raster.pattern({ left, top, right, bottom, x, y }, PATTERNS[classes.patterns[kind]], ink.mark[kind]);
    }
    const edge = faded ? ink.ground : ink.edge[kind];
    if (x2 <= W) raster.rect(right - 1, top, right, bottom, edge);
    if (y >= 0) raster.rect(left, top, right, top + 1, edge);
    if (right - left > 44 * scale && bottom - top > 12 * scale && labels.length < 240 && !faded) {
      labels.push({ i, left, top, right, bottom });
    }
  }
  return { labels, drawn };
}

// Round numbers for an axis: 1, 2 or 5 times a power of ten; for bytes powers of two.
function ticks(low, high, wanted, binary) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [];
  let step;
  if (binary) step = 2 ** Math.ceil(Math.log2(rough));
  else {
    const power = 10 ** Math.floor(Math.log10(rough));
    step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough);
  }
  step = Math.max(1, step);
  const list = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) list.push(at);
  return list;
}

// As short as an axis needs it.
function tick_label(bytes) {
  if (bytes === 0) return "0";
  return human(bytes).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 ");
}
