// Turns over the socket: one runs at a time, a new one interrupts it, and the history outlives a lost socket.

import { Turn } from "./conversation.js";
import { Stopwatch, summaryOf } from "./timings.js";

/**
 * `on.turn(turn)` when a turn begins, `on.over(turn)` when it ends, `on.progress()` when anything of it arrived,
 * `on.problem(sentence)` for what concerns no turn. `current` is the newest turn or null.
 */
export class Session {
  current = null;
  #connection;
  #player;
  #on;
  #count = 0;
  #unsent = null; // waits for the socket
  #open = new Map(); // sent, and not yet ended by the service
  #sounding = null; // the turn that binary frames belong to: they carry no id
  #history = [];
  #serviceHasHistory = true;

  constructor(connection, player, on) {
    this.#connection = connection;
    this.#player = player;
    this.#on = on;
  }

  /** Begin a turn of kind chat or speak; whatever runs or sounds is cut off. */
  begin({ kind, text, model, voice, speak }) {
    const before = this.current;
    const cut = this.#cutOff();
    if (cut.heard_ms !== undefined) {
      this.#connection.send({ type: "cancel", id: before.id, ...cut });
    }
    const turn = this.#make({ kind, prompt: text, model, voice, speak });
    if (!this.#send(turn)) {
      this.#unsent = turn;
      this.#connection.wake();
    }
  }

  /** The user begins to speak, which silences whatever runs or sounds; frames of `rate` samples per second follow. */
  listen(rate) {
    this.stop();
    this.#connection.send({ type: "configure", input_rate: rate });
  }

  /** The user has spoken: begin a turn with the frames that were sent. */
  commit({ model, voice, speak }) {
    const turn = this.#make({ kind: "chat", prompt: "", model, voice, speak });
    turn.isSpoken = true;
    if (!this.#send(turn)) {
      this.#fail(turn, "The connection was lost while you were speaking. Say it again.");
      this.#connection.wake();
    }
  }

  /** Silence and no further word, before the service even knows; it is told how much of the speech was heard. */
  stop() {
    const turn = this.current;
    const running = turn && this.#open.has(turn.id) && !turn.isOver;
    const cut = this.#cutOff();
    if (turn && (running || cut.heard_ms !== undefined)) {
      this.#connection.send({ type: "cancel", id: turn.id, ...cut });
    }
  }

  /** Forget everything said; the caller opens a new socket, whose history is empty. */
  forget() {
    this.#cutOff();
    this.#open.clear();
    this.#history = [];
    this.current = null;
  }

  connected() {
    this.#serviceHasHistory = this.#history.length === 0;
    const turn = this.#unsent;
    if (turn) {
      this.#unsent = null;
      this.#send(turn);
    }
  }

  /** The socket ended: its turns end with it. */
  lost(sentence) {
    for (const turn of this.#open.values()) {
      this.#fail(turn, `${sentence} The answer is incomplete.`);
    }
    this.#open.clear();
    this.#sounding = null;
  }

  /** No socket will come: a turn that waits for one has failed. */
  refused(sentence) {
    if (this.#unsent) {
      this.#fail(this.#unsent, sentence);
      this.#unsent = null;
    }
  }

  receive(message) {
    const turn = this.#open.get(message.id);
    if (message.type === "error") {
      this.#receiveError(turn, message);
    } else if (message.type === "finished") {
      this.#receiveFinished(turn, message);
    } else if (turn && !turn.isOver) {
      this.#receiveDelta(turn, message);
    }
    this.#on.progress();
  }

  receiveAudio(data) {
    const turn = this.#sounding;
    if (!turn || turn.isOver) {
      return; // frames of a stopped turn that were already on their way
    }
    turn.watch.audio();
    this.#player.push(data);
    this.#on.progress();
  }

  #make({ kind, prompt, model, voice, speak }) {
    this.#count += 1;
    const turn = new Turn({ id: `turn-${this.#count}`, kind, prompt, from: kind === "chat" ? model : voice });
    turn.watch = new Stopwatch();
    turn.nextSeq = 0;
    turn.fields = kind === "chat" ? { model, speak } : {};
    if (kind === "speak" || speak) {
      Object.assign(turn.fields, { voice, format: "pcm" });
    }
    this.current = turn;
    this.#on.turn(turn);
    return turn;
  }

  #send(turn) {
    const content = turn.isSpoken ? {} : { text: turn.prompt };
    if (turn.kind === "chat" && !turn.isSpoken && !this.#serviceHasHistory) {
      // A new socket knows nothing of what was said on the old one.
      delete content.text;
      content.messages = [...this.#history, { role: "user", content: turn.prompt }];
    }
    const interrupt = this.#open.size > 0 ? { interrupt: true } : {};
    const type = turn.isSpoken ? "audio.commit" : turn.kind;
    const sent = this.#connection.send({ type, id: turn.id, ...content, ...turn.fields, ...interrupt });
    if (sent) {
      this.#open.set(turn.id, turn);
    }
    return sent;
  }

  #receiveDelta(turn, message) {
    this.#check(turn, message);
    if (message.type === "transcript") {
      turn.hear(message.text);
    } else if (message.type === "started") {
      turn.start(message.model);
    } else if (message.type === "text") {
      turn.watch.text();
      turn.addText(message.text);
    } else if (message.type === "reasoning") {
      turn.addReasoning(message.text);
    } else if (message.type === "tool_call") {
      turn.addToolCall(message);
    } else if (message.type === "audio") {
      this.#receiveFormat(turn, message.format);
    } else if (message.type === "warning" && message.message) {
      turn.addNote(message.message);
    }
  }

  #receiveFormat(turn, format) {
    try {
      this.#player.begin(format);
      this.#sounding = turn;
    } catch (problem) {
      this.#sounding = null;
      turn.addNote(problem.message);
    }
  }

  #receiveFinished(turn, message) {
    if (!turn) {
      return;
    }
    this.#open.delete(turn.id);
    turn.watch.end(message);
    if (!turn.isOver) {
      this.#check(turn, message);
      turn.finish(message.reason, summaryOf(turn.watch));
      this.#remember(turn);
      this.#on.over(turn);
    }
  }

  #receiveError(turn, { id, message, code, retryable }) {
    const sentence = (message || "The service reported an error.") + (retryable ? " Trying again may help." : "");
    // An error without an id, before the turn has started, can only mean that the service could not read our message.
    const meant = turn ?? (id ? undefined : [...this.#open.values()].find((open) => open.nextSeq === 0));
    if (!meant) {
      this.#on.problem(sentence);
      return;
    }
    this.#open.delete(meant.id);
    this.#fail(meant, sentence, code);
  }

  #fail(turn, sentence, code) {
    if (turn.isOver) {
      return;
    }
    turn.watch.end();
    turn.fail(sentence, code);
    this.#remember(turn);
    this.#on.over(turn);
  }

  /** End what runs or sounds on this side. Gives `heard_ms` when it was speech that is cut short. */
  #cutOff() {
    const sounds = this.#player.buffered > 0;
    const heard = Math.round(this.#player.heard * 1000);
    this.#player.stop();
    this.#unsent = null;
    const turn = this.current;
    if (turn && !turn.isOver) {
      turn.watch.end();
      turn.finish("cancelled", summaryOf(turn.watch));
      this.#remember(turn);
      this.#on.over(turn);
    }
    return sounds ? { heard_ms: heard } : {};
  }

  #remember(turn) {
    // A turn without an answer would leave two user messages in a row, which some providers refuse.
    if (turn.kind === "chat" && turn.text) {
      this.#history.push({ role: "user", content: turn.prompt }, { role: "assistant", content: turn.text });
    }
  }

  #check(turn, { seq }) {
    if (Number.isInteger(seq)) {
      if (seq !== turn.nextSeq) {
        turn.addNote("A part of this answer was lost on the way.");
      }
      turn.nextSeq = seq + 1;
    }
  }
}
