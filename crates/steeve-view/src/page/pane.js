// One plan on the screen: its map, and the curve of live bytes below it.

const GUTTER = 66, FOOT = 20, TOP = 8, RIGHT = 10;

class Pane {
  constructor(index) {
    this.index = index;
    this.raster = new Raster();
    this.root = document.createElement("section");
    this.root.className = "pane";
    this.title = this.root.appendChild(document.createElement("h2"));
    this.map = this.canvas("map", `map-${index}`);
    this.curve = this.canvas("curve", `curve-${index}`);
  }

  canvas(kind, id) {
    const box = this.root.appendChild(document.createElement("div"));
    box.className = kind;
    const canvas = box.appendChild(document.createElement("canvas"));
    canvas.id = id;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    return canvas;
  }

  get memory() { return state.tab.memories[this.index]; }
  get buffer() { return state.tab.buffer; }
  peak() { return this.memory ? this.memory.peak(this.buffer) : 0; }
  // The bound of a memory holds for all its buffers together.
  bound() { return this.buffer === null && this.memory ? this.memory.bound : this.memory ? this.memory.live(this.buffer).most : 0; }
  count() {
    if (!this.memory) return 0;
    return this.buffer === null ? this.memory.count : this.memory.buffer.filter((it) => it === this.buffer).length;
  }

  // A finger that the map has no use for scrolls the page.
  touch() {
    const { window: win, full } = state;
    this.map.style.touchAction = win.y0 <= full.y0 && win.y1 >= full.y1 ? "pan-y" : "none";
    this.curve.style.touchAction = "pan-y";
  }

  describe() {
    const [map, memory] = [MAPS[this.index], this.memory];
    const place = state.tab.buffer === null ? state.tab.name : `${state.tab.name}, buffer ${state.tab.buffer}`;
    this.title.replaceChildren(map.name, ...[`${this.count().toLocaleString("en")} blocks`, human(this.peak())].map((it) => element("span", { text: it })));
    if (memory && this.buffer === null) {
      const [peak, bound] = [this.peak(), this.bound()];
      const above = peak === bound ? "no plan is smaller" : `bound ${human(bound)}`;
      this.title.append(element("span", { text: above }));
    }
    if (memory && state.cropped) {
      const [from, until] = memory.crop(this.buffer);
      const number = (step) => (step - map.shift).toLocaleString("en");
      const nodes = until - 1 <= Math.max(from, map.shift) ? `${map.unit} ${number(until - 1)}` : `${map.unit}s ${number(Math.max(from, map.shift))} to ${number(until - 1)}`;
      if (from > memory.first || until < memory.last) this.title.append(element("span", { title: "The nodes that use this memory; press a for the whole run", text: nodes }));
    }
    const what = `${map.name}, ${place}: ${this.count()} blocks in ${human(this.peak())}`;
    this.map.setAttribute("aria-label", `Memory map of ${what}. Arrow keys move, plus and minus zoom, full stop and comma go from block to block.`);
    this.curve.setAttribute("aria-label", `Live bytes of ${what}. Brackets go from step to step.`);
  }

  // The context of a canvas in its real pixels, with the plot's frame.
  prepare(canvas, foot) {
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d", { alpha: false });
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = ink.value("--card");
    context.fillRect(0, 0, width, height);
    context.font = `${11 * scale}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
    const [left, top] = [Math.round(GUTTER * scale), Math.round(TOP * scale)];
    const frame = { left, top, width: Math.max(1, width - left - Math.round(RIGHT * scale)), height: Math.max(1, height - top - Math.round(foot * scale)), scale };
    return { context, frame };
  }

  draw() {
    this.drawn = this.draw_map();
    this.draw_curve();
    this.touch();
  }

  draw_map() {
    const { context, frame } = this.prepare(this.map, FOOT);
    const win = state.window;
    const y = (bytes) => frame.top + frame.height - Math.round((bytes - win.y0) / (win.y1 - win.y0) * frame.height);
    const x = (step) => frame.left + Math.round((step - win.x0) / (win.x1 - win.x0) * frame.width);
    this.frame = frame;
    let labels = [], drawn = 0;
    this.raster.resize(frame.width, frame.height);
    if (this.memory) {
      const matches = state.matches ? state.matches.get(this.memory) : null;
      const scene = { window: win, buffer: this.buffer, classes: state.classes, ink, matches, patterns: state.patterns, scale: frame.scale };
      ({ labels, drawn } = rasterise(this.raster, this.memory, scene));
    } else this.raster.pixels.fill(ink.ground);
    context.putImageData(this.raster.image, frame.left, frame.top);
    this.draw_axes(context, frame, x, y);
    if (!this.memory) return 0;
    this.draw_labels(context, frame, labels);
    this.draw_lines(context, frame, x, y);
    this.draw_marks(context, frame, x, y);
    return drawn;
  }

  draw_axes(context, frame, x, y) {
    const win = state.window;
    context.fillStyle = ink.value("--dim");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const bytes of ticks(win.y0, win.y1, frame.height / (44 * frame.scale), true)) {
      context.fillText(tick_label(bytes), frame.left - 8 * frame.scale, y(bytes));
      context.fillRect(frame.left - 4 * frame.scale, y(bytes), 4 * frame.scale, 1);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const { shift, unit } = MAPS[this.index];
    // Labels must not run into each other, however long their numbers are.
    const label = context.measureText(Math.round(win.x1).toLocaleString("en")).width + 16 * frame.scale;
    for (const node of ticks(Math.max(0, win.x0 - shift), win.x1 - shift, frame.width / Math.max(label, 90 * frame.scale), false)) {
      const at = x(node + shift);
      if (at < frame.left || at > frame.left + frame.width - 8 * frame.scale) continue;
      context.fillText(node.toLocaleString("en"), at, frame.top + frame.height + 6 * frame.scale);
      context.fillRect(at, frame.top + frame.height, 1, 4 * frame.scale);
    }
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillText(unit, frame.left - 8 * frame.scale, frame.top + frame.height + 6 * frame.scale);
    context.strokeStyle = ink.value("--line");
    context.lineWidth = 1;
    context.strokeRect(frame.left - 0.5, frame.top - 0.5, frame.width + 1, frame.height + 1);
  }

  draw_labels(context, frame, labels) {
    const { memory } = this;
    const of = state.classes.of.get(memory);
    const letter = 6.1 * frame.scale;
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { i, left, top, right, bottom } of labels) {
      const room = Math.floor((right - left - 8 * frame.scale) / letter);
      const name = memory.title_of(i);
      const text = name.length <= room ? name : room > 3 ? `${name.slice(0, room - 1)}…` : "";
      if (!text) continue;
      context.fillStyle = ink.text[of[i]];
      const size = bottom - top > 30 * frame.scale && room >= 9;
      const middle = frame.top + (top + bottom) / 2 - (size ? 6.5 * frame.scale : 0);
      if (state.patterns && state.classes.patterns[of[i]]) {
        // Letters over a pattern need a quiet ground.
        const width = context.measureText(text).width;
        context.fillStyle = ink.css[of[i]];
        context.fillRect(frame.left + left + 2 * frame.scale, middle - 7 * frame.scale, width + 5 * frame.scale, 14 * frame.scale);
        if (size) context.fillRect(frame.left + left + 2 * frame.scale, middle + 6 * frame.scale, context.measureText(human(memory.size[i])).width + 5 * frame.scale, 14 * frame.scale);
        context.fillStyle = ink.text[of[i]];
      }
      context.fillText(text, frame.left + left + 4 * frame.scale, middle);
      if (size) {
        context.globalAlpha = 0.75;
        context.fillText(human(memory.size[i]), frame.left + left + 4 * frame.scale, middle + 13 * frame.scale);
        context.globalAlpha = 1;
      }
    }
  }

  // Peak and bound across, buffers apart, the fullest step and the chosen one down.
  draw_lines(context, frame, x, y) {
    const [peak, bound, scale] = [this.peak(), this.bound(), frame.scale];
    this.clip(context, frame);
    // Under the labels of the other lines.
    const fullest = this.memory.live(this.buffer).at;
    if (fullest !== null) this.down(context, frame, x(fullest + 0.5), "--dim", [1, 3]);
    // Dashed, as a block at the peak may be as narrow as the line.
    if (state.step !== null) this.down(context, frame, x(state.step + 0.5), "--accent", [4, 4], 1.5 * scale);
    if (this.buffer === null && this.memory.buffers.length > 1) {
      this.memory.buffers.forEach((_, buffer) => this.across(context, frame, y(this.memory.base[buffer]), "--dim", [2, 3], buffer ? `buffer ${buffer}` : "", { side: "left" }));
    }
    if (this.buffer === null && bound < peak) this.across(context, frame, y(bound), "--bound", [6, 4], `bound ${human(bound)}`, { top: this.bound_top(frame, y(peak), y(bound)) });
    this.across(context, frame, y(peak), "--peak", [], `${this.buffer === null && bound === peak ? "peak = bound" : "peak"} ${human(peak)}`);
    context.restore();
  }

  clip(context, frame) {
    context.save();
    context.beginPath();
    context.rect(frame.left, frame.top, frame.width, frame.height);
    context.clip();
  }

  across(context, frame, at, colour, dash, label, { side, top = this.label_top(frame, at) } = {}) {
    if (at < frame.top - 1 || at > frame.top + frame.height + 1) return;
    const scale = frame.scale;
    context.strokeStyle = ink.value(colour);
    context.lineWidth = 1.25 * scale;
    context.setLineDash(dash.map((it) => it * scale));
    context.beginPath();
    context.moveTo(frame.left, at + 0.5);
    context.lineTo(frame.left + frame.width, at + 0.5);
    context.stroke();
    context.setLineDash([]);
    if (!label) return;
    const width = context.measureText(label).width + 10 * scale;
    const right = side === "left" ? frame.left + width + 4 * scale : frame.left + frame.width - 4 * scale;
    context.fillStyle = ink.value("--card");
    context.globalAlpha = 0.9;
    context.fillRect(right - width, top, width, 14 * scale);
    context.globalAlpha = 1;
    context.fillStyle = ink.value(colour);
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(label, right - 5 * scale, top + 7.5 * scale);
  }

  // Where the label of a line begins: above it, if there is room.
  label_top(frame, at) { return at - frame.top > 18 * frame.scale ? at - 16 * frame.scale : at + 3 * frame.scale; }

  // The same for the bound, whose label must not run into that of the peak.
  bound_top(frame, peak, bound) {
    const [taken, top, height] = [this.label_top(frame, peak), this.label_top(frame, bound), 15 * frame.scale];
    return Math.abs(top - taken) >= height ? top : Math.max(bound + 3 * frame.scale, taken + height);
  }

  down(context, frame, at, colour, dash, width) {
    context.strokeStyle = ink.value(colour);
    context.lineWidth = width || frame.scale;
    context.setLineDash(dash.map((it) => it * frame.scale));
    context.beginPath();
    context.moveTo(at + 0.5, frame.top);
    context.lineTo(at + 0.5, frame.top + frame.height);
    context.stroke();
    context.setLineDash([]);
  }

  // The block under the pointer and the chosen one, and their namesakes in the other plan.
  draw_marks(context, frame, x, y) {
    this.clip(context, frame);
    for (const [mark, width] of [[state.hover, 1.5], [state.chosen, 2.5]]) {
      if (!mark || mark.memory.name !== this.memory.name) continue;
      const own = mark.map === this.index;
      const i = own ? mark.i : this.memory.namesake(mark.memory.name_of(mark.i), mark.memory.start[mark.i]);
      if (i < 0 || (this.buffer !== null && this.memory.buffer[i] !== this.buffer)) continue;
      const low = this.low(i);
      const [left, right] = [x(this.memory.start[i]), x(this.memory.end[i])];
      const [top, bottom] = [y(low + this.memory.size[i]), y(low)];
      for (const [colour, wide] of [["--card", width + 2], ["--ink", width]]) {
        context.strokeStyle = ink.value(colour);
        context.lineWidth = wide * frame.scale;
        context.setLineDash(own ? [] : [4 * frame.scale, 3 * frame.scale]);
        context.strokeRect(left, top, Math.max(2, right - left), Math.max(2, bottom - top));
      }
      context.setLineDash([]);
    }
    context.restore();
  }

  low(i) { return this.memory.offset[i] + (this.buffer === null ? this.memory.base[this.memory.buffer[i]] : 0); }

  draw_curve() {
    const { context, frame } = this.prepare(this.curve, 6);
    this.curve_frame = frame;
    if (!this.memory) return;
    const win = state.window;
    const { steps, bytes } = this.memory.live(this.buffer);
    const top = state.full.y1 * 1.3;
    const y = (value) => frame.top + frame.height * (1 - value / top);
    const step_at = (column) => win.x0 + (column / frame.width) * (win.x1 - win.x0);
    // The most within each column of pixels.
    let at = 0;
    while (at + 1 < steps.length && steps[at + 1] <= win.x0) at++;
    const most = new Float64Array(frame.width);
    for (let column = 0; column < frame.width; column++) {
      const until = step_at(column + 1);
      let value = steps.length && steps[at] < until ? bytes[at] : 0;
      while (at + 1 < steps.length && steps[at + 1] < until) value = Math.max(value, bytes[++at]);
      most[column] = value;
    }
    context.beginPath();
    context.moveTo(frame.left, y(0));
    most.forEach((value, column) => { context.lineTo(frame.left + column, y(value)); context.lineTo(frame.left + column + 1, y(value)); });
    context.lineTo(frame.left + frame.width, y(0));
    context.closePath();
    context.fillStyle = ink.value("--curve");
    context.globalAlpha = 0.25;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = ink.value("--curve");
    context.lineWidth = 1.5 * frame.scale;
    context.stroke();
    context.fillStyle = ink.value("--dim");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks(0, top, frame.height / (34 * frame.scale), true)) context.fillText(tick_label(value), frame.left - 8 * frame.scale, Math.max(frame.top + 5 * frame.scale, y(value)));
    this.clip(context, frame);
    const x = (step) => frame.left + Math.round((step - win.x0) / (win.x1 - win.x0) * frame.width);
    if (state.pointed !== null) this.down(context, frame, x(state.pointed + 0.5), "--dim", [2, 2]);
    if (state.step !== null) this.down(context, frame, x(state.step + 0.5), "--accent", [], 2 * frame.scale);
    const [peak, bound] = [this.peak(), this.bound()];
    this.across(context, frame, y(bound), "--bound", [6, 4], `bound ${human(bound)}`, peak > bound ? { top: this.bound_top(frame, y(peak), y(bound)) } : {});
    if (peak > bound) this.across(context, frame, y(peak), "--peak", [], `peak ${human(peak)}`);
    context.restore();
    // Over the lines, on a quiet ground.
    const [label, left, above] = ["live bytes", frame.left + 6 * frame.scale, frame.top + 2 * frame.scale];
    context.fillStyle = ink.value("--card");
    context.fillRect(left - 2 * frame.scale, frame.top, context.measureText(label).width + 4 * frame.scale, 15 * frame.scale);
    context.fillStyle = ink.value("--dim");
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(label, left, above);
  }

  // Steps and bytes at a point of the window.
  at(event, frame) {
    const box = event.currentTarget.getBoundingClientRect();
    const scale = frame.scale;
    const [px, py] = [(event.clientX - box.left) * scale - frame.left, (event.clientY - box.top) * scale - frame.top];
    const win = state.window;
    return {
      inside: px >= 0 && py >= 0 && px < frame.width && py < frame.height,
      step: win.x0 + (px / frame.width) * (win.x1 - win.x0),
      bytes: win.y0 + (1 - py / frame.height) * (win.y1 - win.y0),
      per_step: frame.width / (win.x1 - win.x0), per_byte: frame.height / (win.y1 - win.y0),
    };
  }

  // The block at a point: the smallest one, with a pixel of mercy for those that are smaller than one.
  hit({ step, bytes, per_step, per_byte }) {
    const { memory } = this;
    if (!memory) return -1;
    const shown = state.classes.shown, of = state.classes.of.get(memory);
    const [mx, my] = [1 / per_step, 1 / per_byte];
    let near = -1;
    for (let n = memory.order.length - 1; n >= 0; n--) {
      const i = memory.order[n];
      if ((this.buffer !== null && memory.buffer[i] !== this.buffer) || !shown[of[i]]) continue;
      const low = this.low(i);
      if (step < memory.start[i] - mx || step >= memory.end[i] + mx || bytes < low - my || bytes >= low + memory.size[i] + my) continue;
      if (step >= memory.start[i] && step < memory.end[i] && bytes >= low && bytes < low + memory.size[i]) return i;
      if (near < 0) near = i;
    }
    return near;
  }

  // Where a block is on the screen.
  point_of(i) {
    const [box, frame, win] = [this.map.getBoundingClientRect(), this.frame, state.window];
    const part = (low, high, from, to) => ((Math.max(low, from) + Math.min(high, to)) / 2 - from) / (to - from);
    const low = this.low(i);
    const px = frame.left + part(this.memory.start[i], this.memory.end[i], win.x0, win.x1) * frame.width;
    const py = frame.top + (1 - part(low, low + this.memory.size[i], win.y0, win.y1)) * frame.height;
    return { x: box.left + px / frame.scale, y: box.top + py / frame.scale };
  }
}
