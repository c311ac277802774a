// The turns on the page. Whatever comes from a model or a service enters the document as text, never as markup.

const ENDINGS = {
  length: "The answer reached its length limit.",
  content_filter: "The provider's content filter ended this answer.",
  tool_calls: "The model asks for a tool; this page runs none.",
  cancelled: "Stopped.",
};

/** One exchange: what was said, and what comes back. States: waiting, streaming, finished, cancelled, failed. */
export class Turn {
  #from;
  #said = document.createTextNode("");
  #answer = document.createTextNode("");
  #reasoning = null;
  #tools = new Map();
  #body;

  constructor({ id, kind, prompt, from }) {
    this.id = id;
    this.kind = kind;
    this.prompt = prompt;
    this.element = element("article", "turn");
    this.element.dataset.kind = kind;
    this.element.dataset.id = id;
    // While it is busy a screen reader waits, and then reads the answer once instead of token by token.
    this.element.setAttribute("aria-busy", "true");
    this.#from = element("p", "from", from);
    this.#body = element("p", "answer");
    this.#body.dir = "auto";
    this.#body.append(this.#answer);
    const said = element("p", "said");
    said.dir = "auto";
    said.append(this.#said);
    this.#said.data = prompt || "…";
    this.element.append(said, this.#from, this.#body);
    this.#is("waiting");
  }

  get text() {
    return this.#answer.data;
  }

  get isOver() {
    return ["finished", "cancelled", "failed"].includes(this.element.dataset.state);
  }

  /** What the service understood of a spoken prompt. */
  hear(text) {
    this.prompt = text;
    this.#said.data = text || "…";
  }

  start(model) {
    if (model) {
      this.#from.textContent = model;
    }
    this.#is("streaming");
  }

  addText(text) {
    this.#answer.appendData(text);
  }

  addReasoning(text) {
    if (!this.#reasoning) {
      this.#reasoning = document.createTextNode("");
      const details = element("details", "reasoning");
      const paragraph = element("p");
      paragraph.append(this.#reasoning);
      details.append(element("summary", "", "Reasoning"), paragraph);
      this.#body.before(details);
    }
    this.#reasoning.appendData(text);
  }

  addToolCall({ index = 0, name, arguments: piece }) {
    let call = this.#tools.get(index);
    if (!call) {
      call = document.createTextNode(`${name ?? "tool"} `);
      const line = element("p", "tool");
      line.append(call);
      this.element.append(line);
      this.#tools.set(index, call);
    }
    call.appendData(piece ?? "");
  }

  addNote(note) {
    this.element.append(element("p", "note", note));
  }

  finish(reason, summary) {
    this.#end(reason === "cancelled" ? "cancelled" : "finished", [ENDINGS[reason], summary].filter(Boolean).join(" "));
  }

  fail(sentence, code) {
    const line = element("p", "error", sentence);
    if (code) {
      line.append(" ", element("code", "", code));
    }
    this.element.append(line);
    this.#end("failed", "");
  }

  #end(state, note) {
    if (note) {
      this.addNote(note);
    }
    this.element.setAttribute("aria-busy", "false");
    this.#is(state);
  }

  #is(state) {
    this.element.dataset.state = state;
  }
}

/** The scrolling log. It follows the newest line until the reader scrolls up. */
export class Log {
  #list;
  #welcome;
  #follows = true;

  constructor(list) {
    this.#list = list;
    this.#welcome = list.firstElementChild;
    list.addEventListener("scroll", () => {
      this.#follows = list.scrollHeight - list.scrollTop - list.clientHeight < 48;
    });
    new ResizeObserver(() => this.follow()).observe(list);
  }

  add(turn) {
    this.#welcome.hidden = true;
    this.#list.append(turn.element);
    this.#follows = true;
    this.follow();
  }

  clear() {
    this.#list.replaceChildren(this.#welcome);
    this.#welcome.hidden = false;
  }

  follow() {
    if (this.#follows && this.#welcome.hidden) {
      this.#list.scrollTop = this.#list.scrollHeight;
    }
  }
}

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) {
    made.className = className;
  }
  made.textContent = text;
  return made;
}
