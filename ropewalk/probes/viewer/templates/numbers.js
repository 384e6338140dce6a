// Decoding of the page: its description, packed numbers, and the arrays of each head.

const page = JSON.parse(document.getElementById("page").textContent);
const $ = (selector, inside = document) => inside.querySelector(selector);
const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const root = document.documentElement;
const pieces = new Map(page.ids.map((id, place) => [id, page.pieces[place]]));
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const percent = (share) =>
  share >= 0.0995
    ? `${Math.round(100 * share)}%`
    : share >= 0.00995
      ? `${(100 * share).toFixed(1)}%`
      : share > 0
        ? `${(100 * share).toPrecision(1)}%`
        : "0";
const signed = (value) =>
  `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 0.95 ? 2 : 1)}`;
const short = (length) =>
  length >= 1e4
    ? length.toExponential(0).replace("e+", "e")
    : length >= 100
      ? length.toFixed(0)
      : length.toPrecision(length < 10 ? 2 : 3).replace(/\.0$/, "");
// The first of 1, 2, 5, 10, 20, ... times `least` that is at least `size`.
function rounded(size, least) {
  for (let unit = least; ; unit *= 10) {
    const found = [1, 2, 5].find((each) => each * unit >= size);
    if (found) return found * unit;
  }
}
// Visible symbols for white space.
const named = (id) => pieces.get(id).replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥");

const KINDS = { uint8: Uint8Array, int8: Int8Array, int32: Int32Array, float32: Float32Array };
let buffer;

async function unpack() {
  const packed = atob(document.getElementById("numbers").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  buffer = await new Response(stream).arrayBuffer();
}

// A head on a text. T tokens, R pairs of features.
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
  // Use of each pair: mean norm in queries times mean norm in keys, a typical upper bound.
  get uses() {
    const R = this.turns.length;
    const mean = (x, i) => {
      let sum = 0;
      for (let a = 2 * i; a < x.length; a += 2 * R) sum += Math.hypot(x[a], x[a + 1]);
      return sum / this.length;
    };
    return this.turns.map(
      (_, i) => mean(this.q, i) * this.qUnit[i] * mean(this.k, i) * this.kUnit[i],
    );
  }
  byte(query, key) {
    return key > query ? 0 : this.tiles[(query * (query + 1)) / 2 + key];
  }
  at(query, key) {
    return (this.byte(query, key) / 255) ** 2;
  }
  // Contribution of each pair to the score: the vertical part of its hand.
  hands(query, key) {
    const R = this.turns.length;
    const found = new Float32Array(2 * R);
    for (let i = 0; i < R; i++) {
      const a = 2 * (query * R + i);
      const b = 2 * (key * R + i);
      const unit = this.qUnit[i] * this.kUnit[i];
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
  // The keys of the largest weights of a query, or the queries of a key.
  best(token, ofKey, count) {
    const found = [];
    const end = ofKey ? this.length : token + 1;
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
