// What the official parser says of an AsyncAPI document: node asyncapi.mjs <path>
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify({
  problems: diagnostics.map(({ code, message, path }) => `${path.join(".")}: ${message} (${code})`),
  messages: document?.allMessages().all().map((message) => message.id()) ?? [],
}));
