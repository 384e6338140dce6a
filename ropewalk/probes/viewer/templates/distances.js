// Weights and scores of a head by distance.

// Heights, from the top: pairs by period, weights, scores; a line of text above each.
const [WORDS, PAIRS, UPPER, LOWER, LEFT] = [18, 26, 84, 108, 36];
const TOP = WORDS + PAIRS;
const MIDDLE = TOP + WORDS + UPPER;
const FLOOR = MIDDLE + WORDS + LOWER;

// Scales of distances, weights and scores, and the curves.
function scalesOf(member) {
  const head = member.all[member.head];
  const width = Math.max(280, member.width);
  const side = width - LEFT - 8;
  const far = head.length - 1;
  const from = state.log ? 1 : 0;
  const distances = [];
  for (let m = from; m <= far; m++) if (!Number.isNaN(head.score[m])) distances.push(m);
  const recalls = [...member.known].map(([query, { key, right }]) => {
    return { m: query - key, right, score: head.scored(query, key) };
  });
  const scores = [
    ...distances.flatMap((m) => [head.score[m] - head.spread[m], head.score[m] + head.spread[m]]),
    ...recalls.map(({ score }) => score),
  ];
  const low = Math.min(...scores);
  const high = Math.max(...scores, low + 0.1);
  return {
    ...{ width, side, far, from, low, high, distances },
    recalls: recalls.filter(({ m }) => m >= from),
    x: state.log
      ? (m) => LEFT + (side * Math.log2(Math.max(m, 1))) / Math.log2(Math.max(far, 2))
      : (m) => LEFT + (side * m) / far,
    upper: (weight) => MIDDLE - UPPER * Math.sqrt(clamp(weight, 0, 1)),
    lower: (score) => FLOOR - (LOWER * (score - low)) / (high - low),
  };
}

function drawProfile(member) {
  const head = member.all[member.head];
  member.scales = scalesOf(member);
  const { x, upper, lower, width, side, far, low, high, distances, recalls } = member.scales;
  const point = (m, y) => `${x(m).toFixed(1)} ${y.toFixed(1)}`;
  const path = (y) => `M${distances.map((m) => point(m, y(m))).join("L")}`;
  const edge = (sign) => (m) => lower(head.score[m] + sign * head.spread[m]);
  const back = [...distances].reverse().map((m) => point(m, edge(-1)(m)));
  const grid = (y, text) => `
    <line x1="${LEFT}" x2="${width - 8}" y1="${y}" y2="${y}" stroke="var(--rule)"/>
    <text x="${LEFT - 4}" y="${y + 3.5}" text-anchor="end">${text}</text>`;
  const weights = { 0: "", 0.01: "1%", 0.1: "10%", 0.5: "50%", 1: "100%" };
  const step = rounded((high - low) / 4.5, 0.1);
  const scores = [];
  for (let s = Math.ceil(low / step); s * step <= high; s++) scores.push(+(s * step).toFixed(6));
  const ticks = [];
  if (state.log) for (let m = 1; m <= far; m *= 2) ticks.push(m);
  else for (let m = 0; m <= far; m += rounded((44 * far) / side, 1)) ticks.push(m);
  const size = recalls.length > 80 ? 2.2 : 3.4;
  const cross = `m${-size} ${-size}l${2 * size} ${2 * size}m0 ${-2 * size}l${-2 * size} ${2 * size}`;
  const dot = ({ m, right, score }) =>
    right
      ? `<circle cx="${x(m).toFixed(1)}" cy="${lower(score).toFixed(1)}" r="${size}" fill="var(--right)" stroke="var(--paper)" stroke-width="1.4"/>`
      : `<path d="M${point(m, lower(score))}${cross}" stroke="var(--wrong)" stroke-width="1.8"/>`;
  const words = (y, text) => `<text x="${LEFT}" y="${y + 13}" class="label">${text}</text>`;
  const colored = (name, text) => `<tspan fill="var(--${name})">${text}</tspan>`;
  // Three models side by side in a notebook leave no room for all words.
  const [all, recall] = width < 350 ? ["", ""] : ["all keys, ", "recall: "];
  const said = `; ${recall}${colored("right", "● correct")} ${colored("wrong", "✕ wrong")}`;
  member.svg.setAttribute("viewBox", `0 0 ${width} ${FLOOR + 30}`);
  member.svg.innerHTML = `
    ${periods(member, head)}
    ${Object.entries(weights)
      .map(([weight, text]) => grid(upper(weight), text))
      .join("")}
    ${scores.map((score) => grid(lower(score), String(score).replace("-", "−"))).join("")}
    <g class="own"></g>
    <path d="${path((m) => upper(head.weight[m]))}" fill="none" stroke="var(--look)" stroke-width="1.8"/>
    <path d="${path(edge(1))}L${back.join("L")}Z" fill="var(--look)" opacity=".16"/>
    <path d="${path((m) => lower(head.score[m]))}" fill="none" stroke="var(--look)" stroke-width="1.6"/>
    ${recalls.map(dot).join("")}
    ${words(TOP, `weight: ${colored("look", "mean")}, ${colored("query", "this token")}`)}
    ${words(MIDDLE, `score: ${colored("look", `${all}mean ± sd`)}${recalls.length ? said : ""}`)}
    ${ticks.map((m) => `<text x="${x(m)}" y="${FLOOR + 13}" text-anchor="middle">${m}</text>`).join("")}
    <text x="${width - 8}" y="${FLOOR + 26}" text-anchor="end">distance back, tokens</text>
    <g class="cursor"></g>`;
}

// Pairs at their periods; the height is the use that the head makes of them.
function periods(member, head) {
  const { x, far, width } = member.scales;
  const right = width - 8;
  const uses = head.uses;
  const most = Math.max(...uses, 1e-9);
  const turning = head.turns
    .map((turn, i) => ({ i, period: 1 / turn }))
    .filter(({ period }) => Number.isFinite(period))
    .sort((a, b) => b.period - a.period);
  const near = turning.filter(({ period }) => period <= far);
  const still = head.turns.length - turning.length;
  const slower = turning.length - near.length;
  let said = "";
  let free = right + 99;
  if (near.length && !still && !slower) {
    said += `<rect x="${x(near[0].period)}" width="${right - x(near[0].period)}" y="${WORDS}" height="${FLOOR - WORDS}" fill="var(--turn)" opacity=".1"/>`;
  }
  const rest = [slower ? `${slower} slower` : "", still ? `${still} unrotated` : ""]
    .filter(Boolean)
    .join(", ");
  const end = rest ? right - 6 * rest.length - 36 : right;
  for (const { i, period } of near) {
    const at = x(period);
    const share = uses[i] / most;
    said += `<line x1="${at}" x2="${at}" y1="${TOP - Math.max(1.5, PAIRS * share)}" y2="${TOP}" stroke="var(--turn)" stroke-width="2.5"/><line x1="${at}" x2="${at}" y1="${TOP}" y2="${FLOOR}" stroke="var(--turn)" stroke-width="1" opacity="${(0.06 + 0.34 * share).toFixed(2)}"/>`;
    if (free - at > 28 && at > LEFT + 84 && at < end) {
      said += `<text x="${at}" y="${WORDS - 5}" text-anchor="middle" class="turn">${short(period)}</text>`;
      free = at;
    }
  }
  said += `<text x="0" y="${WORDS - 5}" class="turn">periods of pairs</text>`;
  return (
    said +
    (rest
      ? `<text x="${right}" y="${WORDS - 5}" text-anchor="end" class="turn">${rest} →</text>`
      : "")
  );
}

function drawCursor(member) {
  const head = member.all[member.head];
  const { x, upper, lower } = member.scales;
  const { token, seen } = state;
  const { query, key } = pairOf(member);
  const from = state.log ? 1 : 0;
  const most = seen ? head.length - 1 - token : token;
  let bars = "";
  let cursor = "";
  for (let m = from; m <= most; m++) {
    const value = seen ? head.byte(token + m, token) : head.byte(token, token - m);
    if (value > 5)
      bars += `M${x(m).toFixed(1)} ${upper(0)}V${upper((value / 255) ** 2).toFixed(1)}`;
  }
  $(".own", member.svg).innerHTML =
    `<path d="${bars}" stroke="var(--query)" stroke-width="2.2" fill="none"/>`;
  if (query !== null && query - key >= from) {
    const at = x(query - key).toFixed(1);
    cursor = `<line x1="${at}" x2="${at}" y1="${TOP}" y2="${FLOOR}" stroke="var(--ink)" stroke-dasharray="3 2"/><circle cx="${at}" cy="${lower(head.scored(query, key)).toFixed(1)}" r="4" fill="var(--ink)"/>`;
  }
  $(".cursor", member.svg).innerHTML = cursor;
}

const abreast = () => (innerWidth < 480 ? 16 : 32);
// Hands of the pairs at this query and key: up adds to the score, down subtracts from it.
function drawHands(member) {
  const head = member.all[member.head];
  const R = head.turns.length;
  const { query, key } = pairOf(member);
  const { width } = member;
  const each = width / Math.min(R, abreast());
  const size = Math.min(each, 22);
  const line = size + 26;
  const context = fit(member.pairs, width, Math.ceil(R / abreast()) * line);
  member.pairs.style.height = `${Math.ceil(R / abreast()) * line}px`;
  member.caption.innerHTML = "";
  if (query === null || size < 4) return;
  const hands = head.hands(query, key);
  const lengths = head.turns.map((_, i) => Math.hypot(hands[2 * i], hands[2 * i + 1]));
  const most = Math.max(...lengths, 1e-9);
  const ups = lengths.map((_, i) => hands[2 * i]);
  lengths.forEach((length, i) => {
    const x = ((i % abreast()) + 0.5) * each;
    const top = Math.floor(i / abreast()) * line;
    const y = top + size / 2 + 1;
    const radius = size / 2 - 1;
    const reach = radius * Math.sqrt(length / most);
    const angle = Math.atan2(hands[2 * i + 1], hands[2 * i]);
    context.strokeStyle = colors.rule;
    context.lineWidth = 1;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.stroke();
    context.strokeStyle = context.fillStyle = ups[i] >= 0 ? colors.look : colors.wrong;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + reach * Math.sin(angle), y - reach * Math.cos(angle));
    context.stroke();
    const bar = (10 * ups[i]) / most;
    const middle = top + size + 14;
    context.fillRect(
      x - size / 2 + 1,
      Math.min(middle, middle - bar),
      size - 2,
      Math.max(Math.abs(bar), 0.5),
    );
  });
  const up = ups.reduce((sum, each) => sum + Math.max(0, each), 0);
  const down = ups.reduce((sum, each) => sum + Math.min(0, each), 0);
  member.caption.innerHTML = `Each hand is a pair of features, the fastest at the left. It rotates with distance; up adds to the score, down subtracts from it. Here, ${query - key} back, ${signed(up)} and ${signed(down)} give <b>${signed(up + down)}</b>.`;
}

function sayPair(member, event) {
  const head = member.all[member.head];
  const R = head.turns.length;
  const box = member.pairs.getBoundingClientRect();
  const { query, key } = pairOf(member);
  const i =
    Math.floor(((event.clientX - box.left) / box.width) * Math.min(R, abreast())) +
    abreast() * Math.floor(((event.clientY - box.top) / box.height) * Math.ceil(R / abreast()));
  if (!(i >= 0 && i < R) || query === null) return;
  const turn = head.turns[i];
  const m = query - key;
  member.caption.textContent = `Pair ${i}: ${turn ? `period ${short(1 / turn)} tokens, ${(turn * m).toFixed(2)} periods at distance ${m}` : "unrotated"}; ${signed(head.hands(query, key)[2 * i])} of the score.`;
}
