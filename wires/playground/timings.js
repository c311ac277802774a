// The clock of one turn as this browser sees it, beside what the service measured, and the numbers on the page.

export class Stopwatch {
  #started = performance.now();
  #firstText = null;
  #lastText = null;
  #firstAudio = null;
  #ended = null;
  pieces = 0;
  usage = null;
  service = {};

  get seconds() {
    return (performance.now() - this.#started) / 1000;
  }

  text() {
    this.#lastText = performance.now();
    this.#firstText ??= this.#lastText;
    this.pieces += 1;
  }

  audio() {
    this.#firstAudio ??= performance.now();
  }

  end({ usage, timings } = {}) {
    this.#ended ??= performance.now();
    this.usage = usage ?? this.usage;
    this.service = timings ?? this.service;
  }

  get ttft() {
    return this.#since(this.#firstText);
  }

  get ttfa() {
    return this.#since(this.#firstAudio);
  }

  get total() {
    return this.#since(this.#ended);
  }

  /** The provider's count once it is known; until then every text message counts as one token. */
  get tokens() {
    return this.usage?.output_tokens || this.pieces;
  }

  /** Tokens per second after the first one, null before there are two. */
  get rate() {
    const milliseconds = this.#lastText - this.#firstText;
    return this.tokens > 1 && milliseconds > 0 ? ((this.tokens - 1) * 1000) / milliseconds : null;
  }

  #since(moment) {
    return moment === null ? null : moment - this.#started;
  }
}

const field = (id) => document.getElementById(id);

/** Write a stopwatch's numbers into the page. */
export function showTimings(watch) {
  duration(field("ttft"), watch.ttft);
  duration(field("ttfa"), watch.ttfa);
  duration(field("total"), watch.total);
  quantity(field("rate"), watch.rate === null ? "–" : watch.rate.toFixed(watch.rate < 100 ? 1 : 0));
  quantity(field("ttft-service"), measured(watch.service.ttft_ms));
  quantity(field("ttfa-service"), measured(watch.service.ttfa_ms));
  quantity(field("total-service"), measured(watch.service.total_ms));
  quantity(field("rate-note"), watch.tokens ? inTokens(watch.tokens) : "");
}

/** One line about a turn, for the conversation. */
export function summaryOf(watch) {
  const parts = [];
  if (watch.ttft !== null) {
    parts.push(`First token ${spell(watch.ttft)}`);
  }
  if (watch.ttfa !== null) {
    parts.push(`first audio ${spell(watch.ttfa)}`);
  }
  if (watch.rate !== null) {
    parts.push(`${watch.rate.toFixed(1)} tokens/s`);
  }
  return parts.join(" · ");
}

function spell(milliseconds) {
  const [number, unit] = split(milliseconds);
  return `${number} ${unit}`;
}

function split(milliseconds) {
  return milliseconds < 1000 ? [Math.round(milliseconds), "ms"] : [(milliseconds / 1000).toFixed(2), "s"];
}

function measured(milliseconds) {
  return typeof milliseconds === "number" ? `service ${spell(milliseconds)}` : "";
}

function duration(element, milliseconds) {
  if (milliseconds === null) {
    quantity(element, "–");
    return;
  }
  const [number, unit] = split(milliseconds);
  quantity(element, `${number} `, unit);
}

function quantity(element, text, unit = "") {
  if (element.textContent === text + unit) {
    return;
  }
  element.textContent = text;
  if (unit) {
    const small = document.createElement("small");
    small.textContent = unit;
    element.append(small);
  }
}

/** "1 token", "2 tokens". */
export function inTokens(count) {
  return `${count} ${count === 1 ? "token" : "tokens"}`;
}
