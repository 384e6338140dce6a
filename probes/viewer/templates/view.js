"use strict";
const page = JSON.parse(document.getElementById("page").textContent);
const $ = (selector, inside = document) => inside.querySelector(selector);
const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const root = document.documentElement;
const pieces = new Map(page.ids.map((id, place) => [id, page.pieces[place]]));
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const percent = (share) => share >= 0.0995 ? `${Math.round(100 * share)}%` : share >= 0.00995 ? `${(100 * share).toFixed(1)}%` : share > 0 ? `${(100 * share).toPrecision(1)}%` : "0";
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 0.95 ? 2 : 1)}`;
const short = (length) => length >= 1e4 ? length.toExponential(0).replace("e+", "e") : length >= 100 ? length.toFixed(0) : length.toPrecision(length < 10 ? 2 : 3).replace(/\.0$/, "");
// Where spaces would not be seen.
const named = (id) => pieces.get(id).replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥");

// --- numbers -------------------------------------------------------------------------------------

const KINDS = { uint8: Uint8Array, int8: Int8Array, int32: Int32Array, float32: Float32Array };
let buffer;

async function unpack() {
  const packed = atob(document.getElementById("numbers").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  buffer = await new Response(stream).arrayBuffer();
}

// What a head did with a text. T tokens, R pairs of features.
class Head {
  constructor(row, member, head) {
    const refs = row.members[member.index];
    const part = (name) => {
      const [kind, place, size] = refs[name];
      const each = size / member.heads.length;
      return new KINDS[kind](buffer, place, size).subarray(head * each, (head + 1) * each);
    };
    this.length = row.tokens.length;
    this.turns = member.turns[head];
    this.tiles = part("tiles");
    [this.weight, this.score, this.spread] = ["weight", "score", "spread"].map(part);
    [this.q, this.k, this.qUnit, this.kUnit] = ["query", "key", "query_unit", "key_unit"].map(part);
  }
  // Of each pair, the mean length in queries times that in keys: the most it adds, as a rule.
  get uses() {
    const R = this.turns.length, mean = (x, i) => {
      let sum = 0;
      for (let a = 2 * i; a < x.length; a += 2 * R) sum += Math.hypot(x[a], x[a + 1]);
      return sum / this.length;
    };
    return this.turns.map((_, i) => mean(this.q, i) * this.qUnit[i] * mean(this.k, i) * this.kUnit[i]);
  }
  byte(query, key) { return key > query ? 0 : this.tiles[query * (query + 1) / 2 + key]; }
  at(query, key) { return (this.byte(query, key) / 255) ** 2; }
  // What each pair adds to the score: the upward part of its hand, which turns with distance.
  hands(query, key) {
    const R = this.turns.length, found = new Float32Array(2 * R);
    for (let i = 0; i < R; i++) {
      const a = 2 * (query * R + i), b = 2 * (key * R + i), unit = this.qUnit[i] * this.kUnit[i];
      found[2 * i] = (this.q[a] * this.k[b] + this.q[a + 1] * this.k[b + 1]) * unit;
      found[2 * i + 1] = (this.q[a + 1] * this.k[b] - this.q[a] * this.k[b + 1]) * unit;
    }
    return found;
  }
  scored(query, key) {
    const hands = this.hands(query, key);
    let sum = 0;
    for (let i = 0; i < hands.length; i += 2) sum += hands[i];
    return sum;
  }
  // The largest weights of a query, or of a key: at which keys, or queries.
  best(token, ofKey, count) {
    const found = [], end = ofKey ? this.length : token + 1;
    for (let other = ofKey ? token : 0; other < end; other++) {
      const value = ofKey ? this.byte(other, token) : this.byte(token, other);
      if (!value || (found.length === count && value <= found[count - 1][1])) continue;
      let place = found.length;
      while (place && found[place - 1][1] < value) place--;
      found.splice(place, 0, [other, value]);
      found.length = Math.min(found.length, count);
    }
    return found.map(([other]) => other);
  }
}

// --- what is shown -------------------------------------------------------------------------------

const members = page.members.map((member, index) => ({ ...member, index, head: 0 }));
// token: pointed at; other: of its pair, if one is pointed at; seen: whether it is the key of pairs.
const state = { row: 0, token: 0, other: null, held: false, seen: false, sheared: false, log: true, active: 0, night: null, zoom: { x: 0, y: 0, span: 0 } };
const row = () => page.rows[state.row];
const media = matchMedia("(prefers-color-scheme: dark)");
const isNight = () => state.night ?? media.matches;

// From nothing to all: one hue, whose lightness rises or falls steadily, whoever looks.
const RAMPS = {
  day: ["#ffffff", "#dbe9f6", "#bad6eb", "#89bedc", "#539ecd", "#2b7bba", "#0b559f", "#08306b"],
  night: ["#14171b", "#132c46", "#124672", "#1763a0", "#2f86c8", "#62aee0", "#a5d3f1", "#f2faff"],
};
let bytesOf, cssOf, inkOf, colors;
// So that their values are read as the colours of the hour, for canvases.
const NAMED = ["ink", "faint", "rule", "look", "query", "wrong"];
for (const name of NAMED) CSS.registerProperty({ name: `--${name}`, syntax: "<color>", inherits: true, initialValue: "gray" });
function mix() {
  const found = getComputedStyle(root);
  colors = Object.fromEntries(NAMED.map((name) => [name, found.getPropertyValue(`--${name}`)]));
  colors.font = `11px ${found.fontFamily}`;
  const stops = RAMPS[isNight() ? "night" : "day"].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  bytesOf = new Uint32Array(256); cssOf = []; inkOf = [];
  for (let v = 0; v < 256; v++) {
    const place = v / 255 * (stops.length - 1), i = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[i].map((from, c) => Math.round(from + (stops[i + 1][c] - from) * (place - i)));
    bytesOf[v] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    cssOf.push(`rgb(${r},${g},${b})`);
    inkOf.push(0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101418" : "#fff");
  }
}

function build() {
  const makers = {
    names: (m) => `<h2>${escaped(m.name)}<small></small></h2>`,
    heads: () => `<div class="grid"></div><p class="caption"></p>`,
    text: () => `<div class="tokens" tabindex="0" role="application" aria-label="Text; arrow keys go from token to token"></div><div class="readout" aria-live="off"></div>`,
    profile: () => `<svg role="img" aria-label="Weight and score by distance"></svg><div class="pairs"><canvas></canvas></div><p class="caption"></p>`,
    map: () => `<div class="bar"><span></span><span class="choice"><button type="button" data-zoom="0.5" aria-label="Zoom in">+</button><button type="button" data-zoom="2" aria-label="Zoom out">−</button><button type="button" data-zoom="0">all</button></span></div><div class="frame"><canvas></canvas><canvas tabindex="0" aria-label="Map of weights; point at a cell for its two tokens"></canvas></div>`,
  };
  const shown = $("#members");
  shown.style.setProperty("--members", members.length);
  shown.classList.toggle("one", members.length === 1);
  shown.innerHTML = Object.entries(makers).map(([kind, make]) =>
    `<section class="row ${kind}">${members.map((m) => `<div class="cell" data-member="${m.index}" data-name="${escaped(m.name)}">${make(m)}</div>`).join("")}</section>`).join("");
  for (const member of members) {
    const cell = (kind) => $(`.${kind} [data-member="${member.index}"]`);
    member.cells = { heads: cell("heads"), text: cell("text"), profile: cell("profile"), map: cell("map") };
    member.tokens = $(".tokens", member.cells.text);
    member.readout = $(".readout", member.cells.text);
    member.svg = $("svg", member.cells.profile);
    member.pairs = $(".pairs canvas", member.cells.profile);
    member.caption = $(".caption", member.cells.profile);
    [member.base, member.over] = $$("canvas", member.cells.map);
    const layers = [...new Set(member.heads.map(([layer]) => layer))];
    const columns = Math.max(...layers.map((layer) => member.heads.filter(([l]) => l === layer).length));
    const grid = $(".grid", member.cells.heads);
    grid.style.gridTemplateColumns = `repeat(${columns}, minmax(2.2rem, ${columns > 5 ? 4.4 : 5.4}rem))`;
    grid.innerHTML = member.heads.map(([layer, head], i) => `<button type="button" class="thumb" data-head="${i}" title="Layer ${layer}, head ${head}"><canvas></canvas><span></span></button>`).join("");
  }
  if (page.rows.length > 1) $("#texts").innerHTML = page.rows.map((each, i) => `<button type="button" data-row="${i}">${escaped(each.title)}</button>`).join("");
}

// A new text: its words, its heads, and a question to begin with.
function showRow() {
  const { tokens, recalls } = row();
  state.zoom = { x: 0, y: 0, span: tokens.length };
  Object.assign(state, { other: null, held: false });
  for (const member of members) {
    member.all = member.heads.map((_, i) => new Head(row(), member, i));
    const [kind, place, size] = row().members[member.index].expected;
    member.expected = new KINDS[kind](buffer, place, size);
    member.chance = new Float32Array(buffer, row().members[member.index].chance[1], size);
    member.known = new Map(recalls.map(([query, key]) => [query, { key, right: member.expected[3 * query] === tokens[query + 1] }]));
    member.head = member.all.map((head, i) => [recalls.reduce((sum, [query, key]) => sum + head.at(query, key), 0), -i]).reduce((a, b) => (b[0] > a[0] ? b : a))[1] * -1;
    member.tokens.innerHTML = tokens.map((id, place) => {
      const known = member.known.get(place), text = pieces.get(id);
      const said = escaped(text).replace(/\n/g, "<i>⏎</i>\n");
      return `<span data-at="${place}"${known ? ` class="${known.right ? "right" : "wrong"}"` : ""}>${said}</span>`;
    }).join("");
    member.spans = [...member.tokens.children];
    member.levels = new Int16Array(tokens.length).fill(-1);
  }
  for (const member of members) {
    const right = [...member.known.values()].filter((each) => each.right).length;
    $(`.names [data-member="${member.index}"] small`).textContent = [
      `${member.heads.length} head${member.heads.length > 1 ? "s" : ""}`, `trained on ${member.trained} tokens`,
      ...(recalls.length ? [`recalls ${right} of ${recalls.length}`] : []),
    ].join(" · ");
  }
  // To begin with, the farthest recall that a model failed at, or of all.
  const failed = recalls.filter(([query]) => members.some((member) => !member.known.get(query).right));
  const farthest = (failed.length ? failed : recalls).reduce((a, b) => (b[0] - b[1] > a[0] - a[1] ? b : a), [tokens.length - 1, tokens.length - 1]);
  state.token = farthest[0];
  const longer = members.filter((member) => tokens.length > member.trained);
  $(".notice").hidden = !longer.length;
  $(".notice").textContent = longer.length ? `This text has ${tokens.length} tokens, more than ${longer.map((m) => `the ${m.trained} that ${m.name} was trained on`).join(" and ")}: the end of it is beyond what was learned.` : "";
  $$("#texts button").forEach((button, i) => button.setAttribute("aria-pressed", i === state.row));
  showAll();
}

function showAll() {
  if (state.night !== null) root.style.colorScheme = state.night ? "dark" : "light";
  mix();
  drawScale();
  $$("[data-set]").forEach((button) => button.setAttribute("aria-pressed", String(state[button.dataset.set]) === button.dataset.to));
  for (const member of members) {
    // Asked for once: an answer after a change would make the browser lay out the page anew.
    member.width = member.cells.profile.clientWidth;
    member.tops = member.spans.map((span) => span.offsetTop - member.tokens.offsetTop);
    showThumbs(member); showHead(member);
  }
  point();
}

function drawScale() {
  const width = $("#scale").clientWidth, height = $("#scale").clientHeight, context = fit($("#scale"), width, height);
  cssOf.forEach((color, v) => { context.fillStyle = color; context.fillRect(v / 256 * width, 0, width / 256 + 1, height); });
  context.font = colors.font.replace("11px", "10px"); context.textBaseline = "middle"; context.textAlign = "center";
  for (const [share, text] of [[0.01, "1%"], [0.1, "10%"], [0.3, "30%"], [0.7, "70%"]]) {
    const v = Math.round(255 * Math.sqrt(share));
    context.fillStyle = inkOf[v]; context.fillText(text, v / 256 * width, height / 2 + 1);
  }
}

function showHead(member) {
  $$(".thumb", member.cells.heads).forEach((thumb, i) => thumb.setAttribute("aria-pressed", i === member.head));
  member.levels.fill(-1);
  drawMap(member);
  drawProfile(member);
}

// --- maps ----------------------------------------------------------------------------------------

// Weights as pixels, queries down, keys or distances across. Of many keys in one pixel the largest
// counts: in a mean, a query that looks at one token would not be seen. Of many queries the largest
// too or, in a small picture, their mean, which shows what most of them do.
function paint(head, side, zoom, mean = false) {
  const image = new ImageData(side, side), pixels = new Uint32Array(image.data.buffer);
  const ends = (from, i) => {
    const first = Math.floor(from + i * zoom.span / side);
    return [first, Math.max(first, Math.ceil(from + (i + 1) * zoom.span / side) - 1)];
  };
  const columns = Array.from({ length: side }, (_, x) => ends(zoom.x, x));
  const values = new Float32Array(side), counts = new Int32Array(side);
  for (let y = 0; y < side; y++) {
    const [top, bottom] = ends(zoom.y, y);
    values.fill(0); counts.fill(0);
    for (let query = top; query <= Math.min(bottom, head.length - 1); query++) {
      const base = query * (query + 1) / 2;
      for (let x = 0; x < side; x++) {
        const [first, last] = columns[x], end = Math.min(last, query);
        if (first > query) break;
        let most = 0;
        for (let column = first; column <= end; column++) {
          const value = head.tiles[base + (state.sheared ? query - column : column)];
          if (value > most) most = value;
        }
        values[x] = mean ? values[x] + most : Math.max(values[x], most);
        counts[x]++;
      }
    }
    for (let x = 0; x < side && counts[x]; x++) pixels[y * side + x] = bytesOf[Math.round(mean ? values[x] / counts[x] : values[x])];
  }
  return image;
}

const fit = (canvas, width, height) => {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], context = canvas.getContext("2d");
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  context.reset();
  context.scale(ratio, ratio);
  return context;
};
function showThumbs(member) {
  const T = row().tokens.length;
  $$(".thumb canvas", member.cells.heads).forEach((canvas, i) => {
    const side = Math.round((canvas.clientWidth || 64) * (devicePixelRatio || 1));
    canvas.width = canvas.height = side;
    canvas.getContext("2d").putImageData(paint(member.all[i], side, { x: 0, y: 0, span: T }, true), 0, 0);
  });
}

function geometry(member) {
  const { width } = member, names = width / state.zoom.span > 14;
  const left = names ? 66 : 34, top = names && !state.sheared ? 62 : 20;
  return { width, left, top, side: width - left, names, cell: (width - left) / state.zoom.span };
}

function drawMap(member) {
  const { width, left, top, side, names, cell } = geometry(member);
  if (!width) return;
  const context = fit(member.base, width, width), zoom = state.zoom, ratio = devicePixelRatio || 1;
  const tokens = row().tokens, height = width - top;
  const pixels = Math.round(side * ratio);
  context.putImageData(paint(member.all[member.head], pixels, zoom), Math.round(left * ratio), Math.round(top * ratio));
  context.clearRect(0, 0, width, top);
  context.strokeStyle = colors.rule;
  context.strokeRect(left + 0.5, top + 0.5, side - 1, height - 1);
  context.font = colors.font; context.fillStyle = colors.faint; context.textBaseline = "middle";
  const step = names ? 1 : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => each * cell >= 34) ?? 2000;
  const label = (place) => names ? named(tokens[place]).slice(0, 9) : String(place);
  for (let i = Math.ceil(zoom.y / step) * step; i < Math.min(tokens.length, zoom.y + height / cell); i += step) {
    context.textAlign = "right";
    context.fillText(label(i), left - 4, top + (i + 0.5 - zoom.y) * cell);
  }
  for (let i = Math.ceil(zoom.x / step) * step; i < Math.min(tokens.length, zoom.x + zoom.span); i += step) {
    const x = left + (i + 0.5 - zoom.x) * cell;
    if (names && !state.sheared) {
      context.save(); context.translate(x, top - 4); context.rotate(-Math.PI / 2); context.textAlign = "left";
      context.fillText(label(i), 0, 0); context.restore();
    } else if (!names || i % Math.ceil(22 / cell) === 0) {
      context.textAlign = x > left + side - 14 ? "right" : "center"; context.fillText(String(i), Math.min(x, left + side), top - 9);
    }
  }
  const [layer, number] = member.heads[member.head];
  $(".bar span", member.cells.map).textContent = `layer ${layer}, head ${number}: queries down, ${state.sheared ? "distance back" : "keys"} across`;
}

function drawOver(member) {
  const { width, left, top, side, cell } = geometry(member);
  if (!width) return;
  const context = fit(member.over, width, width), { query, key } = pairOf(member), zoom = state.zoom;
  context.beginPath(); context.rect(left, top, side, width - top); context.clip();
  const x = (column) => left + (column - zoom.x) * cell, y = (line) => top + (line - zoom.y) * cell;
  const box = (q, k, color, pad) => {
    const size = Math.max(cell, 5) + 2 * pad, at = cell / 2 - size / 2;
    context.strokeStyle = color; context.lineWidth = 1.5;
    context.strokeRect(x(state.sheared ? q - k : k) + at, y(q) + at, size, size);
  };
  // The token's own line: its row as a query; as a key its column, a diagonal among distances.
  const token = state.token + 0.5, last = row().tokens.length;
  context.strokeStyle = colors.query; context.lineWidth = 1.2; context.beginPath();
  if (!state.seen) { context.moveTo(x(0), y(token)); context.lineTo(x(token), y(token)); }
  else if (state.sheared) { context.moveTo(x(0), y(token - 0.5)); context.lineTo(x(last - token), y(last)); }
  else { context.moveTo(x(token), y(token)); context.lineTo(x(token), y(last)); }
  context.stroke();
  if (query !== null && key !== null) box(query, key, colors.look, 2);
  const known = state.seen ? null : member.known.get(state.token);
  if (known) box(state.token, known.key, colors.ink, 4);
}

// --- by distance ---------------------------------------------------------------------------------

// Heights, from the top: pairs by their periods, weights, scores; a line of words above each.
const WORDS = 18, PAIRS = 26, UPPER = 84, LOWER = 108, LEFT = 36;
const TOP = WORDS + PAIRS, MIDDLE = TOP + WORDS + UPPER, FLOOR = MIDDLE + WORDS + LOWER;

function drawProfile(member) {
  const head = member.all[member.head], T = head.length, width = Math.max(280, member.width), height = FLOOR + 30;
  const far = T - 1, from = state.log ? 1 : 0, side = width - LEFT - 8;
  const x = state.log ? (m) => LEFT + side * Math.log2(Math.max(m, 1)) / Math.log2(Math.max(far, 2)) : (m) => LEFT + side * m / Math.max(far, 1);
  const upper = (weight) => MIDDLE - UPPER * Math.sqrt(clamp(weight, 0, 1));
  const points = [];
  for (let m = from; m <= far; m++) if (!Number.isNaN(head.score[m])) points.push(m);
  const size = member.known.size > 80 ? 2.2 : 3.4;
  const matches = [...member.known].map(([query, { key, right }]) => ({ m: query - key, query, key, right, score: head.scored(query, key) }));
  let low = Infinity, high = -Infinity;
  for (const m of points) { low = Math.min(low, head.score[m] - head.spread[m]); high = Math.max(high, head.score[m] + head.spread[m]); }
  for (const { score } of matches) { low = Math.min(low, score); high = Math.max(high, score); }
  if (!(high > low)) [low, high] = [low - 1, low + 1];
  const lower = (score) => FLOOR - LOWER * (score - low) / (high - low);
  member.scales = { x, upper, lower, width, far, side };
  const path = (y) => points.map((m, i) => `${i ? "L" : "M"}${x(m).toFixed(1)} ${y(m).toFixed(1)}`).join("");
  const band = points.map((m) => `${x(m).toFixed(1)},${lower(head.score[m] + head.spread[m]).toFixed(1)}`).concat([...points].reverse().map((m) => `${x(m).toFixed(1)},${lower(head.score[m] - head.spread[m]).toFixed(1)}`)).join(" ");
  const grid = (y, text) => `<line x1="${LEFT}" x2="${width - 8}" y1="${y}" y2="${y}" stroke="var(--rule)"/><text x="${LEFT - 4}" y="${y + 3.5}" text-anchor="end">${text}</text>`;
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => (high - low) / each <= 4.5) ?? 1000;
  const scores = [];
  for (let s = Math.ceil(low / steps) * steps; s <= high; s += steps) scores.push(+s.toFixed(6));
  const ticks = [];
  if (state.log) for (let m = 1; m <= far; m *= 2) ticks.push(m);
  else { const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000].find((each) => side * each / far >= 44) ?? 1e4; for (let m = 0; m <= far; m += step) ticks.push(m); }
  const words = (y, text) => `<text x="${LEFT}" y="${y + 13}" class="label">${text}</text>`;
  member.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  member.svg.innerHTML = `
    ${periods(member, head)}
    ${[[0, "0"], [0.01, "1%"], [0.1, "10%"], [0.5, "50%"], [1, "100%"]].map(([w, text]) => grid(upper(w), text)).join("")}
    ${scores.map((s) => grid(lower(s), String(s).replace("-", "−"))).join("")}
    <g class="own"></g>
    <path d="${path((m) => upper(head.weight[m]))}" fill="none" stroke="var(--look)" stroke-width="1.8"/>
    <polygon points="${band}" fill="var(--look)" opacity=".16"/>
    <path d="${path((m) => lower(head.score[m]))}" fill="none" stroke="var(--look)" stroke-width="1.6"/>
    ${matches.filter(({ m }) => m >= from).map(({ m, right, score }) => right
    ? `<circle cx="${x(m).toFixed(1)}" cy="${lower(score).toFixed(1)}" r="${size}" fill="var(--right)" stroke="var(--paper)" stroke-width=".8"/>`
    : `<circle cx="${x(m).toFixed(1)}" cy="${lower(score).toFixed(1)}" r="${size}" fill="var(--paper)" stroke="var(--wrong)" stroke-width="1.6"/>`).join("")}
    ${words(TOP, `weight: <tspan fill="var(--look)">mean</tspan>, <tspan fill="var(--query)">this token</tspan>`)}
    ${words(MIDDLE, `score: <tspan fill="var(--look)">all keys, mean ± sd</tspan>${matches.length ? `; to recall: <tspan fill="var(--right)">● said right</tspan> <tspan fill="var(--wrong)">○ wrong</tspan>` : ""}`)}
    ${ticks.map((m) => `<text x="${x(m)}" y="${FLOOR + 13}" text-anchor="middle">${m}</text>`).join("")}
    <text x="${width - 8}" y="${height - 4}" text-anchor="end">distance back, tokens</text>
    <g class="cursor"></g>`;
}

// Pairs at the distance where they have made a full turn, as high as the head makes use of them.
function periods(member, head) {
  const { x, far, width } = member.scales, right = width - 8, uses = head.uses, most = Math.max(...uses, 1e-9);
  const turning = head.turns.map((turn, i) => ({ i, period: 1 / turn })).filter(({ period }) => Number.isFinite(period)).sort((a, b) => b.period - a.period);
  const near = turning.filter(({ period }) => period <= far), still = head.turns.length - turning.length, slower = turning.length - near.length;
  let said = "", free = right + 99;
  if (near.length && !still && !slower) {
    said += `<rect x="${x(near[0].period)}" width="${right - x(near[0].period)}" y="${WORDS}" height="${FLOOR - WORDS}" fill="var(--turn)" opacity=".1"/>`;
  }
  const rest = [slower ? `${slower} slower` : "", still ? `${still} do not turn` : ""].filter(Boolean).join(", ");
  const end = rest ? right - 6 * rest.length - 36 : right;
  for (const { i, period } of near) {
    const at = x(period), share = uses[i] / most;
    said += `<line x1="${at}" x2="${at}" y1="${TOP - Math.max(1.5, PAIRS * share)}" y2="${TOP}" stroke="var(--turn)" stroke-width="2.5"/><line x1="${at}" x2="${at}" y1="${TOP}" y2="${FLOOR}" stroke="var(--turn)" stroke-width="1" opacity="${(0.06 + 0.34 * share).toFixed(2)}"/>`;
    if (free - at > 28 && at > LEFT + 84 && at < end) { said += `<text x="${at}" y="${WORDS - 5}" text-anchor="middle" class="turn">${short(period)}</text>`; free = at; }
  }
  said += `<text x="0" y="${WORDS - 5}" class="turn">pairs turn round at</text>`;
  return said + (rest ? `<text x="${right}" y="${WORDS - 5}" text-anchor="end" class="turn">${rest} →</text>` : "");
}

function drawCursor(member) {
  const head = member.all[member.head], { x, upper, lower } = member.scales, { token, seen } = state, { query, key } = pairOf(member);
  const from = state.log ? 1 : 0, most = seen ? head.length - 1 - token : token;
  let bars = "", cursor = "";
  for (let m = from; m <= most; m++) {
    const value = seen ? head.byte(token + m, token) : head.byte(token, token - m);
    if (value > 5) bars += `M${x(m).toFixed(1)} ${upper(0)}V${upper((value / 255) ** 2).toFixed(1)}`;
  }
  $(".own", member.svg).innerHTML = `<path d="${bars}" stroke="var(--query)" stroke-width="2.2" fill="none"/>`;
  if (query !== null && query - key >= from) {
    const at = x(query - key).toFixed(1);
    cursor = `<line x1="${at}" x2="${at}" y1="${TOP}" y2="${FLOOR}" stroke="var(--ink)" stroke-dasharray="3 2"/><circle cx="${at}" cy="${lower(head.scored(query, key)).toFixed(1)}" r="5.5" fill="none" stroke="var(--ink)" stroke-width="1.6"/>`;
  }
  $(".cursor", member.svg).innerHTML = cursor;
}

const abreast = () => (innerWidth < 480 ? 16 : 32);
// The hands of the pairs at this query and key: up adds to the score, down takes from it.
function drawHands(member) {
  const head = member.all[member.head], R = head.turns.length, { query, key } = pairOf(member);
  const { width } = member, each = width / Math.min(R, abreast()), size = Math.min(each, 22), line = size + 26;
  const context = fit(member.pairs, width, Math.ceil(R / abreast()) * line);
  member.pairs.style.height = `${Math.ceil(R / abreast()) * line}px`;
  member.caption.innerHTML = "";
  if (query === null || size < 4) return;
  const hands = head.hands(query, key), lengths = head.turns.map((_, i) => Math.hypot(hands[2 * i], hands[2 * i + 1]));
  const most = Math.max(...lengths, 1e-9), ups = lengths.map((_, i) => hands[2 * i]);
  lengths.forEach((length, i) => {
    const x = (i % abreast() + 0.5) * each, top = Math.floor(i / abreast()) * line, y = top + size / 2 + 1, radius = size / 2 - 1;
    const reach = radius * Math.sqrt(length / most), angle = Math.atan2(hands[2 * i + 1], hands[2 * i]);
    context.strokeStyle = colors.rule; context.lineWidth = 1;
    context.beginPath(); context.arc(x, y, radius, 0, 7); context.stroke();
    context.strokeStyle = context.fillStyle = ups[i] >= 0 ? colors.look : colors.wrong; context.lineWidth = 2;
    context.beginPath(); context.moveTo(x, y); context.lineTo(x + reach * Math.sin(angle), y - reach * Math.cos(angle)); context.stroke();
    const bar = 10 * ups[i] / most, middle = top + size + 14;
    context.fillRect(x - size / 2 + 1, Math.min(middle, middle - bar), size - 2, Math.max(Math.abs(bar), 0.5));
  });
  const up = ups.reduce((sum, each) => sum + Math.max(0, each), 0), down = ups.reduce((sum, each) => sum + Math.min(0, each), 0);
  member.caption.innerHTML = `Each hand is a pair of features, the fastest at the left: it turns with distance, up adds to the score and down takes from it. Here, ${query - key} back, ${signed(up)} and ${signed(down)} make <b>${signed(up + down)}</b>.`;
}

function sayPair(member, event) {
  const head = member.all[member.head], R = head.turns.length, box = member.pairs.getBoundingClientRect(), { query, key } = pairOf(member);
  const i = Math.floor((event.clientX - box.left) / box.width * Math.min(R, abreast())) + abreast() * Math.floor((event.clientY - box.top) / box.height * Math.ceil(R / abreast()));
  if (!(i >= 0 && i < R) || query === null) return;
  const turn = head.turns[i], m = query - key;
  member.caption.textContent = `Pair ${i}: ${turn ? `a full turn in ${short(1 / turn)} tokens, ${(turn * m).toFixed(2)} turns in the ${m} back` : "does not turn"}; ${signed(head.hands(query, key)[2 * i])} of the score.`;
}

// --- pointing ------------------------------------------------------------------------------------

// The pair that is looked at: the two that are pointed at, or the token and its largest weight.
function pairOf(member) {
  const { token, other, seen } = state, fits = other !== null && (seen ? other >= token : other <= token);
  const second = fits ? other : member.all[member.head].best(token, seen, 1)[0] ?? null;
  return second === null ? { query: null, key: null } : seen ? { query: second, key: token } : { query: token, key: second };
}

// Words out of sight can wait until the pointer rests.
let rest = 0;
function shadeAll() {
  for (const member of members) { shade(member, member.tokens.scrollTop - 30, member.tokens.scrollTop + member.tokens.clientHeight); mark(member); }
  clearTimeout(rest);
  rest = setTimeout(() => members.forEach((member) => shade(member, 0, Infinity)), 60);
}

function shade(member, top, bottom) {
  const head = member.all[member.head], { token, seen } = state, { spans, levels, tops } = member;
  for (let place = 0; place < spans.length; place++) {
    if (tops[place] < top || tops[place] > bottom) continue;
    const value = seen ? head.byte(place, token) : head.byte(token, place), level = value >> 3;
    if (level === levels[place]) continue;
    levels[place] = level;
    spans[place].style.backgroundColor = level ? cssOf[8 * level] : "";
    spans[place].style.color = level ? inkOf[8 * level] : "";
  }
}

function mark(member) {
  const { token, other, seen } = state, { spans } = member;
  const marks = { token, other, source: seen ? null : member.known.get(token)?.key ?? null };
  for (const [name, place] of Object.entries(marks)) {
    const before = member.marks?.[name] ?? null;
    if (before !== null) spans[before]?.classList.remove(name);
    if (place !== null) spans[place]?.classList.add(name);
  }
  member.marks = marks;
}

const code = (id) => `<code>${escaped(named(id))}</code>`;
function tell(member) {
  const head = member.all[member.head], { token, other, seen } = state, tokens = row().tokens, known = member.known.get(token), { query, key } = pairOf(member);
  const [layer, number] = member.heads[member.head], weigh = (q, k) => `weight <b>${percent(head.at(q, k))}</b>, score <b>${signed(head.scored(q, k))}</b>`;
  const chip = (place) => `<button type="button" class="chip" data-other="${place}">${escaped(named(tokens[place]))} <b>${percent(seen ? head.at(place, token) : head.at(token, place))}</b> <small>${Math.abs(token - place)} ${seen ? "on" : "back"}</small></button>`;
  const next = tokens[token + 1], expects = [0, 1].map((i) => `${code(member.expected[3 * token + i])} ${percent(member.chance[3 * token + i])}`).join(", ");
  const pointed = other !== null && query !== null && (seen ? query : key) === other;
  member.readout.innerHTML = `
    <p>${code(tokens[token])} at ${token} ${seen ? "is seen by" : "looks at"} ${pointed ? `${code(tokens[other])} ${Math.abs(other - token)} ${seen ? "on" : "back"}: ${weigh(query, key)}` : `<small>layer ${layer}, head ${number}</small>`}</p>
    <p>${head.best(token, seen, 5).map(chip).join("") || "nothing"}</p>
    <p>${known ? `to recall ${code(tokens[known.key])} ${token - known.key} back: ${weigh(token, known.key)}` : "&nbsp;"}</p>
    <p>${next === undefined ? "" : `then comes ${code(next)} ${member.expected[3 * token] === next ? '<span class="yes">✓</span>' : '<span class="no">✗</span>'} `}model expects ${expects}</p>`;
}

function captions(member) {
  const known = state.seen ? null : member.known.get(state.token);
  $(".caption", member.cells.heads).textContent = `layer·head, and how many tokens ${state.seen ? "on it is seen from" : "back it looks"} most${known ? ", ✓ if at what is to recall" : ""}`;
  $$(".thumb span", member.cells.heads).forEach((span, i) => {
    const best = member.all[i].best(state.token, state.seen, 1)[0], [layer, head] = member.heads[i];
    const far = best === undefined ? "–" : Math.abs(state.token - best);
    span.innerHTML = `${layer}·${head} <b>${far}</b>${known && best === known.key ? ' <b class="yes">✓</b>' : ""}`;
  });
}

function point() {
  document.body.classList.toggle("held", state.held);
  shadeAll();
  for (const member of members) { tell(member); captions(member); drawCursor(member); drawHands(member); drawOver(member); }
}

// Many events of one frame are answered once.
let asked = null;
function change(news) {
  if (Object.entries(news).every(([name, value]) => state[name] === value)) return;
  Object.assign(state, news);
  asked ??= requestAnimationFrame(() => { asked = null; point(); });
}

function reveal() {
  for (const { tokens, spans } of members) {
    const span = spans[state.token], up = span.offsetTop - tokens.offsetTop;
    if (up < tokens.scrollTop || up + 24 > tokens.scrollTop + tokens.clientHeight) tokens.scrollTop = up - tokens.clientHeight / 2;
  }
}

const memberOf = (element) => members[element.closest?.("[data-member]")?.dataset.member];
const placeOf = (element) => { const at = element.closest?.("[data-at]"); return at ? Number(at.dataset.at) : null; };

function go(token) { change({ token: clamp(token, 0, row().tokens.length - 1), other: null }); reveal(); }
function nextRecall(step) {
  const queries = row().recalls.map(([query]) => query);
  const found = step > 0 ? queries.find((query) => query > state.token) ?? queries[0] : queries.filter((query) => query < state.token).pop() ?? queries.at(-1);
  if (found !== undefined) go(found);
}
function nextHead(step) {
  const member = members[state.active];
  member.head = (member.head + step + member.heads.length) % member.heads.length;
  showHead(member); point();
}
function zoomBy(factor, x, y) {
  const T = row().tokens.length, zoom = state.zoom, span = factor ? clamp(zoom.span * factor, Math.min(T, 8), T) : T;
  const keep = (from, at) => clamp(at - (at - from) * span / zoom.span, 0, T - span);
  state.zoom = { span, x: keep(zoom.x, x), y: keep(zoom.y, y) };
  members.forEach((member) => { drawMap(member); drawOver(member); });
}
function zoomHere(factor) {
  const { query, key } = pairOf(members[state.active]);
  const T = row().tokens.length, zoom = state.zoom, x = (state.sheared ? query - key : key) + 0.5, y = query + 0.5;
  if (factor && factor < 1) { // what is looked at comes to the middle
    const half = zoom.span / 2;
    state.zoom = { ...zoom, x: clamp(x - half, 0, T - zoom.span), y: clamp(y - half, 0, T - zoom.span) };
  }
  zoomBy(factor, x, y);
}
function set(name, value) { state[name] = value; showAll(); }

function listen() {
  // Text that scrolls below a pointer at rest is not pointed at: keys would be answered twice.
  let rests = "";
  const where = (event) => `${event.clientX} ${event.clientY}`;
  document.addEventListener("pointermove", (event) => { rests = where(event); });
  document.addEventListener("pointerover", (event) => {
    if (where(event) === rests) return;
    const member = memberOf(event.target), place = placeOf(event.target), chip = event.target.closest?.("[data-other]");
    if (member) state.active = member.index;
    if (chip) change({ other: Number(chip.dataset.other) });
    else if (place !== null) change(state.held && event.pointerType === "mouse" ? { other: place } : { token: place, other: null });
  });
  document.addEventListener("pointerout", (event) => {
    if (event.target.closest?.("[data-other]") && !event.relatedTarget?.closest?.("[data-other]")) change({ other: null });
  });
  document.addEventListener("click", (event) => {
    const { target } = event, place = placeOf(target), member = memberOf(target), thumb = target.closest(".thumb"), button = target.closest("button");
    if (place !== null) change(state.held && state.token === place ? { held: false, other: null } : { held: true, token: place, other: null });
    else if (thumb) { member.head = Number(thumb.dataset.head); state.active = member.index; showHead(member); point(); }
    else if (button?.dataset.set) set(button.dataset.set, button.dataset.to === "true");
    else if (button?.dataset.row) { state.row = Number(button.dataset.row); showRow(); }
    else if (button?.dataset.zoom) zoomHere(Number(button.dataset.zoom));
    else if (button?.id === "night") set("night", !isNight());
    else if (button?.id === "ask") help();
  });
  document.addEventListener("keydown", keyed);
  for (const member of members) {
    listenMap(member);
    member.svg.addEventListener("pointermove", (event) => {
      const box = member.svg.getBoundingClientRect(), { side, far, width } = member.scales;
      const share = clamp(((event.clientX - box.left) * width / box.width - LEFT) / side, 0, 1);
      const m = Math.round(state.log ? 2 ** (share * Math.log2(Math.max(far, 2))) : share * far);
      state.active = member.index;
      const other = state.seen ? state.token + m : state.token - m;
      if (other >= 0 && other < row().tokens.length) change({ other });
    });
    member.svg.addEventListener("pointerleave", () => change({ other: null }));
    member.pairs.addEventListener("pointermove", (event) => sayPair(member, event));
    member.pairs.addEventListener("pointerleave", () => drawHands(member));
    member.tokens.addEventListener("pointerleave", () => change({ other: null }));
    member.tokens.addEventListener("scroll", () => members.forEach((other) => { if (other.tokens.scrollTop !== member.tokens.scrollTop) other.tokens.scrollTop = member.tokens.scrollTop; }));
  }
  media.addEventListener("change", () => showAll());
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; showAll(); tall(); } });
}

function listenMap(member) {
  const canvas = member.over, held = new Map();
  let moved = 0, spread = 0;
  const cellOf = (event) => {
    const box = canvas.getBoundingClientRect(), { left, top, cell } = geometry(member), zoom = state.zoom;
    const x = zoom.x + (event.clientX - box.left - left) / cell, y = zoom.y + (event.clientY - box.top - top) / cell;
    return { x, y };
  };
  const look = (event) => {
    const { x, y } = cellOf(event), query = Math.floor(y), column = Math.floor(x), key = state.sheared ? query - column : column;
    state.active = member.index;
    if (query >= 0 && query < row().tokens.length && column >= 0 && key >= 0 && key <= query) { change(state.seen ? { token: key, other: query } : { token: query, other: key }); reveal(); }
  };
  canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); moved = 0; spread = 0; });
  canvas.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) { look(event); return; }
    const { cell } = geometry(member), T = row().tokens.length, zoom = state.zoom;
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    held.set(event.pointerId, event);
    if (held.size === 2) {
      const [a, b] = [...held.values()], now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      const middle = cellOf({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 });
      if (spread) zoomBy(spread / now, middle.x, middle.y);
      spread = now;
    } else if (moved > 4 && zoom.span < T) {
      canvas.setPointerCapture(event.pointerId);
      state.zoom = { ...zoom, x: clamp(zoom.x - (event.clientX - before.clientX) / cell, 0, T - zoom.span), y: clamp(zoom.y - (event.clientY - before.clientY) / cell, 0, T - zoom.span) };
      members.forEach((each) => { drawMap(each); drawOver(each); });
    }
  });
  const release = (event) => { held.delete(event.pointerId); spread = 0; };
  canvas.addEventListener("pointerup", (event) => { release(event); if (moved <= 4) { look(event); change({ held: true }); } });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => { release(event); change({ other: null }); });
  canvas.addEventListener("dblclick", (event) => { const { x, y } = cellOf(event); zoomBy(0.5, x, y); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const { x, y } = cellOf(event);
    zoomBy(2 ** clamp(event.deltaY / 200, -1, 1), x, y);
  }, { passive: false });
}

function help() {
  $("#keys").hidden = !$("#keys").hidden;
  $("#ask").setAttribute("aria-expanded", !$("#keys").hidden);
  tall();
}

function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inButton = event.target.closest?.("button");
  const answers = {
    ArrowLeft: () => go(state.token - 1), ArrowRight: () => go(state.token + 1),
    q: () => nextRecall(1), Q: () => nextRecall(-1), h: () => nextHead(1), H: () => nextHead(-1),
    m: () => { state.active = (state.active + 1) % members.length; $$(".thumb", members[state.active].cells.heads)[members[state.active].head].focus({ preventScroll: true }); },
    t: () => { state.row = (state.row + 1) % page.rows.length; showRow(); },
    f: () => set("seen", !state.seen), d: () => set("sheared", !state.sheared), x: () => set("log", !state.log), n: () => set("night", !isNight()),
    "+": () => zoomHere(0.5), "=": () => zoomHere(0.5), "-": () => zoomHere(2), 0: () => zoomHere(0),
    Escape: () => change({ held: false, other: null }), "?": help,
    ...(inButton ? {} : { Enter: () => change({ held: !state.held }) }),
  };
  if (!Object.hasOwn(answers, event.key)) return;
  event.preventDefault();
  answers[event.key]();
}

// In a notebook the page stands in a frame, which is made as tall as it.
function tall() {
  try { if (window.frameElement) window.frameElement.style.height = `${document.body.scrollHeight + 4}px`; } catch { /* a frame of another origin keeps its height */ }
}

unpack().then(() => { build(); listen(); showRow(); reveal(); tall(); root.dataset.ready = "true"; });
