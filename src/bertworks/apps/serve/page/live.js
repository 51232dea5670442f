// The tab that follows a run folder: its curves. It asks only while it is seen.

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
