// Puts the page together: controls in, turns out. The `data-*` of <body> say what the page is doing.

import { Connection } from "./connection.js";
import { Log } from "./conversation.js";
import { ServiceRefusal, listModels } from "./models.js";
import { Player } from "./player.js";
import { Plot } from "./plot.js";
import { Session } from "./session.js";
import { showTimings } from "./timings.js";

const KEY_NAME = "polywire.key";
const CALM_TICK_MS = 250;
const STATE_WORDS = { connecting: "Connecting…", open: "Connected", waiting: "Retrying…", idle: "Asleep", closed: "Offline" };

const $ = (id) => document.getElementById(id);
const state = document.body.dataset;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const player = new Player();
const plot = new Plot($("plot"));
const log = new Log($("log"));
const connection = new Connection({
  state: showConnection,
  message: (message) => session.receive(message),
  audio: (data) => session.receiveAudio(data),
  lost: (sentence) => session.lost(sentence),
  refused: explainRefusal,
});
const session = new Session(connection, player, { turn: beginTurn, over: endTurn, progress: () => log.follow(), problem: notify });

let modelsLoaded = false;
let ticking = false;

// Connection and models

function showConnection({ state: name, sentence }) {
  state.connection = name;
  $("connection-text").textContent = STATE_WORDS[name];
  if (name === "open") {
    notify("");
    session.connected();
    loadModels();
  } else if (name === "waiting") {
    notify(`${sentence} Trying again…`);
  } else if (name === "closed") {
    notify(sentence);
    session.refused(sentence);
    if (!modelsLoaded) {
      fill($("model"), [], "", "Not known yet");
      fill($("voice"), [], "", "Not known yet");
    }
  }
}

async function explainRefusal() {
  try {
    await listModels(readKey());
  } catch (refusal) {
    if (refusal instanceof ServiceRefusal) {
      if (refusal.needsKey) {
        $("access").open = true;
        $("key").focus();
      }
      return { sentence: refusal.message, final: refusal.needsKey };
    }
    throw refusal;
  }
  // The service answers, but not to this page's socket: a proxy in between, or an origin that it does not know.
  const sentence = `The service refused the socket. If a proxy stands before it, add ${location.origin} to “origins” in polywire.yaml.`;
  return { sentence, final: false };
}

async function loadModels() {
  if (modelsLoaded) {
    return;
  }
  modelsLoaded = true;
  try {
    const { chat, speech } = await listModels(readKey());
    fill($("model"), chat, "default", "No chat model is configured");
    fill($("voice"), speech, "voice", "No voice is configured");
    $("speak").disabled = speech.length === 0;
    $("speak").checked = speech.length > 0;
  } catch (refusal) {
    modelsLoaded = false;
    notify(refusal.message);
  }
}

function fill(select, ids, preferred, none) {
  const options = ids.length ? ids : [none];
  select.replaceChildren(...options.map((id) => new Option(id)));
  select.value = ids.includes(preferred) ? preferred : options[0];
  select.disabled = ids.length === 0;
}

function readKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) ?? "";
  } catch {
    return $("key").value; // storage is forbidden: the field itself remembers
  }
}

function useKey() {
  const key = $("key").value.trim();
  try {
    sessionStorage.setItem(KEY_NAME, key);
  } catch {
    // The field itself remembers.
  }
  modelsLoaded = false;
  closeAccess();
  $("prompt").focus();
  connection.open(key);
}

function closeAccess() {
  if ($("access").contains(document.activeElement)) {
    $("access").querySelector("summary").focus();
  }
  $("access").open = false;
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
  const value = (select) => (select.disabled ? undefined : select.value);
  session.begin({ kind: mode(), text, model: value($("model")), voice: value($("voice")), speak: $("speak").checked });
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
  $("activity").hidden = !(running || sounding);
  $("activity-text").textContent = sounding ? `Speaking · ${buffered.toFixed(1)} s` : "Writing…";
  document.querySelector(".bars").style.setProperty("--level", calm.matches ? "0.5" : state.audioLevel);
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
    closeAccess();
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
$("key").value = readKey();
connection.open(readKey());
