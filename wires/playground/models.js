// GET /v1/models: what can be picked, and the one place where a refused socket's reason can be read (a browser hides it).

export class ServiceRefusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status; // 0: no answer at all
  }

  get needsKey() {
    return this.status === 401 || this.status === 403;
  }
}

/** The service's models as {chat: [id], speech: [id], transcription: [id]}. Throws ServiceRefusal with a sentence to show. */
export async function listModels(key) {
  const response = await get("v1/models", key);
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    throw new ServiceRefusal(sentenceOf(body, response.status), response.status);
  }
  const rows = Array.isArray(body?.data) ? body.data : [];
  const idsOf = (kind) => rows.filter((row) => (row.kind ?? "chat") === kind).map((row) => String(row.id));
  return { chat: idsOf("chat"), speech: idsOf("speech"), transcription: idsOf("transcription") };
}

async function get(path, key) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  try {
    return await fetch(new URL(path, location.href), { headers, cache: "no-store" });
  } catch {
    throw new ServiceRefusal("The service cannot be reached. Check that it runs and that you are online.", 0);
  }
}

function sentenceOf(body, status) {
  // What the service says of keys is for programs.
  if (status === 401) {
    return "The service asks for an API key, or does not know this one. Enter it under “API key”.";
  }
  const message = body?.error?.message ?? body?.message;
  if (typeof message === "string" && message) {
    return message;
  }
  return `The service answered with status ${status} when asked for its models.`;
}
