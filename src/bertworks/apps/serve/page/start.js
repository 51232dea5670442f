// The page itself: header, tabs, languages, colours, the key; the address behind # names model and tab.

const TABS = [MASKS, LABELS, ENTITIES, ANSWER, CHOOSE, NEXT, SIMILAR, ATTENTION];
const tabsOf = model => TABS.filter(tab => model && tab.when(model));

function drawHeader() {
  const model = state.model, dark = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const pick = state.models.length > 1 ? make("select", { "aria-label": say("model"), onchange: event => go(event.target.value, state.tab) },
    state.models.map(one => make("option", { value: one.name, text: one.name, selected: one === model }))) : null;
  find("#header").replaceChildren(make("h1", { text: "bertworks" }), pick || (model ? make("b", { class: "name", text: model.name }) : ""),
    make("p", { class: "facts", text: model ? say("facts", model.num_hidden_layers, model.hidden_size, grouped(model.max_length)) : "" }),
    make("div", { class: "switches" }, segmented(say("language"), [["en", "English", "en"], ["ko", "한국어", "ko"]], state.language, language => { state.language = language; keep("language", language); draw(); }),
      segmented(say("theme"), [["light", say("light")], ["dark", say("dark")]], dark, theme => { state.theme = theme; keep("theme", theme); draw(); })));
}

function drawTabs() {
  const tabs = tabsOf(state.model);
  const buttons = tabs.map(tab => make("button", { role: "tab", type: "button", id: `tab-${tab.id}`, "aria-controls": "main", "aria-selected": String(tab.id === state.tab), tabindex: tab.id === state.tab ? "0" : "-1", text: say(tab.id), onclick: () => go(state.model?.name, tab.id) }));
  const list = make("div", { role: "tablist", "aria-label": say("tools"), onkeydown: event => {
    const now = buttons.indexOf(document.activeElement), by = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: -1 }[event.key];
    if (by === undefined || now < 0) return;
    event.preventDefault();
    go(state.model?.name, tabs.at(by % tabs.length).id);
    find(`#tab-${state.tab}`).focus();
  } }, buttons);
  find("#tabs").replaceChildren(list);
  const shown = find('[aria-selected="true"]', list);
  if (shown) list.scrollLeft = shown.offsetLeft - list.clientWidth / 2 + shown.clientWidth / 2;
}

function drawMain() {
  const main = find("#main"), tab = tabsOf(state.model).find(one => one.id === state.tab);
  const note = state.astray ? [errorBox({ title: say(...state.astray), message: say("astrayNow", state.model?.name ?? "", say(state.tab)) })] : [];
  main.setAttribute("role", "tabpanel");
  main.setAttribute("aria-labelledby", `tab-${state.tab}`);
  if (tab) main.replaceChildren(...note, toolTab(tab));
}

function draw() {
  document.documentElement.lang = state.language;
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  find("#skip").textContent = say("skip");
  document.title = state.tab ? `${say(state.tab)} – bertworks` : "bertworks";
  drawHeader(); drawTabs(); drawMain();
}

/** Shows a tab of a model, or the first one where there is none of that name. */
function go(name, id) {
  const model = state.models.find(one => one.name === name) || state.models[0] || null, tabs = tabsOf(model);
  Object.assign(state, { model, tab: (tabs.find(one => one.id === id) || tabs[0])?.id ?? "", astray: null });
  history.replaceState(null, "", `#${[model?.name, state.tab].filter(Boolean).map(encodeURIComponent).join("/")}`);
  draw();
}

/** Shows what the address names after #, and says so where that is not there. */
function fromAddress() {
  const plain = part => { try { return decodeURIComponent(part); } catch { return part; } }, [name, tab] = location.hash.slice(1).split("/").map(plain);
  go(name, tab);
  if (name && name !== state.model?.name) state.astray = ["noModel", name];
  else if (tab && tab !== state.tab) state.astray = ["noTab", name, TEXTS[state.language][tab] ?? tab];
  if (state.astray) drawMain();
}

async function begin() {
  document.documentElement.lang = state.language;
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  drawHeader();
  find("#main").replaceChildren(make("p", { class: "empty", text: say("loading") }));
  try {
    await loadModels();
    fromAddress();
  } catch (error) {
    find("#main").replaceChildren(errorBox(error), make("div", { class: "actions" }, make("button", { class: "plain", type: "button", text: say("run"), onclick: begin })));
  }
}

addEventListener("hashchange", fromAddress);
begin();
