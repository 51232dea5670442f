// Where the server answers what: the routes that the tabs use, and the facts of the loaded models.

/** What the chosen model answers at a route. */
const askModel = (path, body, signal) => ask(path, { ...body, model: state.model.name }, signal);

/** What the chosen model answers as a task of Hugging Face Inference. */
const askTask = (task, body, signal) => ask(`/models/${encodeURIComponent(state.model.name)}/pipeline/${task}`, body, signal);

async function loadModels() {
  state.models = (await ask("/models")).value.models;
}

/** Examples in the language of the page, or in one that the model reads. */
function examplesOf(name) {
  const reads = state.model.languages;
  return EXAMPLES[reads.includes(state.language) ? state.language : reads[0] || state.language][name];
}
