// One verb of the official client against a running service: node replicate.mjs <base url> <token> <verb> [model]
import Replicate from "replicate";

const [baseUrl, auth, verb, model] = process.argv.slice(2);
const replicate = new Replicate({ auth, baseUrl });
const input = { prompt: "Tell me a story" };

async function read(stream) {
  const output = [];
  let last;
  for await (const { event, data } of stream) {
    if (event === "output") output.push(data);
    else last = data;
  }
  return { text: output.join(""), last };
}

async function withVersion(name) {
  const [owner, short] = name.split("/");
  const found = await replicate.models.get(owner, short);
  return `${name}:${found.latest_version.id}`;
}

const verbs = {
  stream: () => read(replicate.stream(model, { input })),
  run: () => replicate.run(model, { input, wait: { mode: "block", timeout: 1, interval: 50 } }),
  "run-by-version": async () =>
    replicate.run(await withVersion(model), { input, wait: { mode: "block", timeout: 1, interval: 50 } }),
  async cancel() {
    const prediction = await replicate.predictions.create({ model, input });
    const response = await fetch(prediction.urls.stream);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let body = "";
    while (!body.includes("Begun")) body += (await reader.read()).value;
    const { status } = await replicate.predictions.cancel(prediction.id);
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) body += piece.value;
    const data = body.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
    return { status, text: data[0], last: data.at(-1) };
  },
  async file() {
    const prediction = await replicate.predictions.create({ model, input: { ...input, note: new Blob(["hello"]) } });
    return prediction.input.note;
  },
  async voice() {
    const output = await replicate.run(model, { input: { text: "Hello there" } });
    const bytes = new Uint8Array(await (await output.blob()).arrayBuffer());
    return new TextDecoder().decode(bytes.slice(0, 4));
  },
  list: async () => (await replicate.predictions.list()).results.length > 0,
  model: () => replicate.models.get(...model.split("/")),
};

let answer;
try {
  answer = await verbs[verb]();
} catch (error) {
  answer = { error: error.message, status: error.response?.status };
}
console.log(JSON.stringify(answer));
