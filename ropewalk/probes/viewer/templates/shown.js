// State, colors, and parts of the page.

const members = page.members.map((member, index) => ({ ...member, index, head: 0 }));
// token: selected token; other: second token of a selected pair; seen: whether the token is the key.
const state = {
  row: 0,
  token: 0,
  other: null,
  held: false,
  seen: false,
  sheared: false,
  log: true,
  active: 0,
  night: null,
  zoom: { x: 0, y: 0, span: 0 },
};
const row = () => page.rows[state.row];
const media = matchMedia("(prefers-color-scheme: dark)");
const isNight = () => state.night ?? media.matches;

// Color of a weight from 0 to 1: one hue of monotonic lightness.
const RAMPS = {
  day: ["#ffffff", "#dbe9f6", "#bad6eb", "#89bedc", "#539ecd", "#2b7bba", "#0b559f", "#08306b"],
  night: ["#14171b", "#132c46", "#124672", "#1763a0", "#2f86c8", "#62aee0", "#a5d3f1", "#f2faff"],
};
let bytesOf, cssOf, inkOf, colors;
// Resolves CSS colors of the current scheme for canvases.
const NAMED = ["ink", "faint", "rule", "look", "query", "wrong"];
for (const name of NAMED)
  CSS.registerProperty({
    name: `--${name}`,
    syntax: "<color>",
    inherits: true,
    initialValue: "gray",
  });
function mix() {
  const found = getComputedStyle(root);
  colors = Object.fromEntries(NAMED.map((name) => [name, found.getPropertyValue(`--${name}`)]));
  colors.font = `11px ${found.fontFamily}`;
  const stops = RAMPS[isNight() ? "night" : "day"].map((hex) =>
    [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)),
  );
  bytesOf = new Uint32Array(256);
  cssOf = [];
  inkOf = [];
  for (let v = 0; v < 256; v++) {
    const place = (v / 255) * (stops.length - 1);
    const i = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[i].map((from, c) =>
      Math.round(from + (stops[i + 1][c] - from) * (place - i)),
    );
    bytesOf[v] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    cssOf.push(`rgb(${r},${g},${b})`);
    inkOf.push(0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101418" : "#fff");
  }
}

function build() {
  const makers = {
    names: (m) => `<h2 title="${escaped(m.rotary)}">${escaped(m.name)}<small></small></h2>`,
    heads: () => `<div class="grid"></div><p class="caption"></p>`,
    text: () =>
      `<div class="tokens" tabindex="0" role="application" aria-label="Text; arrow keys go from token to token"></div><div class="readout" aria-live="off"></div>`,
    profile: () =>
      `<svg role="img" aria-label="Weight and score by distance"></svg><div class="pairs"><canvas></canvas></div><p class="caption"></p>`,
    map: () =>
      `<div class="bar"><span></span><span class="choice"><button type="button" data-zoom="0.5" aria-label="Zoom in">+</button><button type="button" data-zoom="2" aria-label="Zoom out">−</button><button type="button" data-zoom="0">all</button></span></div><div class="frame"><canvas></canvas><canvas tabindex="0" aria-label="Map of weights; point at a cell for its two tokens"></canvas></div>`,
  };
  const shown = $("#members");
  shown.style.setProperty("--members", members.length);
  shown.classList.toggle("one", members.length === 1);
  shown.innerHTML = Object.entries(makers)
    .map(
      ([kind, make]) =>
        `<section class="row ${kind}">${members.map((m) => `<div class="cell" data-member="${m.index}" data-name="${escaped(m.name)}">${make(m)}</div>`).join("")}</section>`,
    )
    .join("");
  for (const member of members) {
    const cell = (kind) => $(`.${kind} [data-member="${member.index}"]`);
    member.cells = {
      heads: cell("heads"),
      text: cell("text"),
      profile: cell("profile"),
      map: cell("map"),
    };
    member.tokens = $(".tokens", member.cells.text);
    member.readout = $(".readout", member.cells.text);
    member.svg = $("svg", member.cells.profile);
    member.pairs = $(".pairs canvas", member.cells.profile);
    member.caption = $(".caption", member.cells.profile);
    [member.base, member.over] = $$("canvas", member.cells.map);
    const layers = [...new Set(member.heads.map(([layer]) => layer))];
    const columns = Math.max(
      ...layers.map((layer) => member.heads.filter(([l]) => l === layer).length),
    );
    const grid = $(".grid", member.cells.heads);
    grid.style.gridTemplateColumns = `repeat(${columns}, minmax(2.2rem, ${columns > 5 ? 4.4 : 5.4}rem))`;
    grid.innerHTML = member.heads
      .map(
        ([layer, head], i) =>
          `<button type="button" class="thumb" data-head="${i}" title="Layer ${layer}, head ${head}"><canvas></canvas><span></span></button>`,
      )
      .join("");
  }
  if (page.rows.length > 1)
    $("#texts").innerHTML = page.rows
      .map((each, i) => `<button type="button" data-row="${i}">${escaped(each.title)}</button>`)
      .join("");
}

// A new text: its tokens, its heads, and an initial question.
function showRow() {
  const { tokens, recalls } = row();
  state.zoom = { x: 0, y: 0, span: tokens.length };
  Object.assign(state, { other: null, held: false });
  for (const member of members) {
    member.all = member.heads.map((_, i) => new Head(row(), member, i));
    const [kind, place, size] = row().members[member.index].expected;
    member.expected = new KINDS[kind](buffer, place, size);
    member.chance = new Float32Array(buffer, row().members[member.index].chance[1], size);
    member.known = new Map(
      recalls.map(([query, key]) => [
        query,
        { key, right: member.expected[2 * query] === tokens[query + 1] },
      ]),
    );
    member.head =
      member.all
        .map((head, i) => [recalls.reduce((sum, [query, key]) => sum + head.at(query, key), 0), -i])
        .reduce((a, b) => (b[0] > a[0] ? b : a))[1] * -1;
    member.tokens.innerHTML = tokens
      .map((id, place) => {
        const known = member.known.get(place);
        const text = pieces.get(id);
        const said = escaped(text).replace(/\n/g, "<i>⏎</i>\n");
        return `<span data-at="${place}"${known ? ` class="${known.right ? "right" : "wrong"}"` : ""}>${said}</span>`;
      })
      .join("");
    member.spans = [...member.tokens.children];
    member.levels = new Int16Array(tokens.length).fill(-1);
  }
  for (const member of members) {
    const right = [...member.known.values()].filter((each) => each.right).length;
    $(`.names [data-member="${member.index}"] small`).textContent = [
      `${member.heads.length} head${member.heads.length > 1 ? "s" : ""}`,
      `trained on ${member.trained} tokens`,
      ...(recalls.length ? [`recalls ${right} of ${recalls.length}`] : []),
    ].join(" · ");
  }
  // The initial question: the farthest recall that a model fails, or the farthest of all.
  const failed = recalls.filter(([query]) =>
    members.some((member) => !member.known.get(query).right),
  );
  const farthest = (failed.length ? failed : recalls).reduce(
    (a, b) => (b[0] - b[1] > a[0] - a[1] ? b : a),
    [tokens.length - 1, tokens.length - 1],
  );
  state.token = farthest[0];
  const longer = members.filter((member) => tokens.length > member.trained);
  $(".notice").hidden = !longer.length;
  $(".notice").textContent = longer.length
    ? `This text has ${tokens.length} tokens, more than ${longer.map((m) => `the ${m.trained} that ${m.name} was trained on`).join(" and ")}: its end is beyond the trained context.`
    : "";
  $$("#texts button").forEach((button, i) => button.setAttribute("aria-pressed", i === state.row));
  showAll();
}

function showAll() {
  if (state.night !== null) root.style.colorScheme = state.night ? "dark" : "light";
  mix();
  drawScale();
  $$("[data-set]").forEach((button) =>
    button.setAttribute("aria-pressed", String(state[button.dataset.set]) === button.dataset.to),
  );
  for (const member of members) {
    // Read once, because reading after a change forces a new layout.
    member.width = member.cells.profile.clientWidth;
    member.tops = member.spans.map((span) => span.offsetTop - member.tokens.offsetTop);
    showThumbs(member);
    showHead(member);
  }
  point();
}

function drawScale() {
  const width = $("#scale").clientWidth;
  const height = $("#scale").clientHeight;
  const context = fit($("#scale"), width, height);
  cssOf.forEach((color, v) => {
    context.fillStyle = color;
    context.fillRect((v / 256) * width, 0, width / 256 + 1, height);
  });
  context.font = colors.font.replace("11px", "10px");
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const [share, text] of [
    [0.01, "1%"],
    [0.1, "10%"],
    [0.3, "30%"],
    [0.7, "70%"],
  ]) {
    const v = Math.round(255 * Math.sqrt(share));
    context.fillStyle = inkOf[v];
    context.fillText(text, (v / 256) * width, height / 2 + 1);
  }
}

function showHead(member) {
  $$(".thumb", member.cells.heads).forEach((thumb, i) =>
    thumb.setAttribute("aria-pressed", i === member.head),
  );
  member.levels.fill(-1);
  drawMap(member);
  drawProfile(member);
}
