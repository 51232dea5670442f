/* What the explain panels (explain.js) are made of: numbers, colours, strips, and one sequence with its choices. */
"use strict";
const explainTools = (() => {
  // ---- small things

  const make = (tag, kind, text, parent) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined && text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const number = (x, digits = 2) => {
    const text = Math.abs(x).toFixed(digits);
    return (x < 0 && +text ? "−" : "") + text;
  };
  const large = x => {
    if (x >= 0.01 && x < 1e5) return x.toFixed(2);
    const [digits, power] = x.toExponential(2).split("e");
    return `(${digits} × 10^${number(+power, 0)})`;
  };
  const percent = p => `${(100 * p).toFixed(p >= 0.0995 && p < 0.995 ? 0 : 1)} %`;
  const norm = row => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

  const half = bits => {
    const sign = bits & 0x8000 ? -1 : 1, power = (bits >> 10) & 31, rest = bits & 1023;
    return sign * (power ? (1 + rest / 1024) * 2 ** (power - 15) : rest * 2 ** -24);
  };
  function unpack(found) {  // {shape, float16} to a function from leading indices to a row of the last dimension
    const raw = Uint8Array.from(atob(found.float16), c => c.charCodeAt(0)), view = new DataView(raw.buffer);
    const values = Float32Array.from({ length: raw.length / 2 }, (_, i) => half(view.getUint16(2 * i, true)));
    const width = found.shape.at(-1), lead = found.shape.slice(0, -1);
    return (...at) => {
      const start = at.reduce((sum, i, axis) => sum * lead[axis] + i, 0) * width;
      return values.subarray(start, start + width);
    };
  }

  // ---- colours: everything drawn asks the style sheet

  const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim().split(/[ ,]+/).map(Number);
  const mix = (a, b, share) => a.map((x, i) => Math.round(x + (b[i] - x) * Math.min(1, Math.max(0, share))));
  const css = rgb => `rgb(${rgb.join(" ")})`;
  const light = rgb => {
    const [r, g, b] = rgb.map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const inkOn = rgb => light(rgb) > 0.179 ? "#000" : "#fff";  // whichever contrasts more
  const shade = (element, share) => mix(colour(element, "--ex-paper"), colour(element, "--ex-hot"), share);

  function strip(parent, values, most, label) {  // one stripe a number; most: the value of full colour
    const canvas = make("canvas", "ex-strip", null, parent), image = new ImageData(values.length, 1);
    const [zero, plus, minus] = ["--ex-zero", "--ex-plus", "--ex-minus"].map(name => colour(parent, name));
    values.forEach((x, i) => {
      const found = mix(zero, x > 0 ? plus : minus, Math.sqrt(Math.abs(x) / (most || 1)));
      image.data.set([...found, 255], 4 * i);
    });
    canvas.width = values.length;
    canvas.height = 1;
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    canvas.title = label;
    return canvas;
  }
  function largest(...rows) {  // the 99th percentile of sizes: a few outliers would make everything else pale
    const sizes = rows.flatMap(row => Array.from(row, Math.abs)).sort((a, b) => a - b);
    return sizes[Math.floor(0.99 * (sizes.length - 1))] || 1;
  }
  function paint(canvas, rows, root) {  // one pixel a weight; full colour from one half on
    const T = rows.length, image = new ImageData(T, T), shades = Array.from({ length: 256 }, (_, k) => shade(root, k / 255));
    rows.forEach((row, i) => row.forEach((w, j) => image.data.set([...shades[Math.round(255 * Math.min(1, Math.sqrt(2 * w)))], 255], 4 * (i * T + j))));
    canvas.width = canvas.height = T;
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
  function vectorLine(parent, [sign, name, end], values, most) {  // sign, name, strip, number; returns the strip's cell
    const line = make("div", "ex-line", null, parent);
    make("span", "ex-sign", sign || "", line);
    make("span", "ex-name", name, line);
    make("span", "ex-number", end, line);
    const cell = make("div", "ex-vector", null, line);
    strip(cell, values, most, `${name}: ${list(values)}`);
    return cell;
  }
  function bar(parent, share, kind = "") {
    const made = make("span", `ex-bar ${kind}`, null, parent);
    make("i", "", null, made).style.width = `${100 * share}%`;
    return made;
  }
  function choices(root, rows) {  // [name, share] with bars
    for (const [name, share, kind] of rows) {
      const line = make("div", "ex-choice ex-wide", null, root);
      make("span", "", name, line);
      bar(line, share, kind);
      make("span", "ex-number", percent(share), line);
    }
  }
  const list = row => Array.from(row.slice(0, 6), x => number(x)).join("  ") + (row.length > 6 ? "  …" : "");

  function arrows(group, columns, selector = "button") {  // one stop for Tab; arrow keys move inside
    const all = () => [...group.querySelectorAll(selector)];
    group.addEventListener("keydown", event => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
      const buttons = all(), next = buttons[buttons.indexOf(document.activeElement) + steps[event.key]];
      event.preventDefault();
      if (next) { next.focus(); next.click(); }
    });
  }

  // ---- the sequence

  function prepare(data) {
    const state = { token: data.tokens.findIndex(token => !token.special), layer: 0, head: 0, word: 0, other: -1 };
    if (state.token < 0) state.token = 0;
    const heads = data.attention && Object.fromEntries(["query", "key", "value"].map(n => [n, unpack(data.attention[n])]));
    const T = data.tokens.length, H = data.attention ? data.attention.query.shape.at(-1) : 1, kept = new Map();
    const seen = (l, i, j) => {
      const [left, right] = data.attention.spans[l];
      return (left === null || i - j <= left) && (right === null || j - i <= right);
    };
    function row(l, h, i) {  // one query with all keys: products, scores, their powers, weights
      const q = heads.query(l, h, i), products = [], scores = [];
      for (let j = 0; j < T; j++) {
        products.push(dot(q, heads.key(l, h, j)));
        scores.push(seen(l, i, j) ? products[j] / Math.sqrt(H) : -Infinity);
      }
      const top = Math.max(...scores), powers = scores.map(s => Math.exp(s - top)), sum = powers.reduce((a, b) => a + b);
      return { products, scores, weights: powers.map(p => p / sum), sum: sum * Math.exp(top) };
    }
    function weights(l, h) {  // (T, T) of one head
      const name = `${l}-${h}`;
      if (!kept.has(name)) kept.set(name, data.tokens.map((_, i) => row(l, h, i).weights));
      return kept.get(name);
    }
    const wordOf = i => data.words.findIndex(word => word.first <= i && i < word.last);
    return { data, state, heads, T, H, row, weights, wordOf };
  }
  const kindOf = token => token.special ? "ex-special" : token.segment ? "ex-b" : "ex-a";

  return { make, number, large, percent, norm, dot, list, unpack, largest, shade, css, inkOn, strip, vectorLine, paint, bar, choices, arrows, prepare, kindOf };
})();
