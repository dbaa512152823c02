"use strict";
// Asks for status.json every two seconds and shows it. Texts of others become text nodes, never markup.

const EVERY = 2000, PATIENCE = 8000, UNKNOWN = "–";
const TONE = {
  running: "busy", finished: "good", failed: "bad", stopped: "calm", gone: "bad", silent: "away",
  here: "good", away: "away", "left out": "bad",
  ready: "good", busy: "busy", starting: "away", waiting: "away", refused: "bad", ended: "calm", unreadable: "bad",
};
const SETS = { ind: "InD", ood: "OOD", mix: "Mix" };
let cards = new Map(), ahead = 0;

function make(name, options = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value !== null && value !== undefined && value !== "") element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function duration(seconds) {
  if (seconds === null) return UNKNOWN;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => Math.round(seconds) >= size);
  const [size, name] = units[first];
  if (size === 1) return `${Math.round(seconds)} s`;
  const [small, lesser] = units[first + 1];
  const rest = Math.floor((Math.round(seconds) % size) / small);
  return `${Math.floor(Math.round(seconds) / size)} ${name}` + (rest ? ` ${rest} ${lesser}` : "");
}

function bytes(count) {
  if (count === null) return UNKNOWN;
  const names = ["B", "kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(Math.floor((String(count).length - 1) / 3), names.length - 1);
  return power ? `${(count / 1000 ** power).toFixed(1)} ${names[power]}` : `${count} B`;
}

const number = (value, places = 3) => (value === null ? UNKNOWN : value.toFixed(places));
const count = (value) => (value === null ? UNKNOWN : String(value));

// A time that says how long ago it was, and is kept right while the page is open.
function ago(time) {
  if (time === null) return UNKNOWN;
  const date = new Date(time * 1000);
  const element = make("time", { datetime: date.toISOString(), title: date.toLocaleString(), "data-ago": time });
  element.textContent = agoWords(time);
  return element;
}

function agoWords(time) {
  const seconds = Math.floor(Date.now() / 1000 + ahead - time);
  return seconds < 1 ? "now" : `${seconds < 10 ? `${seconds} s` : duration(seconds)} ago`;
}

function clock(time) {
  if (time === null) return make("time", {}, UNKNOWN);
  const date = new Date(time * 1000);
  return make("time", { datetime: date.toISOString() }, date.toLocaleString());
}

const state = (word) => make("span", { class: `state ${TONE[word] || "calm"}` }, word || UNKNOWN);

function facts(pairs) {
  const kept = pairs.filter(([, value]) => value !== null && value !== UNKNOWN);
  return make("dl", { class: "facts" }, ...kept.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function head(title, item, about) {
  const tone = TONE[item.state] || "calm";
  return [
    make("div", { class: "top" }, make("h2", {}, title), state(item.state)),
    make("p", { class: "soft" }, about.filter(Boolean).join(" · ")),
    item.note ? make("p", { class: `note ${tone}` }, item.note) : null,
  ];
}

function progress(item) {
  if (item.round === null || !item.rounds) return null;
  return make("progress", { max: item.rounds, value: Math.min(item.round, item.rounds), "aria-label": `round ${item.round} of ${item.rounds}` });
}

function rounds(item) {
  if (item.round === null) return null;
  return item.rounds === null ? String(item.round) : `${item.round} of ${item.rounds}`;
}

function grid(kind, caption, columns, rows) {
  const cell = (value, i) => (i === 0
    ? make("th", { scope: "row", role: "rowheader" }, value)
    : make("td", { role: "cell", "data-label": i > 1 ? columns[i] : null }, value));
  return make("table", { class: kind, role: "table" },
    make("caption", {}, caption),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...columns.map((name) => make("th", { scope: "col", role: "columnheader" }, name)))),
    make("tbody", { role: "rowgroup" }, ...rows.map((row) => make("tr", { role: "row" }, ...row.map(cell)))));
}

function members(run) {
  if (!run.nodes.length) return null;
  const columns = ["Node", "State", "Last seen", "Round", "Rows", "Seconds", "To it", "From it", "Loss"];
  const rows = run.nodes.map((node) => {
    const standing = make("span", {}, state(node.state));
    if (node.why) standing.append(make("span", { class: "why" }, node.why));
    return [node.name, standing, ago(node.seen), count(node.round), count(node.rows),
      number(node.seconds, 1), bytes(node.sent), bytes(node.received), number(node.loss)];
  });
  return grid("nodes", `Nodes (${run.nodes.length})`, columns, rows);
}

function figures(run) {
  const names = Object.keys(run.figures);
  if (!names.length) return null;
  const sets = [...new Set(names.flatMap((name) => Object.keys(run.figures[name])))];
  const rows = names.map((name) => [name, ...sets.map((set) => {
    const value = run.figures[name][set] ?? null;
    return value === null ? UNKNOWN : `${(100 * value).toFixed(1)} %`;
  })]);
  return grid("narrow", "Accuracy", ["Answers", ...sets.map((set) => SETS[set] || set)], rows);
}

function warnings(item) {
  if (!item.warnings.length) return [];
  const list = make("ul", { class: "warnings", tabindex: "0", "aria-label": "warnings, the latest first" });
  for (const warned of [...item.warnings].reverse()) list.append(make("li", {}, clock(warned.time), warned.text || UNKNOWN));
  return [make("h3", {}, `Warnings (${item.warnings.length})`), list];
}

function placed(element, place) {
  element.dataset.place = place;
  return element;
}

function card(...parts) {
  return make("section", { class: "card" }, ...parts.filter((part) => part !== null));
}

function showRun(run) {
  const going = run.ended === null;
  const about = [run.dataset, run.algorithm, run.secure ? "masked" : "", run.run ? `run ${run.run}` : "", run.version ? `fedpn ${run.version}` : ""];
  return card(...head(run.name || run.place, run, about), progress(run),
    facts([["Phase", going ? run.phase : null], ["Round", rounds(run)], ["Loss", number(run.loss)],
      ["Time left", going && run.left !== null ? `about ${duration(run.left)}` : null],
      ["Started", ago(run.started)], ["Last word", ago(run.updated)]]),
    figures(run), members(run), ...warnings(run));
}

function showNode(node) {
  const link = node.link;
  const about = ["this node", node.run ? `run ${node.run}` : "", node.version ? `fedpn ${node.version}` : ""];
  return card(...head(node.name || node.place, node, about), progress(node),
    facts([["SuperLink", link ? link.superlink : null], ["Link", link ? link.state : null], ["Since", link ? ago(link.since) : null],
      ["Worker", node.worker], ["Phase", node.phase], ["Round", rounds(node)], ["Loss", number(node.loss)], ["Rows", count(node.rows)],
      ["Seconds", number(node.seconds, 1)], ["Received", bytes(node.received)], ["Sent", bytes(node.sent)],
      ["Answered", count(node.answered)], ["Refused", count(node.refused)], ["Model", node.model],
      ["Started", ago(node.started)], ["Last word", ago(node.updated)]]),
    ...warnings(node));
}

function showUnreadable(item) {
  return card(make("div", { class: "top" }, make("h2", {}, item.place), state("unreadable")), make("p", { class: "note bad" }, item.why));
}

// Shows what has changed; the rest stays, with its focus and its place.
function draw(tree) {
  const wanted = [...tree.runs.map((run) => [run, showRun]), ...tree.nodes.map((node) => [node, showNode]),
    ...tree.unreadable.map((item) => [item, showUnreadable])];
  if (!wanted.length) wanted.push([{ place: "" }, showNothing]);
  const before = cards;
  cards = new Map();
  for (const [item, show] of wanted) {
    const text = JSON.stringify(item), old = before.get(item.place);
    cards.set(item.place, old && old.text === text ? old : { text, element: placed(show(item), item.place) });
  }
  const main = document.getElementById("main"), elements = [...cards.values()].map((entry) => entry.element);
  const focused = document.activeElement.closest(".warnings")?.parentElement;
  if (elements.length !== main.children.length || elements.some((element, i) => element !== main.children[i])) {
    const scrolls = elements.map((element) => list(before, element)?.scrollTop || 0);
    main.replaceChildren(...elements);
    elements.forEach((element, i) => { if (scrolls[i]) list(cards, element)?.scrollTo(0, scrolls[i]); });
    if (focused) list(cards, focused)?.focus({ preventScroll: true });
  }
  const wrong = [...tree.runs, ...tree.nodes].filter((item) => TONE[item.state] === "bad").length + tree.unreadable.length;
  document.title = (wrong ? `(${wrong}) ` : "") + "fedpn federation";
}

// The list of warnings of the card, among some, that is of the same place.
function list(among, card) {
  return among.get(card.dataset.place)?.element.querySelector(".warnings");
}

const showNothing = () => card(make("p", {}, "Nothing has told of itself yet: there is no status file in the watched places."));

function say(words, lost = false) {
  const news = document.getElementById("news");
  news.classList.toggle("lost", lost);
  if (news.textContent !== words) news.textContent = words;
}

function summary(tree) {
  const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const parts = [tree.runs.length ? many(tree.runs.length, "run") : "", tree.nodes.length ? many(tree.nodes.length, "node") : "",
    tree.unreadable.length ? `${tree.unreadable.length} unreadable` : ""].filter(Boolean);
  return `${parts.join(", ") || "nothing yet"}; renewed every ${EVERY / 1000} s`;
}

async function ask() {
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;  // told below
  }
}

async function renew() {
  const tree = await ask();
  if (tree === null) {
    say("No answer: what is shown may be old.", true);
  } else {
    ahead = tree.time - Date.now() / 1000;
    draw(tree);
    say(summary(tree));
  }
  for (const element of document.querySelectorAll("[data-ago]")) {
    const words = agoWords(Number(element.dataset.ago));
    if (element.textContent !== words) element.textContent = words;
  }
  setTimeout(renew, EVERY);
}

renew();
