// The tabs that follow something: the curves of a run folder, and the server's load. They ask only while they are seen.

/** Calls `step` now and every `seconds`, until the tab is left; waits while the page is hidden. */
function follow(seconds, step) {
  const stopper = new AbortController();
  (async () => {
    while (!stopper.signal.aborted) {
      if (!document.hidden) await step(stopper.signal).catch(error => { if (error.name !== "AbortError") throw error; });
      await new Promise(done => setTimeout(done, seconds * 1000));
    }
  })();
  return () => stopper.abort();
}

const alive = (dot, text) => (error, finished = false) => {
  dot.classList.toggle("off", !!error);
  dot.classList.toggle("still", finished);
  text.textContent = error ? `${error.title}. ${error.message}` : say(finished ? "finished" : "live");
};

function duration(seconds) {
  const s = Math.round(seconds);
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}

const CURVES = {
  id: "curves", server: true, when: () => state.run,
  build() {
    const body = make("div", { class: "pair" }), dot = make("i", { class: "live" }), text = make("span"), tell = alive(dot, text), head = make("p", { class: "big number" });
    const result = make("section", { class: "result" }, make("p", { class: "note" }, dot, text), head, body), why = make("p");
    let seen = "";
    const stop = follow(2, async signal => {
      try {
        const { value } = await ask(`curves?seen=${encodeURIComponent(seen)}`, undefined, signal);
        tell(null, value.finished);
        why.textContent = say("curvesWhy", value.run);
        seen = value.version;
        if (value.records) drawCurves(body, head, value.records);
      } catch (error) { if (error.name === "AbortError") throw error; tell(error); }
    });
    return [make("div", { class: "tool wide" }, make("div", { class: "lead" }, make("h2", { text: say("curves") }), why), result), stop];
  },
};

/** A metric in words; of a further development set with its name: accuracy_mismatched. */
function metricName(name) {
  const texts = TEXTS[state.language], end = name.lastIndexOf("_"), start = name.slice(0, Math.max(0, end));
  return texts[`metric_${name}`] || (texts[`metric_${start}`] ? `${texts[`metric_${start}`]} (${name.slice(end + 1)})` : name.replaceAll("_", " "));
}

function drawCurves(body, head, records) {
  const last = records.at(-1);
  if (!last) { body.replaceChildren(make("p", { class: "empty", text: say("curvesWait") })); return; }
  const left = records.findLast(record => record.left !== undefined && record.left !== null)?.left;
  head.textContent = left > 0.5 ? say("progress", grouped(last.step), duration(left)) : say("done", grouped(last.step));
  const steps = { step: 1, kind: 1, tokens: 1, seconds: 1, left: 1, memory: 1, share_of_peak: 1, share_of_data_sheet: 1 };
  const names = [...new Set(records.flatMap(record => Object.keys(record).filter(name => !(name in steps) && typeof record[name] === "number")))];
  const order = name => /loss/.test(name) ? 0 : /accuracy|f1|exact|score/.test(name) ? 1 : name === "lr" ? 2 : 3;
  const figures = names.sort((a, b) => order(a) - order(b)).map(name => {
    const of = kind => records.filter(record => record.kind === kind && typeof record[name] === "number").map(record => [record.step, record[name]]);
    const series = ["train", "eval"].map((kind, i) => ({ name: say(kind), points: of(kind), colour: i, dots: i === 1 && of(kind).length < 40 })).filter(line => line.points.length);
    if (!series.length) return null;
    const title = metricName(name);
    if (new Set(series.flatMap(line => line.points.map(point => point[0]))).size > 1) return make("figure", {}, make("h3", { text: title }), chart({ series, x: say("step"), height: 200, label: title }));
    return make("figure", {}, make("h3", { text: title }), series.map(line => make("p", {}, make("b", { class: "number", text: brief(line.points[0][1]) }), ` ${line.name}, ${say("step").toLowerCase()} ${grouped(line.points[0][0])}`)));
  });
  body.replaceChildren(...figures.filter(Boolean));
}

const SERVER = {
  id: "server", server: true, when: () => true,
  build() {
    const past = state.live.past ||= [], dot = make("i", { class: "live" }), text = make("span"), tell = alive(dot, text), tiles = make("dl", { class: "tiles" }), charts = make("div", { class: "pair" });
    const stop = follow(1, async signal => {
      try {
        const { value } = await ask("load", undefined, signal), before = past.at(-1), seconds = before ? value.uptime_seconds - before.uptime_seconds : 0;
        if (seconds < 0) past.length = 0;  // the server was restarted
        const rate = name => seconds > 0 ? (value[name] - before[name]) / seconds : null;
        past.push({ ...value, request_rate: rate("answered"), token_rate: rate("computed_tokens"), p50: value.p50_seconds * 1000, p99: value.p99_seconds * 1000 });
        if (past.length > 120) past.shift();
        tell();
        drawServer(tiles, charts, past);
      } catch (error) { if (error.name === "AbortError") throw error; tell(error); }
    });
    return [make("div", { class: "tool wide" }, lead("server"), make("section", { class: "result" }, make("p", { class: "note" }, dot, text), tiles, charts),
      make("section", { class: "result" }, make("h3", { text: say("models") }), make("div", { class: "scroll", tabindex: "0" }, modelTable()))), stop];
  },
};

function drawServer(tiles, charts, past) {
  const now = past.at(-1), shown = value => value === null ? "–" : value < 10 ? String(+value.toFixed(1)) : grouped(value);
  const tile = (key, value, unit) => make("div", { class: "tile" }, make("dt", { text: say(key) }), make("dd", {}, value, unit && make("small", { text: unit })));
  tiles.replaceChildren(tile("queue", grouped(now.waiting_tokens), say("tokensWait")), tile("rate", shown(now.request_rate), say("perSecond")), tile("tokenRate", shown(now.token_rate), say("perSecond")),
    tile("p50", shown(now.p50), "ms"), tile("p99", shown(now.p99), "ms"), tile("refusedCount", grouped(now.refused)));
  const line = name => past.map(one => [Math.round(one.uptime_seconds - now.uptime_seconds), one[name] ?? NaN]);
  const figure = (key, series) => make("figure", {}, make("h3", { text: say(key) }), chart({ series, low: 0, height: 150, x: say("seconds"), label: say(key),
    high: Math.max(1, ...series.flatMap(one => one.points.map(p => p[1] || 0))) * 1.1 }));
  charts.replaceChildren(figure("requestsChart", [{ name: say("rate"), points: line("request_rate"), area: true }]),
    figure("latencyChart", [{ name: say("p50"), points: line("p50") }, { name: say("p99"), points: line("p99"), colour: 1 }]),
    figure("queueChart", [{ name: say("queue"), points: line("waiting_tokens"), area: true, colour: 4 }]),
    figure("tokensChart", [{ name: say("tokenRate"), points: line("token_rate"), area: true, colour: 2 }]));
}

function modelTable() {
  const rows = state.models.map(model => make("tr", {}, [model.name, model.kind ? say(`kind_${model.kind}`) : "–", model.can.map(step => say(`can_${step}`)).join(", ")].map(text => make("td", { text })), [model.num_hidden_layers, model.hidden_size, model.max_length].map(value => make("td", { class: "number", text: grouped(value) }))));
  return make("table", { class: "list able" }, heading("name", "kind", "can", "*layers", "*width", "*limit"), make("tbody", {}, rows));
}
