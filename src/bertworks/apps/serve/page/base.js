// What every tab uses: the state, texts, elements, requests.
const kept = name => { try { return sessionStorage.getItem(name) || ""; } catch { return ""; } };
const keep = (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* private windows */ } };
const state = { language: kept("language") || (navigator.language.startsWith("ko") ? "ko" : "en"), theme: kept("theme"),
  models: [], model: null, key: false, run: false, tab: "", live: {}, astray: null, snippet: "curl", open: false };
const ROOT = location.pathname.replace(/\/?$/, "/");  // a proxy may serve the page below a path

const find = (selector, root = document) => root.querySelector(selector);
const say = (key, ...values) => TEXTS[state.language][key].replace(/\{(\d)\}/g, (_, i) => values[i]);

/** A new element. `class`, `text`, `on...` and `style` are set as such, everything else as an attribute; "" and true count as present. */
function make(tag, settings = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else if (name === "style") for (const [property, set] of Object.entries(value)) made.style.setProperty(property, set);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

const percent = share => share > 0 && share < 0.00005 ? "< 0.01 %" : `${(100 * share).toFixed(share >= 0.0995 || share === 0 ? 0 : share >= 0.00095 ? 1 : 2)} %`;
const grouped = value => Math.round(value).toLocaleString("en");
const colour = index => ({ "--c": `var(--c${index % 8})` });

/** A row with a bar below it. With `press` it is a button. */
function bar(name, share, { shown = percent(share), first = false, press, pressed } = {}) {
  return make(press ? "button" : "div", { class: `bar${first ? " first" : ""}`, type: press && "button", onclick: press, style: { "--share": Math.max(0, Math.min(1, share)) },
    "aria-pressed": pressed === undefined ? undefined : String(pressed) }, make("span", { class: "name", text: name }), make("span", { class: "number", text: shown }));
}

function segmented(label, options, chosen, choose) {
  return make("div", { class: "segmented", role: "group", "aria-label": label }, options.map(([value, text, language]) =>
    make("button", { type: "button", text, lang: language, "aria-pressed": String(value === chosen), onclick: () => choose(value) })));
}

// ---- requests

/** Why there is no answer, in words of the page; `said`: those of the server. */
class Refusal extends Error {
  constructor(kind, said = "", ...values) {
    super(say(`errorWhy_${kind}`, ...values));
    this.title = say(`error_${kind}`, ...values); this.said = said;
  }
}

/** What the server says to a request: { value, headers, ms }, and as it was sent { url, body, answer }. Throws a Refusal. */
async function ask(path, body, signal) {
  const headers = { Accept: "application/json" }, started = performance.now(), url = new URL(ROOT + path, location.origin).href;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let reply, text, value = null;
  try {
    reply = await fetch(url, { method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store" });
    text = await reply.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("offline");
  }
  try { value = JSON.parse(text); } catch { /* an error page of a proxy, or plain text */ }
  if (!reply.ok) throw refusal(reply, value);
  return { value, headers: reply.headers, ms: performance.now() - started, url, body, answer: value };
}

const KINDS = { 401: "key", 403: "key", 404: "gone", 408: "offline", 413: "large", 429: "busy", 502: "offline", 503: "offline", 504: "offline" };  // of a status

function refusal(reply, value) {
  const found = value && (value.error?.message || value.error || value.detail), status = reply.status;
  const said = typeof found === "string" ? found : `${status} ${reply.statusText}`;
  return new Refusal(KINDS[status] || (status < 500 ? "refused" : "failed"), said, reply.headers.get("Retry-After") || 1);
}

// ---- charts: lines over x, drawn at the width that the page gives, so that their text keeps its size

function stepOf(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(by => by * power).find(by => by >= rough * 0.999);
}
function ticks(low, high, count) {
  const step = stepOf(low, high, count), found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(+at.toPrecision(12));
  return found;
}
const brief = value => Math.abs(value) >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : Math.abs(value) >= 1e3 ? `${+(value / 1e3).toPrecision(3)}k` : String(+value.toPrecision(4));

/** A chart. series: [{ name, points: [[x, y], ...], dashed, area, dots }]; names: texts of whole x, if they are no numbers; low, high: of y. */
function chart({ series, names, low, high, height = 220, x: title = "", label = "" }) {
  const shown = make("svg:svg", { class: "chart", role: "img", "aria-label": label, height }), readout = make("p", { class: "note number" });
  const whole = series.flatMap(line => line.points), xs = whole.map(p => p[0]), ys = whole.map(p => p[1]).filter(Number.isFinite);
  const from = [Math.min(...xs), low ?? Math.min(...ys)], to = [Math.max(...xs), high ?? Math.max(...ys)], count = Math.max(2, height / 45);
  if (to[1] - from[1] < 1e-9) to[1] = from[1] + (Math.abs(from[1]) || 1);
  const step = stepOf(from[1], to[1], count);  // the axis ends at whole steps
  if (low === undefined) from[1] = Math.floor(from[1] / step + 1e-9) * step;
  if (high === undefined) to[1] = Math.ceil(to[1] / step - 1e-9) * step;
  const draw = () => {
    const width = shown.clientWidth || 600, [left, right, top, bottom] = [44, 12, 8, title ? 38 : 24];
    const X = x => left + (x - from[0]) / (to[0] - from[0] || 1) * (width - left - right), Y = y => height - bottom - (y - from[1]) / (to[1] - from[1]) * (height - top - bottom);
    const put = (tag, settings, ...children) => shown.append(make(`svg:${tag}`, settings, ...children));
    shown.replaceChildren();
    for (const y of ticks(from[1], to[1], count)) {
      put("line", { class: "grid", x1: left, x2: width - right, y1: Y(y), y2: Y(y) });
      put("text", { x: left - 8, y: Y(y) + 4, "text-anchor": "end", text: brief(y) });
    }
    const marks = names ? names.map((_, i) => i) : ticks(from[0], to[0], Math.max(2, width / 90));
    const every = names ? Math.ceil(names.length * 48 / (width - left - right)) : 1;
    for (const x of marks.filter((_, i) => i % every === 0)) put("text", { x: X(x), y: height - bottom + 17, "text-anchor": names && x === from[0] ? "start" : names && x === to[0] ? "end" : "middle", text: names ? names[x] : brief(x) });
    put("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom });
    if (title) put("text", { x: width - right, y: height - 3, "text-anchor": "end", text: title });
    series.forEach((line, i) => {
      const points = line.points.filter(p => Number.isFinite(p[1])).map(([x, y]) => `${X(x).toFixed(1)},${Y(Math.max(from[1], Math.min(to[1], y))).toFixed(1)}`);
      const style = colour(line.colour ?? i);
      if (line.area && points.length) put("polygon", { class: "area", style, points: `${points[0].split(",")[0]},${height - bottom} ${points.join(" ")} ${points.at(-1).split(",")[0]},${height - bottom}` });
      put("polyline", { class: `line${line.dashed ? " dashed" : ""}`, style, points: points.join(" ") });
      if (line.dots || points.length === 1) for (const point of points) put("circle", { style, cx: point.split(",")[0], cy: point.split(",")[1], r: 4 });
    });
    shown.onpointermove = event => {
      const x = from[0] + (event.clientX - shown.getBoundingClientRect().left - left) / (width - left - right) * (to[0] - from[0]);
      const near = series.map(line => line.points.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best, line.points[0] || [NaN, NaN]));
      const at = near.find(p => p.length)?.[0];
      readout.textContent = [names ? names[at] : `${title} ${grouped(at)}`, ...series.map((line, i) => `${line.name} ${brief(near[i][1])}`)].join(" · ");
      find(".rule", shown)?.remove();
      put("line", { class: "rule", x1: X(at), x2: X(at), y1: top, y2: height - bottom });
    };
    shown.onpointerleave = () => { find(".rule", shown)?.remove(); readout.textContent = ""; };
  };
  new ResizeObserver(draw).observe(shown);
  const legend = make("div", { class: "legend" }, series.map((line, i) => make("span", {}, make("i", { class: line.dashed ? "dashed" : "", style: colour(line.colour ?? i) }), line.name)));
  return make("div", { class: "plot" }, shown, series.length > 1 ? legend : null, readout);
}
