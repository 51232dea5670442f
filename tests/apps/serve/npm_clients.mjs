// The npm clients, unmodified, against a server of tiny folders. test_npm.py starts the server and runs this file:
//     node npm_clients.mjs URL, in a folder where @huggingface/inference and openai are installed
// Every line that is printed is a check that held.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, folder] = process.argv.slice(2);
const load = async (name) => import(pathToFileURL(createRequire(`${folder}/`).resolve(name)));
const { InferenceClient } = await load("@huggingface/inference");
const { default: OpenAI } = await load("openai");
for (const name of ["@huggingface/inference", "openai"])
  console.log(name, JSON.parse(readFileSync(`${folder}/node_modules/${name}/package.json`)).version);

const hub = new InferenceClient();
const at = (name) => ({ endpointUrl: `${url}/models/${name}` });
const check = async (name, answer, holds) => {
  const found = await answer;
  assert.ok(holds(found), `${name}: ${JSON.stringify(found)}`);
  console.log("held:", name);
};

await check("textClassification", hub.textClassification({ ...at("labels"), inputs: "a film" }),
  (r) => r.length === 3 && r[0].score >= r[1].score);
await check("tokenClassification", hub.tokenClassification({ ...at("tags"), inputs: "a good film" }),
  (r) => r.length > 0 && r.every((one) => "a good film".slice(one.start, one.end) === one.word));
await check("tokenClassification, none",
  hub.tokenClassification({ ...at("tags"), inputs: "a film", parameters: { aggregation_strategy: "none", ignore_labels: [] } }),
  (r) => r.length === 2 && r[1].word === "film" && typeof r[0].entity === "string");
await check("questionAnswering", hub.questionAnswering({ ...at("span"), inputs: { question: "a?", context: "b c good" } }),
  (r) => "b c good".slice(r.start, r.end) === r.answer);
await check("fillMask", hub.fillMask({ ...at("mlm"), inputs: "a [MASK]", parameters: { top_k: 2 } }),
  (r) => r.length === 2 && Number.isInteger(r[0].token));
await check("featureExtraction", hub.featureExtraction({ ...at("mlm"), inputs: ["a film", "b"] }),
  (r) => r.length === 2 && r[0].length === 32);
await check("sentenceSimilarity",
  hub.sentenceSimilarity({ ...at("mlm"), inputs: { source_sentence: "a film", sentences: ["a film", "b"] } }),
  (r) => r.length === 2 && Math.abs(r[0] - 1) < 1e-5 && r[1] < 1);
await check("zeroShotClassification",
  hub.zeroShotClassification({ ...at("nli"), inputs: "a film", parameters: { candidate_labels: ["good", "bad"] } }),
  (r) => r.length === 2 && Math.abs(r[0].score + r[1].score - 1) < 1e-4);
await check("an error of the server is the client's",
  hub.zeroShotClassification({ ...at("labels"), inputs: "a", parameters: { candidate_labels: ["b"] } }).catch((error) => error),
  (error) => error.httpResponse.status === 424 && error.message.includes("needs entailment"));

const api = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const base64 = await api.embeddings.create({ model: "mlm", input: ["a film", "b"] });
const float = await api.embeddings.create({ model: "mlm", input: ["a film", "b"], encoding_format: "float" });
await check("embeddings", base64, (r) => r.data.length === 2 && r.data[0].embedding.length === 32 && r.usage.prompt_tokens > 0);
await check("embeddings, base64 and float are equal", base64,
  (r) => r.data[0].embedding.every((x, i) => Math.abs(x - float.data[0].embedding[i]) < 1e-6));
await check("embeddings, dimensions", api.embeddings.create({ model: "mlm", input: "a film", dimensions: 4 }),
  (r) => r.data[0].embedding.length === 4);
await check("models", api.models.list(), (r) => r.data.some((one) => one.id === "mlm"));
await check("models, unknown", api.models.retrieve("none").catch((error) => error), (error) => error.status === 404);
