// Where the server answers what: the routes that the tabs use, and how to ask them without the page.

/** What the chosen model answers at a route. */
const askModel = (path, body, signal) => ask(path, { ...body, model: state.model.name }, signal);

/** What the chosen model answers as a task of Hugging Face Inference. */
const askTask = (task, body, signal) => ask(`models/${encodeURIComponent(state.model.name)}/pipeline/${task}`, { ...body, truncate: true }, signal);

async function loadModels() {
  const { value } = await ask("models");
  Object.assign(state, { models: value.models, key: value.key });
}

/** Examples of a tab: the run's own, or those of the page in its language or one that the model reads. */
function examplesOf(tool) {
  const own = state.model.examples.length && tool.own ? tool.own(state.model.examples) : [], reads = state.model.languages;
  if (own.length) return own;
  const examples = EXAMPLES[reads.includes(state.language) ? state.language : reads[0] || state.language];
  return tool.examples ? tool.examples(examples) : examples[tool.id];
}

// ---- the same request without the page

/** A value as JSON; as Python with its `names` of null, true and false. Lists of numbers and short lists are one line. */
function literal(value, names = {}, pad = "") {
  if (typeof value === "string") return JSON.stringify(value);
  if (value === null || typeof value !== "object") return names[value] ?? JSON.stringify(value);
  const list = Array.isArray(value), inner = `${pad}    `, [open, close] = list ? "[]" : "{}";
  const parts = Object.entries(value).map(([key, item]) => (list ? "" : `${JSON.stringify(key)}: `) + literal(item, names, inner));
  const line = `${open}${parts.join(", ")}${close}`;
  return line.length < 80 || (list && value.every(Number.isFinite)) ? line : `${open}\n${parts.map(part => inner + part).join(",\n")}\n${pad}${close}`;
}

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;  // for a shell

const SNIPPETS = {
  curl: ({ url, body }) => [`curl ${quoted(url)}`, "-H 'Content-Type: application/json'", state.key && '-H "Authorization: Bearer $BERTWORKS_API_KEY"', `-d ${quoted(JSON.stringify(body))}`].filter(Boolean).join(" \\\n  "),
  Python: ({ url, body }) => `${state.key ? "import os\n\n" : ""}import requests\n\nanswer = requests.post(\n    ${JSON.stringify(url)},\n    json=${literal(body, { null: "None", true: "True", false: "False" }, "    ")},\n${
    state.key ? '    headers={"Authorization": "Bearer " + os.environ["BERTWORKS_API_KEY"]},\n' : ""})\nanswer.raise_for_status()\nprint(answer.json())`,
  JSON: ({ answer }) => literal(answer),
};

async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {  // only localhost and HTTPS have a clipboard
    const field = make("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/** The part below a result: its request as a command and a program, and its answer. Written when it is opened. */
function apiPart(result) {
  const code = make("pre", { tabindex: "0" }), bar = make("div", { class: "actions" });
  const draw = () => {
    state.open = part.open;
    if (!part.open) return;
    const text = SNIPPETS[state.snippet](result);
    code.textContent = text.length > 20_000 ? `${text.slice(0, 20_000)}\n…` : text;
    const button = make("button", { class: "plain", type: "button", text: say("copy"), onclick: () => copy(text).then(() => { button.textContent = say("copied"); button.focus(); }) });
    bar.replaceChildren(segmented(say("api"), Object.keys(SNIPPETS).map(name => [name, name === "JSON" ? say("answerJson") : name]), state.snippet, name => { state.snippet = name; draw(); find("[aria-pressed=true]", bar).focus(); }), button);
  };
  const part = make("details", { class: "api", open: state.open, ontoggle: draw }, make("summary", { text: say("api") }), bar, code);
  return part;
}
