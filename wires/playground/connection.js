// The /ws socket in its JSON form: opens it, keeps it alive, opens it again after a loss, and sorts what arrives.
// A turn that runs when the socket is lost is lost with it; the caller decides what to say about that.

const PROTOCOL = "polywire.v1";
const KEY_PREFIX = "openai-insecure-api-key.";
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;
// A browser cannot send protocol pings, and proxies cut a silent socket after about a minute.
const PING_MS = 20_000;
const PONG_MS = 10_000;

// Close codes after which opening again would only meet the same refusal.
const FINAL = {
  1003: "The service could not work with a message of this page and closed the connection.",
  1007: "The service received text that is not valid UTF-8 and closed the connection.",
  1008: "The service refused the connection: check the API key and the address of this page.",
  1009: "The message was larger than the service accepts.",
  3000: "The service refused the API key.",
  3003: "The API key may not use this service.",
};
const PASSING = {
  1001: "The service is going away.",
  1011: "The service had a fault.",
  1012: "The service restarts.",
  1013: "The service is overloaded.",
};
const IDLE = 4408;

/**
 * `on.state({state, sentence})` with state connecting | open | waiting | idle | closed; `on.message(object)`;
 * `on.audio(ArrayBuffer)`; `on.lost(sentence)` when an open socket ends; `on.refused()` resolves to {sentence, final}
 * and says why a handshake failed, which the socket itself cannot know.
 */
export class Connection {
  #on;
  #key = "";
  #socket = null;
  #failures = 0;
  #retry = 0;
  #ping = 0;
  #pong = 0;

  constructor(on) {
    this.#on = on;
    window.addEventListener("online", () => this.wake());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.wake());
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Open a new socket, with `key` from now on; the old socket and what it remembers are dropped. */
  open(key = this.#key) {
    this.#key = key;
    this.#failures = 0;
    if (this.#socket) {
      this.#drop();
      this.#on.lost("The connection was opened anew.");
    }
    this.#connect();
  }

  /** Connect now if the socket waits or slept; nothing otherwise. */
  wake() {
    if (this.#retry || (!this.#socket && this.#state === "idle")) {
      this.#connect();
    }
  }

  /** Send one message; false when there is no open socket. */
  send(message) {
    if (!this.isOpen) {
      return false;
    }
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** Send one frame of the microphone; without an open socket it is lost. */
  sendAudio(pcm) {
    if (this.isOpen) {
      this.#socket.send(pcm);
    }
  }

  #state = "connecting";

  #tell(state, sentence) {
    this.#state = state;
    this.#on.state({ state, sentence });
  }

  #connect() {
    clearTimeout(this.#retry);
    this.#retry = 0;
    this.#tell("connecting", "Connecting…");
    const address = new URL("ws", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const protocols = this.#key ? [PROTOCOL, KEY_PREFIX + this.#key] : [PROTOCOL];
    let socket;
    try {
      socket = new WebSocket(address, protocols);
    } catch {
      this.#tell("closed", "This API key has characters that a browser cannot send.");
      return;
    }
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.#failures = 0;
      this.#ping = setInterval(() => this.#keepAlive(), PING_MS);
      this.#tell("open", "Connected");
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.#closed(event, opened);
    this.#socket = socket;
  }

  #receive(data) {
    clearTimeout(this.#pong);
    if (data instanceof ArrayBuffer) {
      this.#on.audio(data);
      return;
    }
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      message = null;
    }
    if (typeof message?.type === "string") {
      this.#on.message(message);
    } else {
      this.#on.message({ type: "error", message: "The service sent a message that this page cannot read." });
    }
  }

  #keepAlive() {
    // A hidden page lets its socket fall asleep, so that forgotten tabs hold no place in the service.
    if (document.visibilityState === "visible" && this.send({ type: "ping" })) {
      clearTimeout(this.#pong);
      this.#pong = setTimeout(() => this.#silent(), PONG_MS);
    }
  }

  #silent() {
    // close() on a dead network waits for an answer that never comes: end it ourselves.
    this.#drop();
    this.#on.lost("The service stopped answering.");
    this.#again("The service stopped answering.");
  }

  async #closed(event, opened) {
    this.#drop();
    if (opened) {
      this.#on.lost(FINAL[event.code] ?? PASSING[event.code] ?? "The connection was lost.");
    }
    if (event.code === IDLE) {
      this.#tell("idle", "Asleep");
    } else if (event.code in FINAL) {
      this.#tell("closed", event.reason || FINAL[event.code]);
    } else if (opened) {
      this.#again(PASSING[event.code] ?? "The connection was lost.");
    } else {
      await this.#explainRefusal();
    }
  }

  async #explainRefusal() {
    const { sentence, final } = await this.#on.refused();
    if (this.#socket) {
      return; // opened anew in the meantime
    }
    if (final) {
      this.#tell("closed", sentence);
    } else {
      this.#again(sentence);
    }
  }

  #again(sentence) {
    const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#failures);
    this.#failures += 1;
    // Half of the wait is chance, so that many pages do not come back in the same moment.
    this.#retry = setTimeout(() => this.#connect(), longest * (0.5 + Math.random() / 2));
    this.#tell("waiting", sentence);
  }

  #drop() {
    clearTimeout(this.#retry);
    clearInterval(this.#ping);
    clearTimeout(this.#pong);
    this.#retry = 0;
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }
}
