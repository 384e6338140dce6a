// Pointer and keyboard events.

// The selected pair: two tokens, or one token and the token of its largest weight.
function pairOf(member) {
  const { token, other, seen } = state;
  const fits = other !== null && (seen ? other >= token : other <= token);
  const second = fits ? other : (member.all[member.head].best(token, seen, 1)[0] ?? null);
  return second === null
    ? { query: null, key: null }
    : seen
      ? { query: second, key: token }
      : { query: token, key: second };
}

// Tokens out of view are updated when the pointer rests.
let rest = 0;
function shadeAll() {
  for (const member of members) {
    shade(
      member,
      member.tokens.scrollTop - 30,
      member.tokens.scrollTop + member.tokens.clientHeight,
    );
    mark(member);
  }
  clearTimeout(rest);
  rest = setTimeout(() => members.forEach((member) => shade(member, 0, Infinity)), 60);
}

function shade(member, top, bottom) {
  const head = member.all[member.head];
  const { token, seen } = state;
  const { spans, levels, tops } = member;
  for (let place = 0; place < spans.length; place++) {
    if (tops[place] < top || tops[place] > bottom) continue;
    const value = seen ? head.byte(place, token) : head.byte(token, place);
    const level = value >> 3;
    if (level === levels[place]) continue;
    levels[place] = level;
    spans[place].style.backgroundColor = level ? cssOf[8 * level] : "";
    spans[place].style.color = level ? inkOf[8 * level] : "";
  }
}

function mark(member) {
  const { token, other, seen } = state;
  const { spans } = member;
  const marks = { token, other, source: seen ? null : (member.known.get(token)?.key ?? null) };
  for (const [name, place] of Object.entries(marks)) {
    const before = member.marks?.[name] ?? null;
    if (before !== null) spans[before]?.classList.remove(name);
    if (place !== null) spans[place]?.classList.add(name);
  }
  member.marks = marks;
}

const code = (id) => `<code>${escaped(named(id))}</code>`;
function tell(member) {
  const head = member.all[member.head];
  const { token, other, seen } = state;
  const tokens = row().tokens;
  const known = member.known.get(token);
  const { query, key } = pairOf(member);
  const [layer, number] = member.heads[member.head];
  const weigh = (q, k) =>
    `weight <b>${percent(head.at(q, k))}</b>, score <b>${signed(head.scored(q, k))}</b>`;
  const chip = (place) =>
    `<button type="button" class="chip" data-other="${place}">${escaped(named(tokens[place]))} <b>${percent(seen ? head.at(place, token) : head.at(token, place))}</b> <small>${Math.abs(token - place)} ${seen ? "on" : "back"}</small></button>`;
  const next = tokens[token + 1];
  const expects = [0, 1]
    .map((i) => `${code(member.expected[2 * token + i])} ${percent(member.chance[2 * token + i])}`)
    .join(", ");
  const pointed = other !== null && query !== null && (seen ? query : key) === other;
  member.readout.innerHTML = `
    <p>${code(tokens[token])} at ${token} ${seen ? "is attended by" : "attends to"} ${pointed ? `${code(tokens[other])} ${Math.abs(other - token)} ${seen ? "on" : "back"}: ${weigh(query, key)}` : `<small>layer ${layer}, head ${number}</small>`}</p>
    <p>${head.best(token, seen, 5).map(chip).join("") || "nothing"}</p>
    <p>${known ? `to recall ${code(tokens[known.key])} ${token - known.key} back: ${weigh(token, known.key)}` : "&nbsp;"}</p>
    <p>${next === undefined ? "" : `next token ${code(next)} ${member.expected[2 * token] === next ? '<span class="yes">✓</span>' : '<span class="no">✗</span>'} `}model predicts ${expects}</p>`;
}

function captions(member) {
  const known = state.seen ? null : member.known.get(state.token);
  $(".caption", member.cells.heads).textContent =
    `layer·head, and the distance ${state.seen ? "on" : "back"} of its largest weight${known ? ", ✓ if it is on the token to recall" : ""}`;
  $$(".thumb span", member.cells.heads).forEach((span, i) => {
    const best = member.all[i].best(state.token, state.seen, 1)[0];
    const [layer, head] = member.heads[i];
    const far = best === undefined ? "–" : Math.abs(state.token - best);
    span.innerHTML = `${layer}·${head} <b>${far}</b>${known && best === known.key ? ' <b class="yes">✓</b>' : ""}`;
  });
}

function point() {
  document.body.classList.toggle("held", state.held);
  shadeAll();
  for (const member of members) {
    tell(member);
    captions(member);
    drawCursor(member);
    drawHands(member);
    drawOver(member);
  }
}

// Events of one frame are handled together.
let asked = null;
function change(news) {
  if (Object.entries(news).every(([name, value]) => state[name] === value)) return;
  Object.assign(state, news);
  asked ??= requestAnimationFrame(() => {
    asked = null;
    point();
  });
}

function reveal() {
  for (const { tokens, spans } of members) {
    const span = spans[state.token];
    const up = span.offsetTop - tokens.offsetTop;
    if (up < tokens.scrollTop || up + 24 > tokens.scrollTop + tokens.clientHeight)
      tokens.scrollTop = up - tokens.clientHeight / 2;
  }
}

const memberOf = (element) => members[element.closest?.("[data-member]")?.dataset.member];
const placeOf = (element) => {
  const at = element.closest?.("[data-at]");
  return at ? Number(at.dataset.at) : null;
};

function go(token) {
  change({ token: clamp(token, 0, row().tokens.length - 1), other: null });
  reveal();
}
function nextRecall(step) {
  const queries = row().recalls.map(([query]) => query);
  const found =
    step > 0
      ? (queries.find((query) => query > state.token) ?? queries[0])
      : (queries.filter((query) => query < state.token).pop() ?? queries.at(-1));
  if (found !== undefined) go(found);
}
function nextHead(step) {
  const member = members[state.active];
  member.head = (member.head + step + member.heads.length) % member.heads.length;
  showHead(member);
  point();
}
function zoomBy(factor, x, y) {
  const T = row().tokens.length;
  const zoom = state.zoom;
  const span = factor ? clamp(zoom.span * factor, Math.min(T, 8), T) : T;
  const keep = (from, at) => clamp(at - ((at - from) * span) / zoom.span, 0, T - span);
  state.zoom = { span, x: keep(zoom.x, x), y: keep(zoom.y, y) };
  members.forEach((member) => {
    drawMap(member);
    drawOver(member);
  });
}
function zoomHere(factor) {
  const { query, key } = pairOf(members[state.active]);
  const T = row().tokens.length;
  const zoom = state.zoom;
  const x = (state.sheared ? query - key : key) + 0.5;
  const y = query + 0.5;
  if (factor && factor < 1) {
    // center the selected token
    const half = zoom.span / 2;
    state.zoom = {
      ...zoom,
      x: clamp(x - half, 0, T - zoom.span),
      y: clamp(y - half, 0, T - zoom.span),
    };
  }
  zoomBy(factor, x, y);
}
function set(name, value) {
  state[name] = value;
  if (name === "sheared") state.zoom = { x: 0, y: 0, span: row().tokens.length };
  showAll();
}

function listen() {
  // Ignore tokens that scroll below a resting pointer, so that a key press has one effect.
  let rests = "";
  const where = (event) => `${event.clientX} ${event.clientY}`;
  document.addEventListener("pointermove", (event) => {
    rests = where(event);
  });
  document.addEventListener("pointerover", (event) => {
    if (where(event) === rests) return;
    const member = memberOf(event.target);
    const place = placeOf(event.target);
    const chip = event.target.closest?.("[data-other]");
    if (member) state.active = member.index;
    if (chip) change({ other: Number(chip.dataset.other) });
    else if (place !== null)
      change(
        state.held && event.pointerType === "mouse"
          ? { other: place }
          : { token: place, other: null },
      );
  });
  document.addEventListener("pointerout", (event) => {
    // The end of a touch on a chip selects it.
    if (
      event.pointerType === "mouse" &&
      event.target.closest?.("[data-other]") &&
      !event.relatedTarget?.closest?.("[data-other]")
    )
      change({ other: null });
  });
  document.addEventListener("click", (event) => {
    const { target } = event;
    const place = placeOf(target);
    const member = memberOf(target);
    const thumb = target.closest(".thumb");
    const button = target.closest("button");
    if (place !== null)
      change(
        state.held && state.token === place
          ? { held: false, other: null }
          : { held: true, token: place, other: null },
      );
    else if (thumb) {
      member.head = Number(thumb.dataset.head);
      state.active = member.index;
      showHead(member);
      point();
    } else if (button?.dataset.set) set(button.dataset.set, button.dataset.to === "true");
    else if (button?.dataset.row) {
      state.row = Number(button.dataset.row);
      showRow();
    } else if (button?.dataset.zoom) zoomHere(Number(button.dataset.zoom));
    else if (button?.id === "night") set("night", !isNight());
    else if (button?.id === "ask") help();
  });
  document.addEventListener("keydown", keyed);
  for (const member of members) {
    listenMap(member);
    member.svg.addEventListener("pointermove", (event) => {
      const box = member.svg.getBoundingClientRect();
      const { side, far, width } = member.scales;
      const share = clamp((((event.clientX - box.left) * width) / box.width - LEFT) / side, 0, 1);
      const m = Math.round(state.log ? 2 ** (share * Math.log2(Math.max(far, 2))) : share * far);
      state.active = member.index;
      const other = state.seen ? state.token + m : state.token - m;
      if (other >= 0 && other < row().tokens.length) change({ other });
    });
    member.svg.addEventListener("pointerleave", () => change({ other: null }));
    member.pairs.addEventListener("pointermove", (event) => sayPair(member, event));
    member.pairs.addEventListener("pointerleave", () => drawHands(member));
    member.tokens.addEventListener("pointerleave", () => change({ other: null }));
    member.tokens.addEventListener("scroll", () =>
      members.forEach((other) => {
        if (other.tokens.scrollTop !== member.tokens.scrollTop)
          other.tokens.scrollTop = member.tokens.scrollTop;
      }),
    );
  }
  media.addEventListener("change", () => showAll());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      showAll();
      tall();
    }
  });
}

function listenMap(member) {
  const canvas = member.over;
  const held = new Map();
  let moved = 0;
  let spread = 0;
  const cellOf = (event) => {
    const box = canvas.getBoundingClientRect();
    const { left, top, cell } = geometry(member);
    const zoom = state.zoom;
    const x = zoom.x + (event.clientX - box.left - left) / cell;
    const y = zoom.y + (event.clientY - box.top - top) / cell;
    return { x, y };
  };
  const look = (event) => {
    const { x, y } = cellOf(event);
    const query = Math.floor(y);
    const column = Math.floor(x);
    const key = state.sheared ? query - column : column;
    state.active = member.index;
    if (query >= 0 && query < row().tokens.length && column >= 0 && key >= 0 && key <= query) {
      change(state.seen ? { token: key, other: query } : { token: query, other: key });
      reveal();
    }
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, event);
    moved = 0;
    spread = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) {
      look(event);
      return;
    }
    const { cell } = geometry(member);
    const T = row().tokens.length;
    const zoom = state.zoom;
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    held.set(event.pointerId, event);
    if (held.size === 2) {
      const [a, b] = [...held.values()];
      const now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      const middle = cellOf({
        clientX: (a.clientX + b.clientX) / 2,
        clientY: (a.clientY + b.clientY) / 2,
      });
      if (spread) zoomBy(spread / now, middle.x, middle.y);
      spread = now;
    } else if (moved > 4 && zoom.span < T) {
      canvas.setPointerCapture(event.pointerId);
      state.zoom = {
        ...zoom,
        x: clamp(zoom.x - (event.clientX - before.clientX) / cell, 0, T - zoom.span),
        y: clamp(zoom.y - (event.clientY - before.clientY) / cell, 0, T - zoom.span),
      };
      members.forEach((each) => {
        drawMap(each);
        drawOver(each);
      });
    }
  });
  const release = (event) => {
    held.delete(event.pointerId);
    spread = 0;
  };
  canvas.addEventListener("pointerup", (event) => {
    release(event);
    if (moved <= 4) {
      look(event);
      change({ held: true });
    }
  });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    release(event);
    if (event.pointerType === "mouse") change({ other: null });
  });
  canvas.addEventListener("dblclick", (event) => {
    const { x, y } = cellOf(event);
    zoomBy(0.5, x, y);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const { x, y } = cellOf(event);
      zoomBy(2 ** clamp(event.deltaY / 200, -1, 1), x, y);
    },
    { passive: false },
  );
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
    ArrowLeft: () => go(state.token - 1),
    ArrowRight: () => go(state.token + 1),
    q: () => nextRecall(1),
    Q: () => nextRecall(-1),
    h: () => nextHead(1),
    H: () => nextHead(-1),
    m: () => {
      state.active = (state.active + 1) % members.length;
      $$(".thumb", members[state.active].cells.heads)[members[state.active].head].focus({
        preventScroll: true,
      });
    },
    t: () => {
      state.row = (state.row + 1) % page.rows.length;
      showRow();
    },
    f: () => set("seen", !state.seen),
    d: () => set("sheared", !state.sheared),
    x: () => set("log", !state.log),
    n: () => set("night", !isNight()),
    "+": () => zoomHere(0.5),
    "=": () => zoomHere(0.5),
    "-": () => zoomHere(2),
    0: () => zoomHere(0),
    Escape: () => change({ held: false, other: null }),
    "?": help,
    ...(inButton ? {} : { Enter: () => change({ held: !state.held }) }),
  };
  if (!Object.hasOwn(answers, event.key)) return;
  event.preventDefault();
  answers[event.key]();
}

// In a notebook, set the height of the frame to the height of the page.
function tall() {
  try {
    if (window.frameElement)
      window.frameElement.style.height = `${document.body.scrollHeight + 4}px`;
  } catch {
    /* a frame of another origin keeps its height */
  }
}

unpack().then(() => {
  build();
  listen();
  showRow();
  reveal();
  tall();
  root.dataset.ready = "true";
});
