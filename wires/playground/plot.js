// A small picture of one turn: tokens over time as a line, seconds of audio in hand as an area, each on its own scale.

import { inTokens } from "./timings.js";

const MOST_POINTS = 600;
const SHORTEST_SECONDS = 4;
const MARGIN = { top: 18, right: 6, bottom: 18, left: 6 };

export class Plot {
  #canvas;
  #points = [];
  #every = 1;
  #skipped = 0;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear() {
    this.#points = [];
    this.#every = 1;
    this.#skipped = 0;
    this.draw();
  }

  /** One sample: seconds since the turn began, tokens so far, seconds of audio not yet heard. */
  add(seconds, tokens, audio) {
    this.#skipped += 1;
    if (this.#skipped < this.#every) {
      return;
    }
    this.#skipped = 0;
    this.#points.push({ seconds, tokens, audio });
    if (this.#points.length > MOST_POINTS) {
      // A long turn keeps its whole shape at half the detail.
      this.#points = this.#points.filter((_, index) => index % 2 === 0);
      this.#every *= 2;
    }
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = window.devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    const pen = this.#canvas.getContext("2d");
    pen.scale(scale, scale);
    const colours = this.#colours();
    const area = { left: MARGIN.left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom };
    const most = this.#most();
    this.#grid(pen, area, most, colours);
    if (this.#points.length > 1) {
      this.#series(pen, area, most, colours);
    }
    this.#describe(most);
  }

  #most() {
    const last = this.#points.at(-1);
    return {
      seconds: Math.max(SHORTEST_SECONDS, last?.seconds ?? 0),
      tokens: Math.max(1, last?.tokens ?? 0),
      audio: this.#points.reduce((most, point) => Math.max(most, point.audio), 0),
    };
  }

  #grid(pen, area, most, colours) {
    pen.strokeStyle = colours.grid;
    pen.lineWidth = 1;
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(area.bottom - part * (area.bottom - area.top)) + 0.5;
      pen.beginPath();
      pen.moveTo(area.left, y);
      pen.lineTo(area.right, y);
      pen.stroke();
    }
    pen.font = colours.font;
    pen.fillStyle = colours.muted;
    write(pen, "0 s", area.left, area.bottom + 14, "left");
    write(pen, `${most.seconds.toFixed(1)} s`, area.right, area.bottom + 14, "right");
    if (this.#points.at(-1)?.tokens) {
      pen.fillStyle = colours.tokens;
      write(pen, inTokens(most.tokens), area.left, area.top - 6, "left");
    }
    if (most.audio > 0) {
      pen.fillStyle = colours.audio;
      write(pen, `${most.audio.toFixed(1)} s buffered`, area.right, area.top - 6, "right");
    }
  }

  #series(pen, area, most, colours) {
    const x = (point) => area.left + (point.seconds / most.seconds) * (area.right - area.left);
    const y = (part) => area.bottom - part * (area.bottom - area.top);
    if (most.audio > 0) {
      pen.beginPath();
      this.#points.forEach((point) => pen.lineTo(x(point), y(point.audio / most.audio)));
      outline(pen, colours.audio);
      pen.lineTo(x(this.#points.at(-1)), area.bottom);
      pen.lineTo(x(this.#points[0]), area.bottom);
      pen.globalAlpha = 0.18;
      pen.fillStyle = colours.audio;
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.beginPath();
    this.#points.forEach((point) => pen.lineTo(x(point), y(point.tokens / most.tokens)));
    outline(pen, colours.tokens);
  }

  #colours() {
    const style = getComputedStyle(this.#canvas);
    const named = (name) => style.getPropertyValue(name).trim();
    return {
      grid: named("--grid"),
      muted: named("--muted"),
      tokens: named("--accent"),
      audio: named("--audio"),
      font: `12px ${style.fontFamily}`,
    };
  }

  #describe(most) {
    const last = this.#points.at(-1);
    const description = last
      ? `${inTokens(last.tokens)} in ${last.seconds.toFixed(1)} seconds; at most ${most.audio.toFixed(1)} seconds of audio buffered.`
      : "No turn has run yet.";
    this.#canvas.setAttribute("aria-label", description);
  }
}

function write(pen, text, x, y, align) {
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

function outline(pen, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.stroke();
}
