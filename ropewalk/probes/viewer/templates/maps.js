// Heat maps.

// Weights as pixels, queries down, keys or distances across. A pixel of many keys shows the largest
// weight, because a mean would hide a query that attends to one token. A pixel of many queries shows
// the largest too or, in a small picture, the mean over queries.
function paint(head, side, zoom, mean = false) {
  const image = new ImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  const ends = (from, i) => {
    const first = Math.floor(from + (i * zoom.span) / side);
    return [first, Math.max(first, Math.ceil(from + ((i + 1) * zoom.span) / side) - 1)];
  };
  const columns = Array.from({ length: side }, (_, x) => ends(zoom.x, x));
  const values = new Float32Array(side);
  const counts = new Int32Array(side);
  for (let y = 0; y < side; y++) {
    const [top, bottom] = ends(zoom.y, y);
    values.fill(0);
    counts.fill(0);
    for (let query = top; query <= Math.min(bottom, head.length - 1); query++) {
      const base = (query * (query + 1)) / 2;
      for (let x = 0; x < side; x++) {
        const [first, last] = columns[x];
        const end = Math.min(last, query);
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
    for (let x = 0; x < side && counts[x]; x++)
      pixels[y * side + x] = bytesOf[Math.round(mean ? values[x] / counts[x] : values[x])];
  }
  return image;
}

const fit = (canvas, width, height) => {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = canvas.getContext("2d");
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
    canvas
      .getContext("2d")
      .putImageData(paint(member.all[i], side, { x: 0, y: 0, span: T }, true), 0, 0);
  });
}

function geometry(member) {
  const { width } = member;
  const names = width / state.zoom.span > 14;
  const left = names ? 66 : 34;
  const top = names && !state.sheared ? 62 : 20;
  return { width, left, top, side: width - left, names, cell: (width - left) / state.zoom.span };
}

function drawMap(member) {
  const { width, left, top, side, names, cell } = geometry(member);
  if (!width) return;
  const context = fit(member.base, width, width);
  const zoom = state.zoom;
  const ratio = devicePixelRatio || 1;
  const tokens = row().tokens;
  const height = width - top;
  const pixels = Math.round(side * ratio);
  context.putImageData(
    paint(member.all[member.head], pixels, zoom),
    Math.round(left * ratio),
    Math.round(top * ratio),
  );
  context.clearRect(0, 0, width, top);
  context.strokeStyle = colors.rule;
  context.strokeRect(left + 0.5, top + 0.5, side - 1, height - 1);
  context.font = colors.font;
  context.fillStyle = colors.faint;
  context.textBaseline = "middle";
  const step = names ? 1 : rounded(34 / cell, 1);
  const label = (place) => (names ? named(tokens[place]).slice(0, 9) : String(place));
  for (
    let i = Math.ceil(zoom.y / step) * step;
    i < Math.min(tokens.length, zoom.y + height / cell);
    i += step
  ) {
    context.textAlign = "right";
    context.fillText(label(i), left - 4, top + (i + 0.5 - zoom.y) * cell);
  }
  for (
    let i = Math.ceil(zoom.x / step) * step;
    i < Math.min(tokens.length, zoom.x + zoom.span);
    i += step
  ) {
    const x = left + (i + 0.5 - zoom.x) * cell;
    if (names && !state.sheared) {
      context.save();
      context.translate(x, top - 4);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(label(i), 0, 0);
      context.restore();
    } else if (!names || i % Math.ceil(22 / cell) === 0) {
      context.textAlign = x > left + side - 14 ? "right" : "center";
      context.fillText(String(i), Math.min(x, left + side), top - 9);
    }
  }
  // Without zoom, touches scroll the page.
  member.over.style.touchAction = zoom.span < tokens.length ? "none" : "pan-y";
  const [layer, number] = member.heads[member.head];
  $(".bar span", member.cells.map).textContent =
    `layer ${layer}, head ${number}: queries down, ${state.sheared ? "distance back" : "keys"} across`;
}

function drawOver(member) {
  const { width, left, top, side, cell } = geometry(member);
  if (!width) return;
  const context = fit(member.over, width, width);
  const { query, key } = pairOf(member);
  const zoom = state.zoom;
  context.beginPath();
  context.rect(left, top, side, width - top);
  context.clip();
  const x = (column) => left + (column - zoom.x) * cell;
  const y = (line) => top + (line - zoom.y) * cell;
  const box = (q, k, color, pad) => {
    const size = Math.max(cell, 5) + 2 * pad;
    const at = cell / 2 - size / 2;
    context.strokeStyle = color;
    context.lineWidth = 1.5;
    context.strokeRect(x(state.sheared ? q - k : k) + at, y(q) + at, size, size);
  };
  // The line of the token: its row as a query, its column as a key (a diagonal by distance).
  const token = state.token + 0.5;
  const last = row().tokens.length;
  context.strokeStyle = colors.query;
  context.lineWidth = 1.2;
  context.beginPath();
  if (!state.seen) {
    context.moveTo(x(0), y(token));
    context.lineTo(x(token), y(token));
  } else if (state.sheared) {
    context.moveTo(x(0), y(token - 0.5));
    context.lineTo(x(last - token), y(last));
  } else {
    context.moveTo(x(token), y(token));
    context.lineTo(x(token), y(last));
  }
  context.stroke();
  if (query !== null && key !== null) box(query, key, colors.look, 2);
  const known = state.seen ? null : member.known.get(state.token);
  if (known) box(state.token, known.key, colors.ink, 4);
}
