// The tabs that look at vectors: similarity of texts, and all steps of the encoder.

const linesOf = texts => texts.split("\n").map(line => line.trim()).filter(Boolean);

const SIMILAR = {
  id: "similar", when: model => model.can.includes("embed"), fields: [{ name: "texts", area: true, rows: 7 }],
  own: rows => {
    const texts = [...new Set(rows.flatMap(({ text, pair, question }) => [text ?? question, pair]).filter(Boolean).map(text => text.replace(/\s+/g, " ")))];
    return texts.length > 1 ? [{ texts: texts.join("\n") }] : [];
  },
  async ask({ texts }, signal) {
    const lines = linesOf(texts);
    if (lines.length < 2 || lines.length > 32) throw new Refusal("lines", "", lines.length);
    return askModel("embed", { inputs: lines, normalize: true, truncate: true }, signal);
  },
  show(vectors, { texts }) {
    const lines = linesOf(texts), N = lines.length, cosines = vectors.map(a => vectors.map(b => a.reduce((sum, x, i) => sum + x * b[i], 0)));
    const pairs = cosines.flatMap((row, i) => row.slice(i + 1).map((value, k) => [value, i, i + 1 + k])).sort((a, b) => b[0] - a[0]);
    const detail = make("div", { class: "keyed" }), table = make("table", { class: "heat" });
    const least = Math.min(0.1, ...pairs.map(pair => pair[0])), share = value => Math.max(0, (value - least) / (1 - least));
    const choose = (i, j) => {
      table.querySelectorAll(".on").forEach(cell => cell.classList.remove("on"));
      for (const cell of table.querySelectorAll(`[data-at="${i}-${j}"], [data-at="${j}-${i}"]`)) cell.classList.add("on");
      detail.replaceChildren(...[i, j].flatMap(k => [make("span", { text: k + 1 }), make("span", { text: lines[k] })]));
    };
    const cell = (i, j) => i === j ? make("td", { class: "same", text: "·", "aria-label": "1" }) : make("td", { "data-at": `${i}-${j}`,
      style: { "--share": share(cosines[i][j]) }, text: cosines[i][j].toFixed(2).replace(/^-(0\.00)$/, "$1"), title: say("rowOf", i + 1, j + 1), onpointerenter: () => choose(i, j), onclick: () => choose(i, j) });
    table.append(make("thead", {}, make("tr", {}, make("td"), lines.map((line, j) => make("th", { scope: "col", text: j + 1, title: line })))),
      make("tbody", {}, lines.map((line, i) => make("tr", {}, make("th", { scope: "row", text: i + 1, title: line }), lines.map((_, j) => cell(i, j))))));
    const closest = pairs.slice(0, 5).map(([value, i, j], k) => bar(`${i + 1} ${lines[i]} — ${j + 1} ${lines[j]}`, value, { shown: value.toFixed(2), first: k === 0, press: () => choose(i, j) }));
    choose(pairs[0][1], pairs[0][2]);
    return [make("div", { class: "scroll", tabindex: "0" }, table), detail, N > 2 ? make("div", {}, make("h3", { text: say("closest") }), make("div", { class: "bars" }, closest)) : null];
  },
};

const ATTENTION = {  // probing/explain.js draws what /explain computes
  id: "attention", wide: true, when: model => model.can.includes("explain"),
  fields: [{ name: "text", area: true }, { name: "second", say: "secondSentence", area: true, optional: true }],
  ask: ({ text, second }, signal) => askModel("explain", { a: text, b: second.trim() ? second : null, truncate: true }, signal),
  show(found) {
    const panels = make("div", { style: { "--explain-top": `${find("#tabs").offsetHeight}px` } });
    requestAnimationFrame(() => bertworksExplain(panels, found, state.language));  // it measures what it draws
    return panels;
  },
};
