// Finds the turns in what the microphone hears, by loudness over the room's noise. Frames are 20 ms long.

const QUIETEST_SPEECH = 0.012;
const OVER_NOISE = 3.5;
// What is left of the page's own voice after echo cancellation must not count as the user's.
const OVER_NOISE_WHILE_SOUNDING = 6;
// Frames in a row that make a beginning: a click is shorter, and an answer must fall silent soon.
const BEGINNING = 3;
const PAUSE = 35;
// From before the beginning, so that no first consonant is lost.
const KEPT_BEFORE = 15;
const LONGEST = 5_500;

export const SILENCE = "silence";
export const BEGAN = "began";
export const GOES_ON = "goes on";
export const ENDED = "ended";

export class Ear {
  #noise = QUIETEST_SPEECH / OVER_NOISE;
  #loud = 0;
  #quiet = 0;
  #length = 0;
  #before = [];
  speaking = false;

  /** The next frame. Gives what happened and, in `frames`, what belongs to the turn from now on. */
  hear(pcm, loudness, sounding) {
    const threshold = Math.max(QUIETEST_SPEECH, this.#noise * (sounding ? OVER_NOISE_WHILE_SOUNDING : OVER_NOISE));
    return this.speaking ? this.#inSpeech(pcm, loudness, threshold) : this.#inSilence(pcm, loudness, threshold);
  }

  /** What was heard so far belongs to no turn any more. */
  forget() {
    this.speaking = false;
    this.#loud = this.#quiet = this.#length = 0;
    this.#before = [];
  }

  #inSilence(pcm, loudness, threshold) {
    this.#before = [...this.#before.slice(-KEPT_BEFORE), pcm];
    this.#loud = loudness >= threshold ? this.#loud + 1 : 0;
    if (this.#loud < BEGINNING) {
      // Quick to learn that it is quieter, slow to learn that it is louder.
      this.#noise += (loudness - this.#noise) * (loudness < this.#noise ? 0.2 : 0.01);
      return { event: SILENCE, frames: [] };
    }
    const frames = this.#before;
    this.forget();
    this.speaking = true;
    this.#length = frames.length;
    return { event: BEGAN, frames };
  }

  #inSpeech(pcm, loudness, threshold) {
    this.#length += 1;
    this.#quiet = loudness < threshold / 2 ? this.#quiet + 1 : 0;
    if (this.#quiet < PAUSE && this.#length < LONGEST) {
      return { event: GOES_ON, frames: [pcm] };
    }
    this.forget();
    return { event: ENDED, frames: [pcm] };
  }
}
