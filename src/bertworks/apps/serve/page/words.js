// The tabs that read a text: masked words, labels, entities, answers, choices, next sentence.

// ---- masked words

/** The positions of the masks of a text. */
function masksOf(text) {
  const found = [], mask = state.model.mask_token;
  for (let at = text.indexOf(mask); at >= 0; at = text.indexOf(mask, at + mask.length)) found.push(at);
  return found;
}

const MASKS = {
  id: "masks", when: model => model.can.includes("fill_mask"), fields: [{ name: "text", area: true, rows: 3 }],
  examples: ({ masks }) => masks.map(({ text }) => ({ text: text.replaceAll("[MASK]", state.model.mask_token) })),
  extra: (inputs, submit) => make("button", { class: "plain", type: "button", text: say("masksTool", state.model.mask_token), onclick: () => {
    const input = inputs()[0][1];
    input.setRangeText(state.model.mask_token, input.selectionStart, input.selectionEnd, "end");
    input.dispatchEvent(new Event("input"));
    submit();
  } }),
  async ask({ text }, signal) {
    if (!masksOf(text).length) return { value: [], ms: 0 };
    const found = await askTask("fill-mask", { inputs: text, parameters: { top_k: 8 } }, signal);
    return { ...found, value: masksOf(text).length === 1 ? [found.value] : found.value };
  },
  show(masks, { text }, again) {
    const found = masksOf(text);
    const insert = (i, word) => {
      const before = text.slice(0, found[i]), after = text.slice(found[i] + state.model.mask_token.length);
      const joined = word.startsWith("##") ? before.trimEnd() + word.slice(2) : before + word.trim();
      again({ text: joined + after });
    };
    return [
      make("p", { class: "note", text: masks.length ? say("masksHint") : say("masksNone", state.model.mask_token) }),
      maskedText(text, found, again),
      masks.length ? make("div", { class: "columns" }, masks.map((words, i) => make("div", {}, masks.length > 1 ? make("h3", { text: say("mask", i + 1) }) : null,
        make("div", { class: "bars" }, words.map((word, k) => bar(word.token_str.trim() || word.token_str, word.score, { first: k === 0, press: () => insert(i, word.token_str) }))))) ) : null,
    ];
  },
};

function maskedText(text, found, again) {
  const shown = make("p", { class: "text" });
  let at = 0;
  const words = part => part.split(/(\p{L}[\p{L}\p{M}\p{N}'’-]*|\p{N}+)/u).forEach((piece, i) => {
    const from = at;
    at += piece.length;
    if (i % 2) shown.append(make("button", { class: "word", type: "button", text: piece, onclick: () => again({ text: text.slice(0, from) + state.model.mask_token + text.slice(from + piece.length) }) }));
    else shown.append(piece);
  });
  found.forEach((mask, i) => {
    words(text.slice(at, mask));
    shown.append(make("span", { class: "blank", text: found.length > 1 ? String(i + 1) : "?" }));
    at = mask + state.model.mask_token.length;
  });
  words(text.slice(at));
  return shown;
}

// ---- labels

const isPair = () => ["pair", "regression"].includes(state.model.kind) && !state.model.reads_single;

const LABELS = {
  id: "labels", windows: model => ["single", "multilabel"].includes(model.kind), when: model => model.can.includes("classify"), fields: [{ name: "text", area: true, rows: 3 },
    { name: "second", area: true, optional: true, when: model => (model.labels.length === 1 || !["single", "multilabel"].includes(model.kind)) && !model.reads_single }],
  examples: ({ labels, labelPairs }) => isPair() ? labelPairs : labels,
  own: rows => rows.map(({ text, pair }) => ({ text, second: pair || "" })),
  async ask({ text, second }, signal) {
    const found = await askTask("text-classification", { inputs: second.trim() ? { text, text_pair: second } : text }, signal);
    return { ...found, value: found.value[0] };
  },
  show(scores, { text, second }) {
    const gold = state.model.examples.find(row => row.text === text && (row.pair || "") === second)?.label;
    const note = gold === undefined ? null : make("p", { class: "note", text: say("labelsGold", gold) });
    if (state.model.kind === "regression") return [make("p", { class: "label", text: say("labelsScore") }), make("p", { class: "big number", text: scores[0].score.toFixed(3) }), note];
    return [make("p", { class: "big" }, scores[0].label, " ", make("span", { class: "soft number", text: percent(scores[0].score) })),
      make("div", { class: "bars" }, scores.map((one, i) => bar(one.label, one.score, { first: i === 0 }))), note];
  },
};

// ---- entities

const ENTITIES = {
  id: "entities", windows: () => true, when: model => model.can.includes("tag"), fields: [{ name: "text", area: true, rows: 4 }],
  own: rows => rows.map(({ text }) => ({ text })),
  ask: ({ text }, signal) => askTask("token-classification", { inputs: text, parameters: { aggregation_strategy: "simple" } }, signal),
  show(found, { text }) {
    const names = [...new Set([...state.model.labels.map(label => label.replace(/^[BIES]-/, "")), ...found.map(one => one.entity_group)])].filter(name => name !== "O");
    const tone = name => colour(names.indexOf(name)), shown = make("div", { class: `text scroll${text.length > 600 ? " long" : ""}`, tabindex: "0" });
    const letters = charactersOf(text);
    let at = 0;
    for (const one of found) {
      shown.append(letters.slice(at, one.start).join(""), make("span", { class: "entity", style: tone(one.entity_group) }, letters.slice(one.start, one.end).join(""), make("small", { text: one.entity_group })));
      at = one.end;
    }
    shown.append(letters.slice(at).join(""));
    if (!found.length) return [shown, make("p", { class: "note", text: say("entitiesNone") })];
    const rows = found.map(one => make("tr", {}, make("td", { text: letters.slice(one.start, one.end).join("") }),
      make("td", {}, make("i", { class: "swatch", style: tone(one.entity_group) }), one.entity_group), make("td", { class: "number", text: percent(one.score) })));
    return [shown, make("div", { class: "scroll" }, make("table", { class: "list" }, heading("span", "label", "*sure"), make("tbody", {}, rows)))];
  },
};

const charactersOf = text => Array.from(text);  // the server counts characters, JavaScript's strings count halves of some

function heading(...keys) {
  return make("thead", {}, make("tr", {}, keys.map(key => make("th", { scope: "col", class: key.startsWith("*") ? "number" : "", text: say(key.replace("*", "")) }))));
}

// ---- answers

const ANSWER = {
  id: "answer", windows: () => true, when: model => model.can.includes("answer"), fields: [{ name: "question" }, { name: "context", area: true, rows: 7 }],
  own: rows => rows.map(({ question, context }) => ({ question, context })),
  ask: ({ question, context }, signal) => askTask("question-answering", { inputs: { question, context }, parameters: { top_k: 8, handle_impossible_answer: true } }, signal),
  show(found, { context }) {
    const best = [found].flat(), shown = make("div", { class: `text scroll${context.length > 600 ? " long" : ""}`, tabindex: "0" }), list = make("div", { class: "bars" });
    const letters = charactersOf(context), title = make("p", { class: "big" });
    const choose = k => {
      const one = best[k], none = !one.answer;
      title.replaceChildren(none ? say("answerNone") : one.answer, " ", make("span", { class: "soft number", text: percent(one.score) }));
      shown.replaceChildren(letters.slice(0, one.start).join(""), none ? "" : make("mark", { text: letters.slice(one.start, one.end).join("") }), letters.slice(none ? one.start : one.end).join(""));
      list.replaceChildren(...best.map((other, i) => bar(other.answer || say("noAnswer"), other.score, { first: i === 0, pressed: i === k, press: () => { choose(i); list.children[i].focus(); } })));
      const marked = find("mark", shown);
      if (marked && shown.scrollHeight > shown.clientHeight) shown.scrollTop = marked.offsetTop - shown.offsetTop - shown.clientHeight / 3;
    };
    choose(0);
    return [title, shown, make("div", {}, make("h3", { text: say("best") }), make("p", { class: "note", text: say("answerHint") }), list)];
  },
};

// ---- choices

const CHOOSE = {
  id: "choose", when: model => model.can.includes("choose"), fields: [{ name: "text", area: true }, { name: "choices", area: true, rows: 5 }],
  own: rows => rows.map(({ text, choices }) => ({ text, choices: choices.join("\n") })),
  ask: ({ text, choices }, signal) => askModel("choose", { text, choices: linesOf(choices), truncate: true }, signal),
  show(found, { choices }) {
    const order = linesOf(choices).map((line, i) => [line, found.scores[i]]).sort((a, b) => b[1] - a[1]);
    return make("div", { class: "bars" }, order.map(([line, score], i) => bar(line, score, { first: i === 0 })));
  },
};

// ---- next sentence

const NEXT = {
  id: "next", when: model => model.can.includes("next_sentence"), fields: [{ name: "first", area: true }, { name: "follows", area: true }],
  extra: (inputs, submit) => make("button", { class: "plain", type: "button", text: say("nextSwap"), onclick: () => {
    const [[, one], [, two]] = inputs(), held = one.value;
    for (const [input, value] of [[one, two.value], [two, held]]) { input.value = value; input.dispatchEvent(new Event("input")); }
    submit();
  } }),
  async ask({ first, follows }, signal) {
    const there = await askModel("next-sentence", { a: first, b: follows, truncate: true }, signal), back = await askModel("next-sentence", { a: follows, b: first, truncate: true }, signal);
    return { ...there, value: [there.value, back.value] };
  },
  show([there, back]) {
    const share = there.score;
    return [make("p", { class: "big", text: say(share >= 0.5 ? "nextYes" : "nextNo") }),
      make("div", { class: "bars" }, bar(say("nextYes"), share, { first: share >= 0.5 }), bar(say("nextNo"), 1 - share, { first: share < 0.5 })),
      make("p", { class: "note", text: say("nextBack", percent(back.score)) })];
  },
};
