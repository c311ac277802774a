// Both Realtime classes of the openai package over TLS: node realtime.mjs <https base url> <key> <model> <ws|websocket>
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { WebSocket } from "ws";

const [baseURL, apiKey, model, kind] = process.argv.slice(2);
// Node 20 has no WebSocket of its own; this class offers the sub-protocols of a browser.
globalThis.WebSocket ??= WebSocket;

let key = apiKey;
if (kind === "websocket") {
  const issued = await new OpenAI({ baseURL, apiKey }).realtime.clientSecrets.create({
    session: { type: "realtime", model, output_modalities: ["text"], instructions: "Be brief." },
  });
  key = issued.value;
}
const client = new OpenAI({ baseURL, apiKey: key, dangerouslyAllowBrowser: true });
const realtime =
  kind === "ws" ? new OpenAIRealtimeWS({ model }, client) : new OpenAIRealtimeWebSocket({ model, dangerouslyAllowBrowser: true }, client);
const types = [];
let text = "";
let session;
const finished = new Promise((resolve, reject) => {
  realtime.on("error", reject);
  realtime.on("event", (event) => types.push(event.type));
  realtime.on("session.created", (event) => {
    session = event.session;
    if (kind === "ws") realtime.send({ type: "session.update", session: { type: "realtime", output_modalities: ["text"] } });
    const content = [{ type: "input_text", text: "one two three" }];
    realtime.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    realtime.send({ type: "response.create" });
  });
  realtime.on("response.output_text.delta", (event) => (text += event.delta));
  realtime.on("response.done", (event) => resolve(event.response.status));
});
const status = await finished;
console.log(JSON.stringify({ status, text, types, key: key.slice(0, 3), protocol: realtime.socket.protocol, session }));
realtime.close();
process.exit(0);
