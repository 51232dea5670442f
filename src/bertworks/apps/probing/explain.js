/* The explain panels: draws what `explain` (explanation.py) computes. Needs explain_texts.js and explain_tools.js before
   it, and explain.css.

     const view = bertworksExplain(element, data, "ko");  // fills the element; data: the dictionary of explanation.py
     view.setLanguage("en");                              // draws everything again in another language
     view.redraw();                                       // after the page changed its theme

   The element must be in the document, whose style sheet has the colours; it gets the class "explain". Dark follows
   prefers-color-scheme, unless the root element has data-theme="dark" or "light". --explain-top: height of a bar that is
   fixed above. Nothing is fetched, no id is used, and every text of `data` goes in as text. */
"use strict";
const bertworksExplain = (() => {
  const { make, number, large, percent, norm, list, unpack, largest, shade, css, inkOn, strip, vectorLine, paint, bar, choices, arrows, prepare, kindOf } = explainTools;

  // ---- panels: each returns what draws it anew after a choice

  function tokensPanel(root, page) {
    const { data, state, text } = page, bar = make("div", "ex-tokens", null, null);
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", text.chosen);
    data.tokens.forEach((token, i) => {
      const chip = make("button", kindOf(token), null, bar);
      chip.type = "button";
      make("b", "", token.text, chip);
      make("small", "", token.id, chip);
      chip.onclick = () => page.choose({ token: i, other: -1 });
    });
    arrows(bar, data.tokens.length);
    root.after(bar);
    return () => {
      [...bar.children].forEach((chip, i) => {
        chip.setAttribute("aria-pressed", i === state.token);
        chip.tabIndex = i === state.token ? 0 : -1;
      });
      const chip = bar.children[state.token];  // keep it in view without moving the page
      bar.scrollLeft = Math.min(Math.max(bar.scrollLeft, chip.offsetLeft + chip.offsetWidth - bar.clientWidth + 40), chip.offsetLeft - 40);
    };
  }

  function embeddingsPanel(root, page) {
    const { data, state, text } = page, names = ["word", "position", "segment", "total", "output"];
    const has = names.filter(name => data.embeddings[name]), arrays = Object.fromEntries(has.map(name => [name, unpack(data.embeddings[name])]));
    const table = make("div", "ex-sum ex-embeddings", null, root), signs = { position: "+", segment: "+", total: "=", output: "→" };
    make("p", "ex-note", text.strip, root);
    if (data.shape.embedding_width !== data.shape.width) make("p", "ex-note", text.projected(data.shape.embedding_width, data.shape.width), root);
    for (const name of ["position", "segment"]) if (data.left_out[name]) make("p", "ex-note", text.reasons[data.left_out[name]], root);
    return () => {
      table.textContent = "";
      const rows = has.map(name => arrays[name](state.token)), shared = largest(...rows.slice(0, -1));
      const token = data.tokens[state.token], one = data.shape.segments === 1;
      const labels = { word: `${text.word} “${token.text}”`, position: text.position(state.token), total: text.total, output: text.output };
      labels.segment = one ? `${text.segment("A")}: ${text.constant}` : text.segment("AB"[token.segment]);
      has.forEach((name, k) => {
        const most = name === "output" ? largest(rows[k]) : shared;
        const cell = vectorLine(table, [signs[name], labels[name], `${text.norm} ${number(norm(rows[k]))}`], rows[k], most);
        make("code", "", list(rows[k]), cell);
      });
    };
  }

  function headPickers(parent, page) {
    const { data, state, text } = page, bar = make("div", "ex-pick", null, parent), boxes = {};
    for (const [name, count, title] of [["layer", data.shape.layers, text.layer], ["head", data.shape.heads, text.headName]]) {
      const label = make("label", "", `${title} `, bar), box = make("select", "", null, label);
      for (let i = 0; i < count; i++) make("option", "", i + 1, box).value = i;
      box.onchange = () => page.choose({ [name]: +box.value });
      boxes[name] = box;
    }
    for (const [sign, step, title] of [["‹", -1, text.previous], ["›", 1, text.next]]) {
      const button = make("button", "", sign, bar), all = data.shape.layers * data.shape.heads;
      button.type = "button";
      button.title = title;
      button.setAttribute("aria-label", title);
      button.onclick = () => {
        const next = (state.layer * data.shape.heads + state.head + step + all) % all;
        page.choose({ layer: Math.floor(next / data.shape.heads), head: next % data.shape.heads });
      };
    }
    return () => { for (const name in boxes) boxes[name].value = state[name]; };
  }

  function headPanel(root, page) {
    const { data, state, text, heads, T, H } = page, pick = headPickers(root, page), box = make("div", "ex-steps", null, root);
    const worked = make("div", "ex-worked", null, root);
    worked.setAttribute("aria-live", "polite");
    if (data.shape.positions === "rotary") make("p", "ex-note", text.rotated, root);
    make("p", "ex-note", text.after, root);
    const name = i => data.tokens[i].text;
    function work(j, found) {
      worked.textContent = "";
      make("strong", "", text.worked(name(state.token), name(j)), worked);
      if (found.scores[j] === -Infinity) return make("span", "", text.hidden, worked);
      make("span", "", text.workedScore(number(found.products[j]), H, number(found.scores[j])), worked);
      make("span", "", text.workedWeight(number(found.scores[j]), large(found.sum), `${(100 * found.weights[j]).toFixed(1)} %`), worked);
    }
    return () => {
      pick();
      const { layer: l, head: h, token: i } = state, found = page.row(l, h, i), all = data.tokens.map((_, j) => j);
      const keys = all.map(j => heads.key(l, h, j)), values = all.map(j => heads.value(l, h, j)), q = heads.query(l, h, i);
      const output = values[0].map((_, d) => all.reduce((sum, j) => sum + found.weights[j] * values[j][d], 0));
      const mostKey = largest(q, ...keys), mostValue = largest(...values);
      box.textContent = "";
      const top = make("div", "ex-query", null, box);
      make("span", "ex-name", `${text.query} “${name(i)}”`, top);
      strip(top, q, mostKey, `${text.query} “${name(i)}”: ${list(q)}`);
      const table = make("table", "", null, box), header = make("tr", "", null, make("thead", "", null, table));
      for (const [title, kind] of [["", ""], [text.key, "ex-k"], [text.product, "ex-p"], [text.scoreTitle(H), "ex-s"], [text.weight, "ex-w"], [text.value, "ex-v"]])
        make("th", kind, title, header).scope = "col";
      const body = make("tbody", "", null, table);
      all.forEach(j => {
        const line = make("tr", "", null, body), hidden = found.scores[j] === -Infinity, cell = make("th", "", null, line);
        cell.scope = "row";
        const button = make("button", kindOf(data.tokens[j]), name(j), cell);
        button.type = "button";
        button.onclick = () => { state.other = j; work(j, found); mark(); };
        line.onmouseenter = () => work(j, found);
        line.onmouseleave = () => work(state.other < 0 ? best : state.other, found);
        strip(make("td", "ex-k", null, line), keys[j], mostKey, `${text.key}: ${list(keys[j])}`);
        make("td", "ex-p ex-number", number(found.products[j]), line);
        make("td", "ex-s ex-number", hidden ? text.hidden : number(found.scores[j]), line);
        const weight = make("td", "ex-w", null, line);
        bar(weight, found.weights[j]);
        make("span", "ex-number", percent(found.weights[j]), weight);
        strip(make("td", "ex-v", null, line), values[j], mostValue, `${text.value}: ${list(values[j])}`)
          .style.opacity = 0.15 + 0.85 * Math.sqrt(found.weights[j]);
      });
      const best = found.weights.indexOf(Math.max(...found.weights));
      const mark = () => [...body.rows].forEach((line, j) => line.classList.toggle("ex-on", j === (state.other < 0 ? best : state.other)));
      const bottom = make("div", "ex-query", null, box);
      make("span", "ex-name", text.result, bottom);
      strip(bottom, output, mostValue, `${text.result}: ${list(output)}`);
      make("code", "", list(output), bottom);
      work(state.other < 0 ? best : state.other, found);
      mark();
    };
  }

  function mapPanel(root, page) {
    const { data, state, text, T } = page, { layers, heads } = data.shape, both = make("div", "ex-maps", null, root);
    const grid = make("div", "ex-grid", null, make("div", "", null, both)), large = make("div", "ex-large", null, both), tiles = [];
    grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(0, 1fr))`;
    grid.setAttribute("role", "group");
    grid.setAttribute("aria-label", text.heads);
    make("span", "", "", grid);
    for (let h = 0; h < heads; h++) make("span", "ex-axis", h + 1, grid);
    for (let l = 0; l < layers; l++) {
      make("span", "ex-axis", l + 1, grid);
      for (let h = 0; h < heads; h++) {
        const tile = make("button", "", null, grid);
        tile.type = "button";
        tile.title = text.map(l + 1, h + 1);
        tile.setAttribute("aria-label", tile.title);
        tile.onclick = () => page.choose({ layer: l, head: h });
        paint(make("canvas", "", null, tile), page.weights(l, h), root);
        tiles.push(tile);
      }
    }
    arrows(grid, heads);
    const title = make("h3", "", null, large), box = make("div", "ex-scroll", null, large), map = make("div", "ex-map", null, box);
    const readout = make("p", "ex-readout", null, large);
    readout.setAttribute("aria-live", "polite");
    return () => {
      tiles.forEach((tile, k) => {
        const on = k === state.layer * heads + state.head;
        tile.setAttribute("aria-pressed", on);
        tile.tabIndex = on ? 0 : -1;
      });
      const rows = page.weights(state.layer, state.head), name = i => data.tokens[i].text;
      title.textContent = text.map(state.layer + 1, state.head + 1);
      map.textContent = "";
      map.style.setProperty("--ex-count", T);
      make("span", "ex-corner", text.looks, map);
      const above = make("div", "ex-above", null, map), left = make("div", "ex-left", null, map), canvas = make("canvas", "", null, map);
      data.tokens.forEach((token, i) => {
        make("span", kindOf(token), token.text, above);
        make("span", kindOf(token) + (i === state.token ? " ex-on" : ""), token.text, left);
      });
      paint(canvas, rows, root);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", title.textContent);
      const best = rows[state.token].map((w, j) => [w, j]).sort((a, b) => b[0] - a[0]).slice(0, 3);
      const told = text.most(name(state.token), best.map(([w, j]) => `“${name(j)}” (${percent(w)})`).join(", "));
      readout.textContent = told;
      canvas.onmousemove = event => {
        const [j, i] = [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight].map(x => Math.min(T - 1, Math.max(0, Math.floor(x * T))));
        readout.textContent = text.seen(name(i), name(j), percent(rows[i][j]));
      };
      canvas.onmouseleave = () => { readout.textContent = told; };
      canvas.onclick = event => page.choose({ token: Math.min(T - 1, Math.floor(event.offsetY / canvas.clientHeight * T)), other: -1 });
    };
  }

  function layersPanel(root, page) {
    const { data, state, text } = page, cosines = unpack(data.layers.cosines), vectors = unpack(data.layers.vectors);
    const statics = unpack(data.layers.static);
    const shown = data.layers.vectors.shape.at(-1), box = make("div", "ex-scroll", null, root), rest = make("div", "ex-byLayer", null, root);
    const title = name => ({ static: text.static, embeddings: text.inputs })[name] || text.layerName(name);
    return () => {
      const at = Math.max(0, page.wordOf(state.token)), table = make("table", "ex-cosines", null, null);
      const header = make("tr", "", null, make("thead", "", null, table)), body = make("tbody", "", null, table);
      make("th", "", "", header);
      data.words.forEach((word, w) => make("th", `${word.segment ? "ex-b" : "ex-a"}${w === at ? " ex-on" : ""}`, word.text, header).scope = "col");
      data.layers.names.forEach((name, k) => {
        const line = make("tr", "", null, body);
        make("th", "", title(name), line).scope = "row";
        cosines(k, at).forEach((value, w) => {
          if (w >= data.words.length) return;
          const cell = make("td", "", w === at ? "" : number(value), line), found = shade(root, w === at ? 0 : Math.max(0, value) * 0.9);
          cell.style.background = css(found);
          cell.style.color = inkOn(found);
        });
      });
      box.replaceChildren(table);
      rest.textContent = "";
      if (!data.words.length) return;
      make("p", "ex-caption", text.ofWord(data.words[at].text, shown), rest);
      const grid = make("div", "ex-sum", null, rest);
      data.layers.names.forEach((name, k) => {
        const row = vectors(k, at);
        vectorLine(grid, ["", title(name), k ? number(statics(k)[at]) : ""], row, largest(row));
      });
    };
  }

  function masksPanel(root, page) {
    const { data, state, text } = page, cards = make("div", "ex-cards", null, root), made = [];
    for (const found of data.masks) {
      const card = make("div", "ex-card", null, cards), token = data.tokens[found.position], head = make("h3", "", null, card);
      make("span", kindOf(token), token.text, head);
      if (found.rank !== null) make("small", "", `${text.rank(found.rank)} · ${percent(found.score)}`, head);
      for (const one of found.top) {
        const line = make("div", "ex-choice", null, card), right = one.id === found.token && found.rank !== null;
        make("span", right ? "ex-right" : "", (right ? "✓ " : "") + one.token, line);
        bar(line, one.score);
        make("span", "ex-number", percent(one.score), line);
      }
      made.push([card, found.position]);
    }
    return () => made.forEach(([card, position]) => card.classList.toggle("ex-on", position === state.token));
  }

  function nextPanel(root, { data: { next_sentence: { score } }, text }) {
    choices(root, [[text.follows, score], [text.random, 1 - score, "ex-other"]]);
    return () => {};
  }
  function labelsPanel(root, page) {
    const { scores, kind, label, score } = page.data.labels;
    if (kind === "regression") make("p", "ex-value", `${label}: ${number(score, 3)}`, root);
    else choices(root, Object.entries(scores).sort((a, b) => b[1] - a[1]));
    return () => {};
  }
  function answerPanel(root, page) {
    const { data, text } = page, { start, end, best } = data.answer, line = make("p", "ex-value", `${text.best}: `, root);
    make("b", "", best.text || text.none, line);
    line.append(` (${percent(best.score)})`);
    const legend = make("p", "ex-note", null, root);
    make("i", "ex-key", "", legend);
    legend.append(` ${text.start}  `);
    make("i", "ex-key ex-other", "", legend);
    legend.append(` ${text.end}`);
    const box = make("div", "ex-ends", null, root), most = Math.max(...start, ...end);
    data.tokens.forEach((token, i) => {
      const cell = make("div", "", null, box), up = make("span", "ex-up", null, cell), down = make("span", "ex-down", null, cell);
      cell.title = `“${token.text}”: ${text.start} ${percent(start[i])}, ${text.end} ${percent(end[i])}`;
      up.style.height = `${44 * start[i] / most}px`;
      cell.insertBefore(make("b", kindOf(token), token.text, null), down);
      down.style.height = `${44 * end[i] / most}px`;
      if (start[i] >= 0.1) up.dataset.share = percent(start[i]);
      if (end[i] >= 0.1) down.dataset.share = percent(end[i]);
    });
    return () => {};
  }
  function tagsPanel(root, page) {
    const box = make("div", "ex-tags", null, root);
    for (const unit of page.data.tags) {
      const cell = make("span", unit.tag === "O" ? "" : "ex-tagged", null, box);
      make("b", "", unit.text, cell);
      make("small", "", unit.tag === "O" ? "O" : `${unit.tag} ${percent(unit.score)}`, cell);
    }
    return () => {};
  }

  // ---- the page

  const PANELS = [  // name, lead, whether there is something to draw, how
    ["tokens", "tokensLead", () => true, tokensPanel],
    ["embeddings", "embeddingsLead", data => data.embeddings, embeddingsPanel],
    ["head", "headLead", data => data.attention, headPanel],
    ["heads", "headsLead", data => data.attention, mapPanel],
    ["layers", "layersLead", data => data.words.length, layersPanel],
    ["masks", "masksLead", data => data.masks && data.masks.length, masksPanel],
    ["next_sentence", "nextLead", data => data.next_sentence, nextPanel],
    ["answer", "answerLead", data => data.answer, answerPanel],
    ["labels", "labelsLead", data => data.labels, labelsPanel],
    ["tags", "tagsLead", data => data.tags, tagsPanel],
  ];

  function leadOf(name, lead, page) {
    const { data, text } = page;
    if (name === "masks") return data.masks[0].rank === null ? text.masksGiven : text.masksLead;
    if (name === "tokens") {
      const more = [data.tokens.some(token => token.text.startsWith("##")) && text.subwords, data.tokens.some(token => token.text.includes("\ufffd")) && text.bytes, data.tokens.some(token => token.segment) && text.segments];
      return [text.tokensLead, ...more.filter(Boolean)].join(" ");
    }
    if (name !== "embeddings") return text[lead];
    const parts = ["word", "position", "segment"].filter(part => data.embeddings[part]).map(part => text.parts[part]);
    return text.embeddingsLead(parts.length, parts.length > 1 ? parts.slice(0, -1).join(text.comma) + text.and + parts.at(-1) : parts[0]);
  }

  function draw(element, data, language = "en") {
    const page = prepare(data);
    function build() {
      const text = page.text = EXPLAIN_TEXTS[language] || EXPLAIN_TEXTS.en, updates = [];
      element.classList.add("explain");
      element.lang = language;
      element.textContent = "";
      const facts = { model: data.model, tokens: data.tokens.length, ...data.shape };
      make("p", "ex-facts", data.attention ? text.facts(facts) : text.factsPlain(facts), element);
      if (data.cut) make("p", "ex-facts ex-cut", text.cut(data.cut), element);
      let count = 0;
      for (const [name, lead, there, panel] of PANELS) {
        if (!there(data)) continue;
        const root = make("section", `ex-part ex-part-${name}`, null, element), title = make("h2", "", null, root);
        make("span", "ex-count", ++count, title);
        title.append(text[name]);
        make("p", "ex-lead", leadOf(name, lead, page), root);
        updates.push(panel(root, page));
      }
      const reasons = Object.entries(data.left_out).filter(([part]) => part !== "position" && part !== "segment");
      if (reasons.length) {
        const root = make("section", "ex-part", null, element), all = (make("h2", "", text.left, root), make("ul", "ex-left-out", null, root));
        for (const code of new Set(reasons.map(([, reason]) => reason))) make("li", "", text.reasons[code] || code, all);
      }
      page.choose = change => {
        Object.assign(page.state, change);
        updates.forEach(update => update());
      };
      page.choose({});
      page.first = element.firstChild;
    }
    build();
    const theme = matchMedia("(prefers-color-scheme: dark)"), follow = () => {
      if (element.isConnected && element.firstChild === page.first) build();
      else theme.removeEventListener("change", follow);  // the panels are gone, or drawn anew
    };
    theme.addEventListener("change", follow);
    return { setLanguage: next => { language = next; build(); }, redraw: build };
  }
  return draw;
})();
