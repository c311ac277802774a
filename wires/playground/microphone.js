// The microphone as frames of PCM. Whatever keeps it from the page is told as a sentence to act on.

// The service takes no higher rate; most devices have this one or a lower one.
const HIGHEST_RATE = 48_000;
const REFUSALS = {
  NotAllowedError: "The microphone is blocked for this page. Allow it in the browser's settings for this site, then try again.",
  NotFoundError: "No microphone was found. Connect one, then try again.",
  NotReadableError: "The microphone cannot be read; another program may hold it.",
};
const INSECURE = "Browsers lend the microphone only to pages from https or localhost. Open this page from one of them.";

export class MicrophoneRefusal extends Error {}

/** `on.frame(ArrayBuffer, loudness)` every 20 ms while it is open; `on.lost(sentence)` when the device goes away. */
export class Microphone {
  #on;
  #context = null;
  #stream = null;

  constructor(on) {
    this.#on = on;
  }

  /** Samples per second of the frames. */
  get rate() {
    return this.#context?.sampleRate ?? 0;
  }

  /** Ask for the microphone. Throws MicrophoneRefusal with a sentence to show. */
  async open() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new MicrophoneRefusal(INSECURE);
    }
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({
        // Without the first, the page would hear its own voice and interrupt itself.
        audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
      });
      await this.#listen();
    } catch (problem) {
      this.close();
      throw new MicrophoneRefusal(REFUSALS[problem.name] ?? `The microphone cannot be used (${problem.message}).`);
    }
  }

  close() {
    for (const track of this.#stream?.getTracks() ?? []) {
      track.onended = null;
      track.stop();
    }
    this.#stream = null;
    this.#context?.close();
    this.#context = null;
  }

  async #listen() {
    // The device's own rate, which is told to the service: not every browser resamples a microphone.
    this.#context = new AudioContext({ latencyHint: "interactive" });
    if (this.#context.sampleRate > HIGHEST_RATE) {
      this.#context.close();
      this.#context = new AudioContext({ latencyHint: "interactive", sampleRate: HIGHEST_RATE });
    }
    await this.#context.audioWorklet.addModule(new URL("capture.js", import.meta.url).href);
    const capture = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    capture.port.onmessage = ({ data }) => this.#stream && this.#on.frame(data.pcm, data.loudness);
    new MediaStreamAudioSourceNode(this.#context, { mediaStream: this.#stream }).connect(capture);
    this.#stream.getAudioTracks()[0].onended = () => {
      this.close();
      this.#on.lost("The microphone was disconnected.");
    };
    await this.#context.resume();
  }
}
