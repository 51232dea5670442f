// What every tab uses: the state, texts, elements, requests.
const kept = name => { try { return sessionStorage.getItem(name) || ""; } catch { return ""; } };
const keep = (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* private windows */ } };
const state = { language: kept("language") || (navigator.language.startsWith("ko") ? "ko" : "en"), theme: kept("theme"),
  models: [], model: null, key: false, tab: "", live: {}, astray: null, snippet: "curl", open: false };
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
