// The model and the voice that the reader picks, and whether the service can speak and listen at all.

import { listModels } from "./models.js";

const $ = (id) => document.getElementById(id);

export class Pickers {
  #known = false;

  /** Ask the service once; throws ServiceRefusal with a sentence to show. */
  async load(key) {
    if (this.#known) {
      return;
    }
    this.#known = true;
    try {
      const { chat, speech, transcription } = await listModels(key);
      fill($("model"), chat, "default", "No chat model is configured");
      fill($("voice"), speech, "voice", "No voice is configured");
      $("speak").disabled = speech.length === 0;
      $("speak").checked = speech.length > 0;
      $("talk").disabled = transcription.length === 0;
    } catch (refusal) {
      this.#known = false;
      throw refusal;
    }
  }

  /** Ask anew the next time: another key may see other models. */
  forget() {
    this.#known = false;
  }

  /** There is no service to ask. */
  giveUp() {
    if (!this.#known) {
      fill($("model"), [], "", "Not known yet");
      fill($("voice"), [], "", "Not known yet");
    }
  }

  /** What a turn is asked with; undefined leaves it to the service. */
  get chosen() {
    const value = (select) => (select.disabled ? undefined : select.value);
    return { model: value($("model")), voice: value($("voice")), speak: $("speak").checked };
  }
}

function fill(select, ids, preferred, none) {
  const options = ids.length ? ids : [none];
  select.replaceChildren(...options.map((id) => new Option(id)));
  select.value = ids.includes(preferred) ? preferred : options[0];
  select.disabled = ids.length === 0;
}
