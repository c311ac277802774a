// Talking with the page: the microphone's turns go to the session, and speaking silences an answer.

import { BEGAN, ENDED, Ear } from "./ear.js";
import { Microphone, MicrophoneRefusal } from "./microphone.js";

const HEARD = "hearing";
const LISTENING = "listening";
const ASKING = "asking";
const OFF = "off";

/**
 * `on.state(name, level)` with off | asking | listening | hearing and the loudness, 0 to 1; `on.problem(sentence)`;
 * `on.began(rate)` when the user begins to speak; `on.audio(ArrayBuffer)`; `on.ended()` when the user has spoken;
 * `on.sounding()` says whether an answer is being heard.
 */
export class Talk {
  #on;
  #ear = new Ear();
  #microphone;
  #state = OFF;

  constructor(on) {
    this.#on = on;
    this.#microphone = new Microphone({
      frame: (pcm, loudness) => this.#hear(pcm, loudness),
      lost: (sentence) => this.#end(sentence),
    });
  }

  get isOn() {
    return this.#state !== OFF;
  }

  async toggle() {
    if (this.#state === ASKING) {
      return;
    }
    if (this.isOn) {
      this.#end("");
      return;
    }
    this.#tell(ASKING);
    try {
      await this.#microphone.open();
    } catch (refusal) {
      this.#tell(OFF);
      if (!(refusal instanceof MicrophoneRefusal)) {
        throw refusal;
      }
      this.#on.problem(refusal.message);
      return;
    }
    this.#tell(LISTENING);
  }

  /** What is being said is for nobody: the socket that took it is gone. */
  forget() {
    this.#ear.forget();
    if (this.#state === HEARD) {
      this.#tell(LISTENING);
    }
  }

  #hear(pcm, loudness) {
    const { event, frames } = this.#ear.hear(pcm, loudness, this.#on.sounding());
    if (event === BEGAN) {
      this.#on.began(this.#microphone.rate);
    }
    for (const frame of frames) {
      this.#on.audio(frame);
    }
    if (event === ENDED) {
      this.#on.ended();
    }
    this.#tell(this.#ear.speaking ? HEARD : LISTENING, loudness);
  }

  /** Switched off while speaking, what was said is a turn all the same. */
  #end(sentence) {
    const speaking = this.#ear.speaking;
    this.#microphone.close();
    this.#ear.forget();
    this.#tell(OFF);
    if (speaking) {
      this.#on.ended();
    }
    if (sentence) {
      this.#on.problem(sentence);
    }
  }

  #tell(state, level = 0) {
    this.#state = state;
    this.#on.state(state, level);
  }
}
