// Plays pcm_s16le frames as they arrive, without a gap between them, and falls silent at once.
// Scheduled buffers instead of an AudioWorklet: a worklet needs https, and a new service is first met over plain http.

const LIKELY_RATE = 24_000;
// What is kept in hand before the first sample sounds, so that a late frame is not heard as a hole.
const LEAD_SECONDS = 0.06;
// Long enough not to click, too short to be heard as a fade.
const FADE_SECONDS = 0.01;

export class Player {
  #context = null;
  #bus = null;
  #analyser = null;
  #window = null;
  #format = { rate: LIKELY_RATE, channels: 1 };
  #sources = new Set();
  #endFrame = 0; // counted in frames, not seconds: sums of fractions would drift off the sample grid
  #scheduledFrames = 0;

  /** Call inside a key press or click: browsers let no page sound before one. */
  unlock() {
    this.#prepare(this.#format.rate);
    this.#context.resume();
  }

  /** The frames that follow have this format. Throws a sentence when they cannot be played. */
  begin({ encoding, rate, channels }) {
    if (encoding !== "pcm_s16le") {
      throw new Error(`The service sent ${encoding} audio, and this page asked for plain PCM.`);
    }
    this.#format = { rate, channels };
    this.#prepare(rate);
    this.#scheduledFrames = 0;
  }

  push(data) {
    const { rate, channels } = this.#format;
    const frames = Math.floor(data.byteLength / 2 / channels);
    if (!frames) {
      return;
    }
    const source = this.#context.createBufferSource();
    source.buffer = this.#bufferOf(new Int16Array(data, 0, frames * channels), frames);
    source.connect(this.#bus);
    source.onended = () => this.#sources.delete(source);
    this.#sources.add(source);
    const now = this.#context.currentTime;
    if (this.#endFrame / rate < now) {
      this.#endFrame = Math.ceil((now + LEAD_SECONDS) * rate);
    }
    source.start(this.#endFrame / rate);
    this.#endFrame += frames;
    this.#scheduledFrames += frames;
  }

  /** Silence now, and forget what is buffered. */
  stop() {
    if (!this.#context) {
      return;
    }
    const now = this.#context.currentTime;
    this.#bus.gain.setValueAtTime(1, now);
    this.#bus.gain.linearRampToValueAtTime(0, now + FADE_SECONDS);
    for (const source of this.#sources) {
      source.stop(now + FADE_SECONDS);
    }
    this.#sources.clear();
    this.#endFrame = 0;
    this.#scheduledFrames = 0;
    this.#openBus();
  }

  /** Seconds that are scheduled and not yet heard. */
  get buffered() {
    return this.#context ? Math.max(0, this.#endFrame / this.#format.rate - this.#context.currentTime) : 0;
  }

  /** Seconds that were heard since the last `begin` or `stop`. */
  get heard() {
    return Math.max(0, this.scheduled - this.buffered);
  }

  /** Seconds scheduled since the last `begin` or `stop`. */
  get scheduled() {
    return this.#scheduledFrames / this.#format.rate;
  }

  /** Largest sample of the last few milliseconds at the output, 0 to 1. */
  get level() {
    if (!this.#analyser) {
      return 0;
    }
    this.#analyser.getFloatTimeDomainData(this.#window);
    return this.#window.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
  }

  /** True while the browser holds sound back until the next key press or click. */
  get isHeldBack() {
    return this.#context?.state === "suspended";
  }

  #prepare(rate) {
    if (this.#context?.sampleRate === rate) {
      return;
    }
    this.#context?.close();
    this.#sources.clear();
    this.#endFrame = 0;
    // A context at the audio's own rate: the browser then resamples the whole output, not each frame for itself, and no
    // seam can be heard between frames.
    this.#context = new AudioContext({ sampleRate: rate, latencyHint: "interactive" });
    this.#analyser = new AnalyserNode(this.#context, { fftSize: 512 });
    this.#window = new Float32Array(this.#analyser.fftSize);
    this.#analyser.connect(this.#context.destination);
    this.#openBus();
  }

  #openBus() {
    this.#bus = new GainNode(this.#context);
    this.#bus.connect(this.#analyser);
  }

  #bufferOf(samples, frames) {
    const { rate, channels } = this.#format;
    const buffer = this.#context.createBuffer(channels, frames, rate);
    for (let channel = 0; channel < channels; channel += 1) {
      const out = buffer.getChannelData(channel);
      for (let frame = 0; frame < frames; frame += 1) {
        out[frame] = samples[frame * channels + channel] / 32_768;
      }
    }
    return buffer;
  }
}
