// One verb of the official client against a running service: node openai.mjs <base url> <verb> [argument]
import OpenAI, { toFile } from "openai";

const [baseURL, verb, argument] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];

async function sound(format) {
  const answer = await client.audio.speech.create({
    model: "voice",
    voice: "alloy",
    input: "A sentence. And another one.",
    response_format: format,
  });
  return Buffer.from(await answer.arrayBuffer());
}

const verbs = {
  async chat() {
    const chunks = [];
    const options = { include_usage: true };
    for await (const chunk of await client.chat.completions.create({
      model: argument, messages, stream: true, stream_options: options,
    })) chunks.push(chunk);
    const deltas = chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta);
    return {
      text: deltas.map((delta) => delta.content ?? "").join(""),
      finish: chunks.flatMap((chunk) => chunk.choices).at(-1).finish_reason,
      tokens: chunks.at(-1).usage.total_tokens,
    };
  },
  async tools() {
    const stream = client.chat.completions.stream({ model: argument, messages });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    return message.tool_calls.map((call) => [call.function.name, call.function.arguments]);
  },
  async "chat-whole"() {
    const answer = await client.chat.completions.create({ model: argument, messages });
    return answer.choices[0].message.content;
  },
  async completion() {
    let text = "";
    for await (const chunk of await client.completions.create({ model: argument, prompt: "hi", stream: true }))
      text += chunk.choices[0].text;
    return text;
  },
  async responses() {
    const stream = client.responses.stream({ model: argument, input: "hi" });
    const types = [];
    for await (const event of stream) types.push(event.type);
    const final = await stream.finalResponse();
    return { types, text: final.output_text, calls: final.output.filter((item) => item.type === "function_call") };
  },
  async resume() {
    const stream = await client.responses.create({ model: argument, input: "hi", stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    const { id } = events[0].response;
    const rest = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 3 }))
      rest.push(event.sequence_number);
    const next = await client.responses.create({ model: "conversation", input: "next", previous_response_id: id });
    return { all: events.map((event) => event.sequence_number), rest, next: next.output_text };
  },
  speech: async () => (await sound(argument)).toString("base64"),
  async transcription() {
    const file = await toFile(await sound("wav"), "a.wav");
    const stream = await client.audio.transcriptions.create({ model: argument, file, stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    return { text: events.at(-1).text, types: [...new Set(events.map((event) => event.type))] };
  },
  models: async () => (await client.models.list()).data.map((model) => model.id),
};

let answer;
try {
  answer = await verbs[verb]();
} catch (error) {
  answer = { error: error.constructor.name, status: error.status, message: error.message };
}
console.log(JSON.stringify(answer));
