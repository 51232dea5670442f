// A tab with a form on the left and what the server answered on the right: fields, examples, waiting, errors.

/**
 * Builds a tab. tool: { id, fields: [{ name, area, rows, optional, when }], ask(values, signal), show(value, values, again), extra(inputs, submit) };
 * examples: those of the page's that fit, by default all of its id; own: from rows of the run.
 */
function toolTab(tool) {
  const mine = state.live[`${state.model.name}/${tool.id}`] ||= { values: null, result: null, error: null };
  const examples = examplesOf(tool);
  mine.values ||= { ...Object.fromEntries(tool.fields.map(field => [field.name, ""])), ...examples[0] };
  const body = make("div", { class: "body" }), status = make("p", { class: "foot", hidden: true }), wait = make("div", { class: "wait", hidden: true });
  const spoken = make("p", { class: "note", "aria-live": "polite", hidden: true });
  const api = make("div"), result = make("section", { class: "result", "aria-busy": "false", "aria-label": say(tool.id) }, wait, body, spoken, status, api);
  const run = make("button", { class: "run", type: "submit", text: say(`${tool.id}Run`) }), stop = make("button", { class: "plain", type: "button", hidden: true, text: say("stop") });
  const fields = tool.fields.filter(field => !field.when || field.when(state.model));
  const inputs = fields.map(field => fieldOf(field, mine, () => form.requestSubmit()));
  const form = make("form", { onsubmit: event => { event.preventDefault(); start(true); } }, inputs.map(([whole]) => whole),
    make("div", { class: "actions" }, run, stop, tool.extra?.(() => inputs, () => form.requestSubmit()), make("kbd", { class: "hint", text: say("keys") })), chips());

  function chips() {
    const shown = example => [Object.values(example)[0], example.second || example.follows].filter(Boolean).join(" → ");
    return make("div", { class: "examples" }, make("span", { class: "label", text: say("examples") }),
      examples.map(example => make("button", { class: "chip", type: "button", title: shown(example), text: shown(example), onclick: () => again(example) })));
  }
  function again(change) { mine.values = { ...mine.values, ...change }; fill(); form.requestSubmit(); }
  function fill() { for (const [, input] of inputs) { input.value = mine.values[input.name]; input.dispatchEvent(new Event("grow")); } }
  function draw() {
    if (mine.error) body.replaceChildren(errorBox(mine.error));
    else if (mine.result) body.replaceChildren(...[tool.show(mine.result.value, mine.asked, again)].flat().filter(Boolean), ...cutNote(mine.result));
    else body.replaceChildren(make("p", { class: "empty", text: mine.stop ? say("waiting") : say("empty", say(`${tool.id}Run`)) }));
    status.hidden = !mine.result || !!mine.error;
    const tokens = mine.result?.headers?.get("x-compute-tokens");
    if (mine.result) status.textContent = tokens ? say("tookTokens", Math.round(mine.result.ms), grouped(tokens)) : say("took", Math.round(mine.result.ms));
    api.replaceChildren(...mine.result?.url && !mine.error ? [apiPart(mine.result)] : []);
  }
  /** Shows the result where it is out of sight, as below the form on a phone. */
  function reveal() {
    const { top } = result.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) result.scrollIntoView();
  }
  async function start(pressed) {
    mine.stop?.abort();
    const missing = fields.find(field => !field.optional && !mine.values[field.name].trim());
    if (missing) { mine.result = mine.error = null; draw(); inputs.find(([, input]) => input.name === missing.name)[1].focus(); return; }
    const stopper = mine.stop = new AbortController(), began = performance.now();
    run.disabled = true; stop.hidden = wait.hidden = false; run.textContent = say("waiting");
    result.setAttribute("aria-busy", "true");
    if (!mine.result && !mine.error) draw();
    if (pressed) reveal();
    stop.onclick = () => stopper.abort();
    const clock = setInterval(() => {
      const seconds = Math.round((performance.now() - began) / 1000);
      spoken.hidden = seconds < 2; spoken.textContent = say("long", seconds);
    }, 1000);
    try {
      const asked = { ...mine.values };
      const found = await tool.ask(asked, stopper.signal);
      Object.assign(mine, { result: found, error: null, asked });
    } catch (error) {
      if (mine.stop !== stopper) return;  // a newer request has taken its place
      if (error.name !== "AbortError") mine.error = error instanceof Refusal ? error : new Refusal("failed", String(error.message));
    } finally {
      clearInterval(clock);
      if (mine.stop === stopper) {
        mine.stop = null;
        run.disabled = false; stop.hidden = wait.hidden = spoken.hidden = true; run.textContent = say(`${tool.id}Run`);
        result.setAttribute("aria-busy", "false");
        draw();
        if (pressed) reveal();
      }
    }
  }
  fill(); draw();
  if (mine.stop || (!mine.result && !mine.error)) start();  // a request of the element that this one replaces begins again
  return make("div", { class: `tool${tool.wide ? " wide" : ""}` }, lead(tool.id, tool.windows?.(state.model) ? ` ${say("windows", grouped(state.model.max_length))}` : ""), form, result);
}

const lead = (id, more = "") => make("div", { class: "lead" }, make("h2", { text: say(id) }), make("p", { text: say(`${id}Why`) + more }));

function errorBox(error) {
  const said = error.said && make("small", {}, `${say("said")} `, make("q", { lang: "en", text: error.said }));
  return make("div", { class: "error", role: "alert" }, make("b", { text: error.title }), make("span", { text: error.message }), said || null);
}

function cutNote(result) {
  const cut = +(result.headers?.get("x-truncated-tokens") || 0);
  return cut ? [make("p", { class: "note", text: say("cut", grouped(cut)) })] : [];
}

/** A labelled field; a text area grows with its text, and Ctrl + Enter in it asks the server. */
function fieldOf(field, mine, submit) {
  const id = `field-${field.name}`, grow = () => { input.style.height = "auto"; input.style.height = `${Math.min(input.scrollHeight + 2, innerHeight * 0.6)}px`; };
  const input = make(field.area ? "textarea" : "input", { id, name: field.name, spellcheck: "false", autocomplete: "off", rows: field.area && (innerWidth > 820 && field.rows || 2),
    oninput: () => { mine.values[field.name] = input.value; if (field.area) grow(); },
    onkeydown: event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); } } });
  if (field.area) { input.addEventListener("grow", grow); requestAnimationFrame(grow); }
  return [make("div", { class: "field" }, make("label", { for: id, text: say(field.say || field.name) }), input), input];
}
