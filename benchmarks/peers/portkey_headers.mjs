// Portkey writes into the headers of the answers that it fetches, which Node 20 refuses: one copy for each request.
const fetched = globalThis.fetch;
globalThis.fetch = async (...asked) => {
  const { body, status, statusText, headers } = await fetched(...asked);
  return new Response(body, { status, statusText, headers: new Headers(headers) });
};
