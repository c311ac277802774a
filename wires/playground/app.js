// Puts the page together: controls in, turns out. The `data-*` of <body> say what the page is doing.

import { Access } from "./access.js";
import { Connection } from "./connection.js";
import { Log } from "./conversation.js";
import { ServiceRefusal, listModels } from "./models.js";
import { Pickers } from "./pickers.js";
import { Player } from "./player.js";
import { Plot } from "./plot.js";
import { Session } from "./session.js";
import { Talk } from "./talk.js";
import { showTimings } from "./timings.js";

const CALM_TICK_MS = 250;
const STATE_WORDS = { connecting: "Connecting…", open: "Connected", waiting: "Retrying…", idle: "Asleep", closed: "Offline" };

const $ = (id) => document.getElementById(id);
const state = document.body.dataset;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const access = new Access();
const player = new Player();
const plot = new Plot($("plot"));
const log = new Log($("log"));
const connection = new Connection({
  state: showConnection,
  message: (message) => session.receive(message),
  audio: (data) => session.receiveAudio(data),
  lost: (sentence) => {
    talk.forget();
    session.lost(sentence);
  },
  refused: explainRefusal,
});
const session = new Session(connection, player, { turn: beginTurn, over: endTurn, progress: () => log.follow(), problem: notify });
const pickers = new Pickers();
const talk = new Talk({
  state: showTalk,
  problem: notify,
  sounding: () => player.buffered > 0,
  began: (rate) => session.listen(rate),
  audio: (pcm) => connection.sendAudio(pcm),
  ended: () => session.commit(pickers.chosen),
});

let ticking = false;

// Connection and models

function showConnection({ state: name, sentence }) {
  state.connection = name;
  $("connection-text").textContent = STATE_WORDS[name];
  if (name === "open") {
    notify("");
    session.connected();
    pickers.load(access.key).catch((refusal) => notify(refusal.message));
  } else if (name === "waiting") {
    notify(`${sentence} Trying again…`);
  } else if (name === "closed") {
    notify(sentence);
    session.refused(sentence);
    pickers.giveUp();
  }
}

async function explainRefusal() {
  try {
    await listModels(access.key);
  } catch (refusal) {
    if (refusal instanceof ServiceRefusal) {
      if (refusal.needsKey) {
        access.open();
      }
      return { sentence: refusal.message, final: refusal.needsKey };
    }
    throw refusal;
  }
  // The service answers, but not to this page's socket: a proxy in between, or an origin that it does not know.
  const sentence = `The service refused the socket. If a proxy stands before it, add ${location.origin} to “origins” in polywire.yaml.`;
  return { sentence, final: false };
}

function useKey() {
  const key = access.keep();
  pickers.forget();
  $("prompt").focus();
  connection.open(key);
}

// Turns

function submit() {
  const text = $("prompt").value.trim();
  if (!text) {
    $("prompt").focus();
    return;
  }
  player.unlock();
  notify("");
  $("prompt").value = "";
  session.begin({ kind: mode(), text, ...pickers.chosen });
}

function beginTurn(turn) {
  plot.clear();
  log.add(turn);
  state.turn = "running";
  announce("");
  tick();
}

function endTurn(turn) {
  log.follow();
  if (turn === session.current) {
    state.turn = "idle";
    announce({ finished: "Answer complete.", cancelled: "Stopped.", failed: "The answer failed." }[turn.element.dataset.state]);
  }
}

function stop() {
  const focused = document.activeElement === $("stop");
  session.stop();
  tick();
  if (focused) {
    $("prompt").focus(); // the button is disabled now and would drop the focus
  }
}

function startOver() {
  session.forget();
  log.clear();
  plot.clear();
  connection.open();
  $("prompt").focus();
}

function mode() {
  return document.querySelector("input[name=mode]:checked").value;
}

function showMode() {
  const speaks = mode() === "speak";
  $("speak-label").hidden = speaks;
  $("prompt-label").textContent = speaks ? "Text to speak" : "Message";
  $("prompt").placeholder = speaks ? "Text to speak…" : "Message…";
  $("send").textContent = speaks ? "Speak" : "Send";
}

// What moves while a turn runs or sounds

function tick() {
  const turn = session.current;
  const running = state.turn === "running";
  const buffered = player.buffered;
  showAudio(buffered);
  showActivity(running, buffered);
  if (turn) {
    showTimings(turn.watch);
    if (running || buffered > 0) {
      plot.add(turn.watch.seconds, turn.watch.tokens, buffered);
      plot.draw();
    }
  }
  if ((running || buffered > 0 || state.audioLevel !== "0.00") && !ticking) {
    ticking = true;
    const again = () => {
      ticking = false;
      tick();
    };
    if (calm.matches) {
      setTimeout(again, CALM_TICK_MS);
    } else {
      requestAnimationFrame(again);
    }
  }
}

function showAudio(buffered) {
  const held = buffered > 0 && player.isHeldBack;
  state.audio = held ? "held" : buffered > 0 ? "playing" : "silent";
  state.audioLevel = player.level.toFixed(2);
  state.audioSeconds = player.scheduled.toFixed(2);
  if (held) {
    notify("Your browser holds sound back. Press a key or click anywhere to hear it.");
  }
}

function showActivity(running, buffered) {
  const sounding = buffered > 0;
  $("stop").disabled = !(running || sounding);
  $("activity").hidden = !(running || sounding || talk.isOn);
  $("activity-text").textContent = activityOf(running, buffered);
  const level = state.talk === "hearing" ? state.talkLevel : state.audioLevel;
  document.querySelector(".bars").style.setProperty("--level", calm.matches ? "0.5" : level);
}

function activityOf(running, buffered) {
  if (state.talk === "hearing") {
    return "Hearing you…";
  }
  if (buffered > 0) {
    return `Speaking · ${buffered.toFixed(1)} s`;
  }
  if (running) {
    return session.current?.text ? "Writing…" : "Thinking…";
  }
  return state.talk === "asking" ? "Asking for the microphone…" : "Listening";
}

function showTalk(name, loudness) {
  // Speech is a tenth of full scale.
  state.talkLevel = Math.min(1, loudness * 8).toFixed(2);
  $("talk").style.setProperty("--level", calm.matches ? "0.5" : state.talkLevel);
  if (state.talk !== name) {
    announce({ listening: "Listening.", off: "The microphone is off." }[name] ?? "");
    state.talk = name;
    $("talk").setAttribute("aria-pressed", String(talk.isOn));
    $("talk").title = talk.isOn ? "Stop listening" : "Talk";
  }
  tick();
}

function notify(sentence) {
  $("notice").textContent = sentence;
  $("notice").hidden = !sentence;
}

function announce(sentence) {
  $("announcement").textContent = sentence;
}

// Controls

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
$("prompt").addEventListener("keydown", (event) => {
  // Enter that ends a composition (Korean, Japanese, Chinese) belongs to the input method.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
$("stop").addEventListener("click", stop);
$("talk").addEventListener("click", () => {
  player.unlock();
  notify("");
  talk.toggle();
});
$("new").addEventListener("click", startOver);
for (const radio of document.querySelectorAll("input[name=mode]")) {
  radio.addEventListener("change", showMode);
}
for (const example of document.querySelectorAll(".example")) {
  example.addEventListener("click", () => {
    $("prompt").value = example.textContent;
    submit();
    $("prompt").focus();
  });
}
$("access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    access.close();
    stop();
  }
});
for (const gesture of ["keydown", "pointerdown"]) {
  document.addEventListener(gesture, () => {
    if (player.isHeldBack) {
      player.unlock();
      notify("");
    }
  });
}

// A reload may bring back the last choice of the radio buttons without an event.
showMode();
access.show();
connection.open(access.key);
