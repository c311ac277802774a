// Runs on the audio thread: the microphone's samples as 16-bit frames of 20 ms, each with its loudness.

const FRAME_SECONDS = 0.02;

class Capture extends AudioWorkletProcessor {
  #frame = new Int16Array(Math.round(sampleRate * FRAME_SECONDS));
  #filled = 0;
  #power = 0;

  process([input]) {
    for (const sample of input[0] ?? []) {
      const bounded = Math.max(-1, Math.min(1, sample));
      this.#power += bounded * bounded;
      this.#frame[this.#filled] = bounded * 32_767;
      this.#filled += 1;
      if (this.#filled === this.#frame.length) {
        this.#send();
      }
    }
    return true;
  }

  #send() {
    const loudness = Math.sqrt(this.#power / this.#frame.length);
    const pcm = this.#frame.buffer;
    this.#frame = new Int16Array(this.#frame.length);
    this.#filled = 0;
    this.#power = 0;
    this.port.postMessage({ pcm, loudness }, [pcm]);
  }
}

registerProcessor("capture", Capture);
