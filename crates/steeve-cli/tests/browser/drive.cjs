// Drives the pages that browser.rs has made. Each law is one function; whatever fails ends the program.
"use strict";
const assert = require("node:assert/strict");
const path = require("node:path");

const order = JSON.parse(process.argv[2]);
const { chromium } = require(order.playwright);
const say = (line) => console.log(`browser: ${line}`);
const has = (text, ...words) => words.forEach((word) => assert.ok(text.includes(word), `no ${JSON.stringify(word)} in ${JSON.stringify(text)}`));

let browser;

// Opens a page and has it watched: no request, no message, no error.
async function open(file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 860 }, ...options });
  const page = await context.newPage();
  const trouble = [];
  page.on("console", (message) => trouble.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`error: ${error.stack}`));
  page.on("request", (request) => { if (request.url() !== `file://${file}` && !request.url().startsWith("data:")) trouble.push(`request: ${request.url()}`); });
  await page.goto(`file://${file}`);
  await settle(page);
  page.finish = async (shot) => {
    if (shot) await page.screenshot({ path: path.join(order.shots, `${shot}.png`) });
    assert.deepEqual(trouble, []);
    await context.close();
  };
  return page;
}

// Waits until what moves has come to rest.
const settle = (page) => page.evaluate(() => new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 220)));
const text = (page, selector) => page.locator(selector).innerText();
const seen = (page) => page.evaluate(() => ({ ...steeve.state.window }));
const span = (win) => win.x1 - win.x0;
const height = (win) => win.y1 - win.y0;

async function hover(page, map, name) {
  const point = await page.evaluate(([map, name]) => steeve.point(map, name), [map, name]);
  await page.mouse.move(point.x - 1, point.y);
  await page.mouse.move(point.x, point.y);
  await settle(page);
  return point;
}

async function a_recorded_graph_has_ggmls_plan_beside_ours() {
  const page = await open(order.recorded);
  const { blocks, peak, ggml } = order.planned;
  const less = (ggml - peak).toLocaleString("en");
  has(await text(page, "#figures"), "92.01 MiB", "52.28 MiB", `less (${less} bytes, 43.2 %)`, "lower bound, reached");
  has(await page.getAttribute("#map-0", "aria-label"), "ggml", `${blocks} blocks in 92.01 MiB`);
  has(await page.getAttribute("#map-1", "aria-label"), "steeve", `${blocks} blocks in 52.28 MiB`);
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [blocks, blocks]);
  assert.equal(await page.title(), "qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz · steeve");
  await page.screenshot({ path: path.join(order.shots, "recorded-light.png") });

  await page.getByRole("button", { name: "steeve", exact: true }).click();
  await settle(page);
  assert.equal(await page.locator(".pane").count(), 1);
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [blocks]);
  await page.getByRole("button", { name: "both" }).click();
  assert.equal(await page.locator(".pane").count(), 2);
  await page.finish();
}

async function hovering_tells_everything_about_a_block() {
  const page = await open(order.small);
  await hover(page, 1, "ffn_up");
  const tip = await text(page, "#tip");
  has(tip, "ffn_up", "operation\nadd", "shape\nf32[64,32]", "role\nfeed-forward", "bytes\n8.00 KiB (8,192)", "offset\n");
  has(tip, "first use\nnode 1 (ffn_up, add)", "last read by\nnode 3 (y, neg)", "same bytes\npart", "in place of\nattn_q", "in ggml\noffset");
  await page.mouse.move(2, 2);
  await settle(page);
  assert.ok(await page.locator("#tip").isHidden());
  await page.finish();
}

async function a_last_use_is_what_the_graph_says() {
  const page = await open(order.small);
  const tip = async (map, name) => { await hover(page, map, name); return text(page, "#tip"); };
  // The output is read by no node, and the input is taken over by no other block.
  has(await tip(1, "y"), "last use\nkept as output", "alive until\nthe end of the run");
  has(await tip(1, "x"), "last read by\nnode 1 (ffn_up, add)");
  has(await tip(1, "attn_q"), "last read by\nnode 1 (ffn_up, add), which takes over its bytes");
  await page.getByRole("tab", { name: "host" }).click();
  await settle(page);
  has(await tip(1, "mask"), "last use\nread by no node", "alive until\nbefore the run");
  has(await tip(0, "mask"), "last use\nread by no node", "alive until\nthe end of the run");
  assert.equal(await text(page, "#legend-note"), "Bytes alive before the run, the peak");
  assert.ok(await page.locator("#alive table .name").first().getAttribute("title").then((it) => it === "mask: read by no node"));
  await page.finish();
}

const UNITS = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };
const bytes_of = (shown) => { const [value, unit] = shown.split(" "); return value * UNITS[unit] || 0; };
const close = (a, b) => assert.ok(Math.abs(a - b) <= 0.02 * b, `${a} and ${b}`);

// Names and bytes of a list, as the page shows them.
const rows_of = (page, list) => page.locator(list).evaluateAll((rows) => rows.map((row) => [row.querySelector(".name").innerText, row.querySelector(".bytes, .count").innerText]));

async function what_is_alive_opens_at_the_peak() {
  const page = await open(order.recorded);
  const { step, most } = await page.evaluate(() => { const { at, most } = steeve.maps[1].memories[0].live(null); return { step: at, most }; });
  assert.equal(await page.evaluate(() => steeve.state.step), step);
  has(await text(page, "#alive"), `steeve, node ${step - 1} (`, ` alive, `, `(${most.toLocaleString("en")}), the peak`);
  assert.equal(await text(page, "#legend-note"), `Bytes alive at node ${step - 1}, the peak`);
  // Bytes, largest first, and as many by role as by layer.
  for (const list of ["#legend li", "[aria-label='Live bytes by layer'] li"]) {
    const bytes = (await rows_of(page, list)).map(([, shown]) => bytes_of(shown));
    assert.ok(bytes.length > 1 && bytes.every((it, i) => i === 0 || it <= bytes[i - 1]), `${list}: ${bytes}`);
    close(bytes.reduce((sum, it) => sum + it, 0), most);
  }
  const before = await text(page, "#legend");
  await page.keyboard.press("]");
  has(await text(page, "#legend-note"), `Bytes alive at node ${step}`);
  assert.ok(!(await text(page, "#legend-note")).includes("the peak"));
  assert.notEqual(await text(page, "#legend"), before);
  await page.keyboard.press("Escape");
  assert.equal(await text(page, "#legend"), before);
  await page.selectOption("#by", "layer");
  has(await text(page, "#legend"), "layer 0", "no layer", "more");
  close((await rows_of(page, "[aria-label='Live bytes by role'] li")).reduce((sum, [, shown]) => sum + bytes_of(shown), 0), most);
  await page.finish("recorded-layers");
}

async function copies_of_weights_are_a_role() {
  const page = await open(order.experts);
  const entry = page.locator("#legend button", { hasText: "weight copy" });
  assert.equal(await entry.count(), 1);
  assert.ok(bytes_of(await entry.locator(".count").innerText()) > 100 * UNITS.MiB, await text(page, "#legend"));
  has(await text(page, "#alive"), "_exps.weight#0");
  await page.finish("experts");
}

async function a_memory_is_cropped_to_the_nodes_that_use_it() {
  const page = await open(order.pipeline);
  const nodes = await page.evaluate(() => steeve.maps[1].nodes.length / 2);
  const crops = [];
  for (const name of ["FAKE0", "FAKE1"]) {
    await page.getByRole("tab", { name }).click();
    await settle(page);
    const { x0, x1 } = await seen(page);
    crops.push([x0, x1]);
    const said = (await text(page, "#panes h2 >> nth=1")).match(/nodes ([\d,]+) to ([\d,]+)/);
    assert.ok(said, await text(page, "#panes h2 >> nth=1"));
    const [from, to] = said.slice(1).map((it) => Number(it.replace(",", "")));
    assert.ok(to === x1 - 2 && (from === x0 - 1 || (from === 0 && x0 === 0)), `${said} of ${[x0, x1]}`);
    // The step that is listed can be seen.
    const step = await page.evaluate(() => steeve.state.step);
    assert.ok(x0 <= step && step < x1);
  }
  assert.ok(crops[0][1] < nodes * 0.7 && crops[1][0] > nodes * 0.3, `${JSON.stringify(crops)} of ${nodes}`);
  await page.keyboard.press("a");
  await settle(page);
  assert.ok(span(await seen(page)) > nodes);
  await page.keyboard.press("a");
  await settle(page);
  assert.deepEqual([(await seen(page)).x0, (await seen(page)).x1], crops[1]);
  await page.finish("pipeline");
}

async function time_zooms_alone() {
  const page = await open(order.recorded);
  const full = await seen(page);
  const box = await page.locator("#map-1").boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const fit = async () => { await page.keyboard.press("0"); await settle(page); };
  const after = async (act) => { await act(); await settle(page); const win = await seen(page); await fit(); return [span(win) < span(full), height(win) < height(full)]; };
  const wheel = (...keys) => after(async () => {
    for (const key of keys) await page.keyboard.down(key);
    await page.mouse.move(x, y);
    await page.mouse.wheel(0, -240);
    for (const key of keys) await page.keyboard.up(key);
  });
  assert.deepEqual(await wheel(), [true, false]);
  assert.deepEqual(await wheel("Shift"), [true, true]);
  assert.deepEqual(await wheel("Alt"), [false, true]);
  assert.deepEqual(await after(() => page.mouse.dblclick(x, y)), [true, false]);
  assert.deepEqual(await after(() => page.click("#in")), [true, false]);
  assert.deepEqual(await after(() => page.click("#in", { modifiers: ["Shift"] })), [true, true]);
  has(await text(page, ".hint"), "Wheel: time", "Shift+wheel: bytes too");
  await page.finish();
}

async function sharing_is_told_before_and_after() {
  const page = await open(order.recorded);
  await page.keyboard.press("p");
  await settle(page);
  const point = await hover(page, 1, "ffn_moe_up-0");
  has(await text(page, "#tip"), "mul_mat_id", "f32[768,8,512]", "12.00 MiB (12,582,912)", "before it\n", "after it\n", "in ggml\noffset 36.01 MiB");
  await page.mouse.click(point.x, point.y);
  has(await text(page, "#chosen"), "ffn_moe_up-0", "first use\nnode 44");
  await page.finish("recorded-hover");
}

async function a_step_lists_what_is_alive_largest_first() {
  const page = await open(order.recorded, { colorScheme: "dark" });
  const box = await page.locator("#curve-1").boundingBox();
  await page.mouse.click(box.x + box.width * 0.6, box.y + box.height * 0.7);
  await settle(page);
  has(await text(page, "#alive"), "steeve, node 1", " alive, ", "MiB");
  const rows = await page.locator("#alive table .bytes").allInnerTexts();
  const bytes = rows.map(bytes_of);
  assert.ok(bytes.length > 3 && bytes.every((it, i) => i === 0 || it <= bytes[i - 1]), String(rows));
  await page.locator("#alive button").first().click();
  await settle(page);
  has(await text(page, "#chosen"), (await page.locator("#alive table .name").first().innerText()));
  await page.finish("recorded-dark-alive");
}

async function search_finds_marks_and_jumps() {
  const page = await open(order.recorded);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "search");
  await page.keyboard.type("ffn_moe_down");
  await settle(page);
  assert.equal(await text(page, "#found"), "48 found, 1.47 GiB");
  const before = await seen(page);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await settle(page);
  assert.equal(await text(page, "#found"), "2 of 48");
  has(await text(page, "#chosen"), "ffn_moe_down-1");
  assert.ok(span(await seen(page)) < span(before) / 4);
  await page.screenshot({ path: path.join(order.shots, "recorded-search.png") });
  await page.fill("#search", "no such thing");
  assert.equal(await text(page, "#found"), "nothing found");
  await page.fill("#search", "/^l_out-1.$/");
  has(await text(page, "#found"), "10 found");
  await page.keyboard.press("Escape");
  assert.equal(await text(page, "#found"), "");
  await page.finish();
}

async function the_legend_hides_and_shows() {
  const page = await open(order.recorded);
  const entry = page.locator("#legend button", { hasText: "feed-forward" });
  const [all] = await page.evaluate(() => steeve.drawn());
  const count = Number(await entry.getAttribute("data-blocks"));
  await entry.click();
  await settle(page);
  assert.equal(await entry.getAttribute("aria-pressed"), "false");
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [all - count, all - count]);
  await page.locator("#all").click();
  await settle(page);
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [all, all]);
  await page.selectOption("#by", "operation");
  has(await text(page, "#legend"), "mul_mat_id", "flash_attn_ext", "rope");
  await page.selectOption("#by", "name");
  has(await text(page, "#legend"), "ffn_moe_down-#", "other");
  await page.selectOption("#by", "size");
  has(await text(page, "#legend"), "above 1/2 of the largest");
  await page.uncheck("#patterns");
  await settle(page);
  await page.finish("recorded-size");
}

async function each_memory_and_buffer_has_a_tab() {
  const page = await open(order.limited);
  const names = await page.locator("[role=tab]").allInnerTexts();
  assert.deepEqual(names.map((name) => name.replace(/\s+/g, " ")), [
    "FAKE0 4.10 GiB → 2.08 GiB", "FAKE0 · 0 100.01 MiB → 2.00 GiB", "FAKE0 · 1 2.00 GiB → 84.01 MiB", "FAKE0 · 2 2.00 GiB → 0 B", "FAKE_Host 84.01 MiB → 76.01 MiB",
  ]);
  await page.getByRole("tab", { name: "FAKE0 · 1" }).click();
  await settle(page);
  has(await page.getAttribute("#map-0", "aria-label"), "FAKE0, buffer 1");
  await page.keyboard.press("End");
  await settle(page);
  assert.equal(await page.locator("[role=tab][aria-selected=true]").innerText().then((it) => it.slice(0, 9)), "FAKE_Host");
  has(await page.getAttribute("#map-1", "aria-label"), "FAKE_Host: 8 blocks");
  await page.keyboard.press("ArrowRight");
  await settle(page);
  has(await page.getAttribute("#map-1", "aria-label"), "FAKE0: 651 blocks");
  await page.finish("limited");
}

async function a_buffer_that_one_plan_lacks_is_walked_in_the_other() {
  const page = await open(order.limited);
  await page.getByRole("tab", { name: "FAKE0 · 2" }).click();
  await settle(page);
  await page.keyboard.press(".");
  await settle(page);
  has(await text(page, "#chosen"), "in buffer 2");
  await page.keyboard.press("p");
  await settle(page);
  has(await text(page, "#alive"), "ggml, node", " alive, ");
  assert.ok(!(await text(page, "#alive")).includes("\n0 alive"));
  await page.keyboard.press("]");
  await page.keyboard.press(",");
  // Where only the empty one is shown there is nothing to go to, and nothing fails.
  await page.getByRole("button", { name: "steeve", exact: true }).click();
  await settle(page);
  for (const key of [".", ",", "p", "]", "["]) await page.keyboard.press(key);
  await settle(page);
  has(await text(page, "#chosen"), "Point at a block");
  await page.finish();
}

async function each_plan_has_its_own_kind_of_steps() {
  const page = await open(order.mixed);
  assert.equal(await page.locator(".pane").count(), 2);
  has(await text(page, "#figures"), "list.csv", "less (41,666,560 bytes, 43.2 %)");
  await hover(page, 0, "ffn_moe_up-0");
  has(await text(page, "#tip"), "first use\nstep 45", "in qwen3-30b-a3b");
  await hover(page, 1, "ffn_moe_up-0");
  has(await text(page, "#tip"), "first use\nnode 44 (ffn_moe_up-0, mul_mat_id)", "in list.csv\noffset");
  await page.finish("mixed");
}

async function some_steps_are_told_as_they_are() {
  const page = await open(order.part);
  has(await text(page, "#subtitle"), "nodes 0 to 39 of 3,030 with ", " blocks");
  assert.equal(await page.inputValue("#by"), "operation");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  const { x0, x1 } = await seen(page);
  assert.deepEqual([x0, x1], [1, 41]);
  const last = await page.evaluate(() => { const [memory] = steeve.maps[1].memories; return Math.max(...memory.end); });
  assert.ok(last > 1000, "lifetimes are not cut off");
  // Steps that are not shown can't be chosen.
  await page.keyboard.press("p");
  for (let i = 0; i < 60; i++) await page.keyboard.press("]");
  has(await text(page, "#alive"), "node 39");
  await page.finish("part");
}

async function what_only_one_plan_has_is_found_too() {
  const page = await open(order.other);
  await page.fill("#search", "one");
  assert.equal(await text(page, "#found"), "2 found, 16 B");
  await page.keyboard.press("Enter");
  has(await text(page, "#chosen"), "old_one", "in more.csv\nnot there");
  await page.keyboard.press("Enter");
  has(await text(page, "#chosen"), "new_one");
  // Backwards begins at the end.
  await page.fill("#search", "new");
  await page.keyboard.press("Shift+Enter");
  assert.equal(await text(page, "#found"), "2 of 2");
  has(await text(page, "#chosen"), "new_two");
  await page.fill("#search", "both");
  assert.equal(await text(page, "#found"), "1 found, 4 B");
  // What is hidden is neither chosen nor counted.
  await page.fill("#search", "one");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "more.csv", exact: true }).click();
  await settle(page);
  assert.equal(await text(page, "#found"), "1 found, 8 B");
  has(await text(page, "#chosen"), "Point at a block");
  await page.getByRole("button", { name: "other.csv", exact: true }).click();
  await page.keyboard.press("p");
  has(await text(page, "#alive"), "other.csv, step 1");
  await page.getByRole("button", { name: "more.csv", exact: true }).click();
  has(await text(page, "#alive"), "more.csv, step 3", "the peak");
  // Another step than the peak stays what it is.
  await page.keyboard.press("[");
  await page.getByRole("button", { name: "other.csv", exact: true }).click();
  has(await text(page, "#alive"), "other.csv, step 2");
  await page.finish();
}

async function a_small_window_can_be_scrolled() {
  const page = await open(order.recorded, { viewport: { width: 400, height: 700 } });
  const box = await page.locator("#map-0").boundingBox();
  const full = await seen(page);
  await page.mouse.move(box.x + box.width / 2, box.y + 20);
  await page.mouse.wheel(0, 200);
  await settle(page);
  assert.ok(await page.evaluate(() => scrollY) > 50, "the wheel scrolls the page");
  assert.deepEqual(await seen(page), full);
  // Whoever has clicked the map means the map.
  await page.evaluate(() => { scrollTo(0, 0); document.getElementById("map-0").focus(); });
  await page.mouse.wheel(0, -200);
  await settle(page);
  assert.ok(span(await seen(page)) < span(full));
  await page.finish("narrow");
}

async function nothing_is_wider_than_the_window() {
  for (const colorScheme of ["light", "dark"]) for (const [width, height] of [[1280, 800], [800, 1000], [400, 700]]) {
    const page = await open(order.experts, { viewport: { width, height }, colorScheme });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width}`);
    const boxes = await Promise.all([".head", "#figures", ".actions"].map((it) => page.locator(it).boundingBox()));
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => assert.ok(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y, `${width}: ${JSON.stringify([a, b])}`)));
    // Labels of peak and bound lie apart in every map and curve.
    const labels = await page.evaluate(() => {
      const marks = [], plain = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (/^(peak|bound) /.test(text)) marks.push([this.canvas.id, y / devicePixelRatio]);
        return plain.call(this, text, x, y);
      };
      steeve.measure(1, 1);
      CanvasRenderingContext2D.prototype.fillText = plain;
      return marks;
    });
    assert.ok(labels.length >= 4, JSON.stringify(labels));
    labels.forEach(([id, y], i) => labels.slice(i + 1).forEach(([other, z]) => assert.ok(id !== other || Math.abs(y - z) >= 13, `${width}: ${JSON.stringify(labels)}`)));
    // The title is cut off where it must be, and told whole on hover.
    assert.equal(await page.getAttribute("#title", "title"), await page.locator("#title").evaluate((it) => it.textContent));
    await page.finish(`experts-${width}-${colorScheme}`);
  }
}

async function every_tab_is_seen_however_many_there_are() {
  for (const [width, height] of [[1280, 800], [800, 1000], [400, 700]]) {
    const page = await open(order.five, { viewport: { width, height } });
    assert.equal(await page.locator("#tabs button").count(), 5);
    for (const tab of await page.locator("#tabs button").all()) {
      const box = await tab.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width, `${width}: ${JSON.stringify(box)}`);
    }
    await page.finish(`five-${width}`);
  }
}

async function layers_beyond_the_classes_are_one_of_their_own() {
  const page = await open(order.many);
  await page.selectOption("#by", "layer");
  await settle(page);
  const titles = await page.evaluate(() => steeve.state.classes.titles);
  assert.deepEqual([titles.length, titles[249], titles[250]], [251, "layer 249", "more layers"]);
  const title = (name) => page.evaluate((name) => { const { maps: [{ memories: [memory] }], state } = steeve; return state.classes.titles[state.classes.of.get(memory)[memory.namesake(name, 0)]]; }, name);
  assert.deepEqual([await title("layer249.t0"), await title("layer250.t0"), await title("layer399.t7")], ["layer 249", "more layers", "more layers"]);
  await page.finish("many-layers");
}

async function block_lists_have_no_sums_by_role_and_layer() {
  const page = await open(order.many);
  assert.equal(await page.locator("[aria-label^='Live bytes by']").count(), 0);
  await page.finish("many-alive");
}

async function a_saved_plan_names_its_nodes() {
  const page = await open(order.plans);
  const nodes = await page.evaluate(() => steeve.maps.map((map) => map.nodes.length / 2));
  assert.deepEqual(nodes, [nodes[0], nodes[0]]);
  assert.match(await text(page, "#alive .named"), /node \d+ \(.+\)/);
  await page.finish("plans-nodes");
}

async function numbers_below_the_map_do_not_run_into_each_other() {
  const page = await open(order.far);
  const overlaps = await page.evaluate(() => new Promise((done) => {
    const marks = [], plain = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      const width = this.measureText(text).width;
      if (this.textAlign === "center") marks.push([x - width / 2, x + width / 2]);
      return plain.call(this, text, x, y);
    };
    steeve.measure(1);
    marks.sort((a, b) => a[0] - b[0]);
    done({ count: marks.length, overlaps: marks.some((mark, i) => i > 0 && mark[0] < marks[i - 1][1]) });
  }));
  assert.ok(overlaps.count > 1 && !overlaps.overlaps, JSON.stringify(overlaps));
  await page.finish("far");
}

async function two_plans_are_compared_by_their_bytes() {
  const page = await open(order.plans);
  has(await text(page, "#figures"), "old.json", "new.json", "less (41,666,560 bytes, 43.2 %)");
  assert.equal(await page.locator(".pane").count(), 2);
  await hover(page, 0, "inp_embd");
  has(await text(page, "#tip"), "inp_embd", "in new.json\noffset");
  await page.finish("plans");
}

async function the_keyboard_is_enough() {
  const page = await open(order.recorded);
  const full = await seen(page);
  await page.focus("#map-0");
  for (const key of ["+", "+", "+"]) { await page.keyboard.press(key); await settle(page); }
  const near = await seen(page);
  assert.ok(span(near) < span(full) / 2 && height(near) === height(full));
  await page.keyboard.press("ArrowRight");
  await settle(page);
  assert.ok((await seen(page)).x0 > near.x0);
  await page.keyboard.press("Alt++");
  await settle(page);
  await page.keyboard.press("ArrowUp");
  await settle(page);
  assert.ok((await seen(page)).y0 > near.y0);
  await page.keyboard.press("-");
  await settle(page);
  assert.ok(span(await seen(page)) > span(near));
  await page.keyboard.press("0");
  await settle(page);
  assert.deepEqual(await seen(page), full);
  await page.keyboard.press(">");
  await settle(page);
  assert.ok(span(await seen(page)) < span(full) && height(await seen(page)) < height(full));
  await page.keyboard.press("0");
  await settle(page);
  await page.keyboard.press(".");
  await page.keyboard.press(".");
  await settle(page);
  const first = await text(page, "#chosen");
  await page.keyboard.press(",");
  assert.notEqual(await text(page, "#chosen"), first);
  await page.keyboard.press("]");
  const step = await text(page, "#alive");
  await page.keyboard.press("]");
  assert.notEqual(await text(page, "#alive"), step);
  await page.keyboard.press("Escape");
  has(await text(page, "#alive"), ", the peak");
  await page.keyboard.press("?");
  assert.ok(await page.locator("#keys").isVisible());
  await page.keyboard.press("Escape");
  assert.ok(await page.locator("#keys").isHidden());
  // Everything can be reached with the tabulator, and what has the focus shows it.
  const reached = new Set();
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press("Tab");
    // Behind the last element the browser itself has the focus.
    if (await page.evaluate(() => document.activeElement === document.body)) continue;
    const [id, outline] = await page.evaluate(() => [document.activeElement.id || document.activeElement.innerText.slice(0, 40), getComputedStyle(document.activeElement).outlineStyle]);
    const within = await page.evaluate(() => getComputedStyle(document.activeElement.closest(".search") || document.activeElement).borderColor);
    assert.ok(outline !== "none" || (id === "search" && within), `${id} hides its focus`);
    reached.add(id);
  }
  for (const id of ["search", "by", "patterns", "in", "fit", "peak", "theme", "help", "map-0", "curve-0", "map-1", "curve-1", "all"]) assert.ok(reached.has(id), `${id} in ${[...reached]}`);
  await page.finish("keyboard");
}

async function mouse_wheel_drag_and_fingers_move_the_map() {
  const page = await open(order.recorded, { hasTouch: true });
  const box = await page.locator("#map-1").boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const full = await seen(page);
  await page.mouse.move(x, y);
  for (let i = 0; i < 3; i++) { await page.mouse.wheel(0, -240); await settle(page); }
  const near = await seen(page);
  assert.ok(span(near) < span(full) / 3);
  await page.mouse.down();
  await page.mouse.move(x - 80, y, { steps: 4 });
  await page.mouse.up();
  await settle(page);
  const moved = await seen(page);
  assert.ok(moved.x0 > near.x0 && Math.abs(span(moved) - span(near)) < 1e-6 * span(near));
  const touch = await page.context().newCDPSession(page);
  const fingers = (spread) => [{ x: x - spread, y, id: 1 }, { x: x + spread, y, id: 2 }];
  await touch.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: fingers(40) });
  for (const spread of [60, 90, 120]) await touch.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: fingers(spread) });
  await touch.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  await settle(page);
  assert.ok(span(await seen(page)) < span(moved) * 0.8, "fingers that part zoom in");
  await page.finish();
}

async function light_and_dark_follow_the_reader() {
  const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const page = await open(order.blocks, { colorScheme: "dark" });
  const dark = await ground(page);
  await page.keyboard.press("t");
  const light = await ground(page);
  assert.notEqual(dark, light);
  await page.emulateMedia({ colorScheme: "light" });
  assert.equal(await ground(page), light);
  has(await text(page, "#subtitle"), "12 blocks");
  await page.finish("blocks-light");
  const small = await open(order.small, { viewport: { width: 420, height: 800 }, colorScheme: "dark" });
  await small.finish("small-narrow-dark");
}

async function a_wrong_plan_is_drawn_as_it_stands() {
  const page = await open(order.wrong);
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [2]);
  await page.finish("wrong");
}

async function a_hundred_thousand_blocks_stay_fluid() {
  const begun = Date.now();
  const page = await open(order.many);
  const loaded = Date.now() - begun - 220;
  assert.deepEqual(await page.evaluate(() => steeve.drawn()), [100000]);
  const times = await page.evaluate(() => steeve.measure(20));
  times.sort((a, b) => a - b);
  // The same as the user sees it: from one frame to the next while the wheel turns.
  const box = await page.locator("#map-0").boundingBox();
  await page.evaluate(() => {
    window.frames_seen = [];
    let last = performance.now();
    const tick = (now) => { frames_seen.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
  });
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  for (let i = 0; i < 10; i++) await page.mouse.wheel(0, i < 5 ? -120 : 120);
  await settle(page);
  const frames = await page.evaluate(() => frames_seen.slice(1).sort((a, b) => a - b));
  const half = (list) => list[list.length >> 1].toFixed(1), most = (list) => list[list.length - 1].toFixed(1);
  say(`100000 blocks: loaded in ${loaded} ms; a window is drawn in ${half(times)} ms (at most ${most(times)}); frames while zooming ${half(frames)} ms apart (at most ${most(frames)})`);
  const hit = await page.evaluate(() => { const begun = performance.now(); steeve.point(0, "layer200.t7"); return performance.now() - begun; });
  assert.ok(hit < 1000);
  await page.finish("many");
}

const LAWS = [
  a_recorded_graph_has_ggmls_plan_beside_ours, hovering_tells_everything_about_a_block, a_last_use_is_what_the_graph_says,
  what_is_alive_opens_at_the_peak, copies_of_weights_are_a_role, a_memory_is_cropped_to_the_nodes_that_use_it, time_zooms_alone, sharing_is_told_before_and_after, a_step_lists_what_is_alive_largest_first,
  search_finds_marks_and_jumps, the_legend_hides_and_shows, each_memory_and_buffer_has_a_tab,
  a_buffer_that_one_plan_lacks_is_walked_in_the_other, each_plan_has_its_own_kind_of_steps, some_steps_are_told_as_they_are, what_only_one_plan_has_is_found_too,
  a_small_window_can_be_scrolled, nothing_is_wider_than_the_window, every_tab_is_seen_however_many_there_are, layers_beyond_the_classes_are_one_of_their_own,
  block_lists_have_no_sums_by_role_and_layer, a_saved_plan_names_its_nodes, numbers_below_the_map_do_not_run_into_each_other, two_plans_are_compared_by_their_bytes, the_keyboard_is_enough,
  mouse_wheel_drag_and_fingers_move_the_map, light_and_dark_follow_the_reader, a_wrong_plan_is_drawn_as_it_stands, a_hundred_thousand_blocks_stay_fluid,
];

// The screenshots of the docs, where the order names a folder for them.
async function the_docs_have_new_screenshots() {
  const shot = async (file, name, { colorScheme, act }) => {
    const page = await open(file, { viewport: { width: 1280, height: 720 }, colorScheme });
    await act(page);
    await settle(page);
    await page.screenshot({ path: path.join(order.docs, name) });
    await page.finish();
  };
  await shot(order.first, "page.png", { colorScheme: "light", act: (page) => hover(page, 1, "ffn_moe_weighted-1") });
  await shot(order.experts, "page-peak.png", { colorScheme: "dark", act: async (page) => {
    await page.getByRole("button", { name: "steeve", exact: true }).click();
    await page.keyboard.press("p");
    await page.evaluate(() => document.activeElement.blur());
  } });
}
if (order.docs) LAWS.push(the_docs_have_new_screenshots);

(async () => {
  browser = await chromium.launch({ executablePath: order.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    for (const law of LAWS) {
      await law().catch((error) => { throw new Error(`${law.name}: ${error.stack}`); });
      say(`${law.name.replaceAll("_", " ")}: ok`);
    }
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
