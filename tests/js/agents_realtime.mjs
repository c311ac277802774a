// A voice agent of @openai/agents-realtime against a running service: node agents_realtime.mjs <ws url> <key> <verb> [model]
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";
import { realtimeServerEventSchema } from "./node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs";

const [url, apiKey, verb, model] = process.argv.slice(2);
const calls = [];
const weather = tool({
  name: "get_weather",
  description: "The weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    calls.push(city);
    return "21 degrees";
  },
});
const agent = new RealtimeAgent({ name: "Tester", instructions: "Be brief.", tools: verb === "tool" ? [weather] : [] });
const session = new RealtimeSession(agent, { model, tracingDisabled: true });
const seen = { types: [], errors: [], unknown: [], audio: 0, interrupted: 0, truncated: 0 };

session.transport.on("*", (event) => {
  seen.types.push(event.type);
  if (event.type === "conversation.item.truncated") seen.truncated += 1;
  // The SDK ignores silently what its schema does not know.
  if (!realtimeServerEventSchema.safeParse(event).success) seen.unknown.push(event.type);
});
session.on("audio", ({ data }) => (seen.audio += data.byteLength));
session.on("audio_interrupted", () => (seen.interrupted += 1));
session.on("error", ({ error }) => seen.errors.push(error));

function arrived(...wanted) {
  return new Promise((resolve) => {
    const listen = (event) => {
      if (!wanted.includes(event.type)) return;
      session.transport.off("*", listen);
      resolve(event);
    };
    session.transport.on("*", listen);
  });
}

async function readInput() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const verbs = {
  async chat() {
    const done = arrived("response.done");
    session.sendMessage("one two three");
    return { status: (await done).response.status };
  },
  async tool() {
    const output = arrived("conversation.item.done");
    session.sendMessage("What is the weather?");
    await output;
    while (!calls.length) await arrived("conversation.item.done", "response.done");
    return { calls };
  },
  async interrupt() {
    const speech = await readInput();
    const speaking = arrived("response.output_audio.delta");
    session.sendMessage("Go on.");
    await speaking;
    const truncated = arrived("conversation.item.truncated");
    const retrieved = arrived("conversation.item.retrieved");
    for (let at = 0; at < speech.length; at += 4800) session.sendAudio(new Uint8Array(speech.subarray(at, at + 4800)).buffer);
    const { audio_end_ms } = await truncated;
    const { item } = await retrieved;
    return { audio_end_ms, transcript: item.content[0].transcript };
  },
};

await session.connect({ url, apiKey });
const result = await verbs[verb]();
const history = session.history.map(({ type, role, content }) => ({ type, role, content }));
console.log(JSON.stringify({ ...result, ...seen, history }));
session.close();
process.exit(0);
