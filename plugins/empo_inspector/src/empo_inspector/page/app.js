// The page: one selection of state, time, human, goal and actions, which all views show.

import { Board, legend } from "./board.js";
import { decode } from "./container.js";
import { LeftOut, Model, NOT_KEPT } from "./decision.js";
import { bar, button, choice, el, note, num, short } from "./parts.js";
import { Episode } from "./play.js";
import { compared } from "./sentences.js";
import { aboutView, findView, humanView, playView, robotView, successorsView, trouble, whyView } from "./views.js";
import { explain } from "./why.js";

const VIEWS = { robot: robotView, next: successorsView, why: whyView, human: humanView, find: findView, play: playView, about: aboutView };
const TITLES = { robot: "Robots", next: "Successors", why: "Why?", human: "Human", find: "Find", play: "Play", about: "About" };
const FREE = ["find", "play", "about"]; // Views that also say something where an episode is over.
const MAPS = [["v_e", "V^e, can attain"], ["v_m", "V^m, hopes for"], ["difference", "V^e − V^m"], ["none", "no heat map"]];
const WORDS = {
  ArrowUp: ["forward", "up", "north"], ArrowLeft: ["left", "west"], ArrowRight: ["right", "east"],
  ArrowDown: ["down", "south", "backward", "still", "stay", "wait", "pass", "idle", "noop"],
};
const SECOND = { w: "ArrowUp", a: "ArrowLeft", d: "ArrowRight", s: "ArrowDown" };
const SIGNS = { ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", ArrowDown: "↓" };
const LONGEST = 1000, FRAME_MS = 700;

class Cancelled extends Error {}

export class App {
  constructor(model, say) {
    Object.assign(this, { model, say, board: new Board(model), filter: {}, opened: new Set(), known: new Map(), theory: null, game: null });
    const { world, header } = model, human = (i) => world.humans[i];
    Object.assign(this, { view: "robot", map: "v_e", goal: 0, a: null, b: null, turn: 0 });
    this.unbounded = model.horizon === null;
    this.unitSteps = model.duration.every((d) => d === 1);
    this.search = { at: {}, goal: -1, text: "" };
    this.draft = { first: human(0), second: -1, seed: 0, goals: {}, guess: false };
    this.start = header.kept.start;
    this.goTo(this.start, model.first, false);
    this.skeleton(header);
    this.fromHash();
    addEventListener("hashchange", () => { if (location.hash !== this.hash) { this.fromHash(); this.show(); } });
    addEventListener("resize", () => this.drawBoard());
    addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("copy", copyAllDigits);
    this.show();
  }

  // Questions about the selection.

  stepsLeft() { return this.unbounded ? null : this.model.horizon - this.t; }

  isOver(s, t) { return !this.model.alive(s, t); }

  decision() {
    const key = `${this.s} ${this.t}`;
    if (this.decided?.key !== key) this.decided = { key, found: this.model.decision(this.s, this.t) };
    return this.decided.found;
  }

  whatIf() { return this.theory && this.model.decision(this.s, this.t, this.theory); }

  actions() { return compared(this.decision(), this.a, this.b); }

  async reasons(pair, pause) {
    const key = [this.s, this.t, ...pair].join(" ");
    if (!this.known.has(key)) {
      if (this.known.size > 100) this.known.clear();
      this.known.set(key, await explain(this.model, this.s, this.t, ...pair, pause));
    }
    return this.known.get(key);
  }

  jointName(joint) {
    const { world } = this.model, digit = (i) => Math.floor(joint / world.strides[i]) % world.agents[i].actions.length;
    return world.agents.map((agent, i) => `${agent.name}: ${agent.actions[digit(i)]}`).join(", ");
  }

  robotPolicies() {
    const { model } = this, { world } = model, found = {};
    if (this.isOver(this.s, this.t) || this.hidden()) return found;
    world.robots.forEach((agent, i) => { found[agent] = world.agents[agent].actions.map(() => 0); });
    this.decision().pi_r.forEach((p, r) => world.robots.forEach((agent, i) => { found[agent][model.robotDigits[r][i]] += p; }));
    return found;
  }

  hidden() { return Boolean(this.game?.guess) && !this.isOver(this.s, this.t); }

  found(limit) {
    const { model, board, search } = this, hits = [];
    const wanted = Object.entries(search.at).filter(([, text]) => text.trim()).map(([i, text]) => [Number(i), text.replace(/[()\s]/g, "")]);
    const words = search.text.trim().toLowerCase();
    for (let s = 0; s < model.S && hits.length < limit; s++) {
      if (wanted.some(([i, text]) => board.where(s, i).join(",") !== text)) continue;
      if (search.goal >= 0 && !model.has(s, search.goal)) continue;
      if (words && words !== String(model.number[s]) && !board.text(s).toLowerCase().includes(words)) continue;
      const t = this.firstTime(s);
      if (t !== null) hits.push([s, t]);
    }
    return hits;
  }

  // The first time at which a state can be; null where its values are not known at any.
  firstTime(s) {
    const { model } = this;
    if (this.unbounded || !model.goesOn(s)) return this.unbounded ? 0 : model.first + model.T;
    for (let i = 0; i < model.T; i++) if (!Number.isNaN(model.v_r[i * model.S + s])) return model.first + i;
    return null;
  }

  // Changes of the selection.

  select(changes) { Object.assign(this, changes); this.show(); }

  assume(changes) {
    this.theory = changes && { ...this.model.theory, ...this.theory, ...changes };
    this.show();
  }

  remember(name) { return (event) => { this.opened[event.target.open ? "add" : "delete"](name); }; }

  goTo(s, t, shows = true) {
    const first = this.model.first;
    if (this.path?.[t - first]?.s !== s) {
      this.path = [];
      this.path[t - first] = { s };
      this.extend();
    }
    Object.assign(this, { s, t, a: null, b: null });
    if (shows) this.show();
  }

  step(s, joint) {
    this.path.length = this.t - this.model.first + 1;
    this.path.push({ s, joint });
    this.extend();
    this.goTo(s, this.t + 1);
  }

  // Goes on with the likeliest next state at each step.
  extend() {
    const { model, path } = this;
    try {
      while (path.length < LONGEST) {
        const { s } = path[path.length - 1], t = model.first + path.length - 1;
        if (this.isOver(s, t)) return;
        const { chance, pi_r } = model.policies(s, t), total = new Map(), best = new Map();
        for (const [slot, successor, code] of model.transitions(s)) {
          const r = slot % model.R, mass = chance[(slot - r) / model.R] * pi_r[r] * model.prob[code];
          total.set(successor, (total.get(successor) ?? 0) + mass);
          if (mass > (best.get(successor)?.[0] ?? -1)) best.set(successor, [mass, model.joint[slot]]);
        }
        const [next] = [...total].reduce((x, y) => y[1] > x[1] ? y : x);
        if (next === NOT_KEPT) return;
        path.push({ s: next, joint: best.get(next)[1] });
      }
    } catch (error) {
      if (!(error instanceof LeftOut)) throw error;
    }
  }

  moveTo(i) {
    const first = this.path.findIndex((each) => each), at = Math.max(first, Math.min(this.path.length - 1, i));
    this.goTo(this.path[at].s, this.model.first + at);
  }

  back() { this.moveTo(this.t - this.model.first - 1); }

  on() { this.moveTo(this.t - this.model.first + 1); }

  run() {
    clearInterval(this.timer);
    const last = this.path.length - 1;
    if (this.timer || this.t - this.model.first >= last) this.timer = null;
    else this.timer = setInterval(() => { this.on(); if (this.t - this.model.first >= this.path.length - 1) this.run(); }, FRAME_MS);
    this.buttons.run.textContent = this.timer ? "pause" : "play";
  }

  fromHash() {
    const given = new URLSearchParams(location.hash.slice(1)), { model } = this;
    const whole = (name, end) => { const n = given.get(name); return n !== null && /^\d+$/.test(n) && Number(n) < end ? Number(n) : null; };
    const s = model.index.get(whole("s", 2 ** 31)), t = whole("t", this.unbounded ? LONGEST : model.horizon + 1);
    if (s !== undefined && t !== null && t >= model.first && model.known(s, t)) this.goTo(s, t, false);
    else if (given.has("s")) this.warning = "The link names a state that is not kept here, or cannot be at that time.";
    const h = whole("h", model.H), g = whole("g", model.G);
    this.goal = g ?? (h === null ? this.goal : model.goalsOf[h][0]);
    [this.a, this.b] = [whole("a", model.R), whole("b", model.R)];
    if (given.get("v") in VIEWS) this.view = given.get("v");
  }

  toHash() {
    const { model } = this, parts = { s: model.number[this.s], t: this.t, h: model.whose[this.goal], g: this.goal, a: this.a, b: this.b, v: this.view };
    const hash = "#" + Object.entries(parts).filter(([, value]) => value !== null).map(([key, value]) => `${key}=${value}`).join("&");
    if (hash === this.hash) return;
    const isFirst = this.hash === undefined;
    this.hash = hash;
    if (isFirst) location.replace(hash); else location.hash = hash;
  }

  // Play.

  startGame(fromStart = false) {
    if (fromStart) this.goTo(this.start, this.model.first, false);
    const { first, second, seed, goals, guess } = this.draft;
    const chosen = Object.fromEntries(Object.entries(goals).filter(([, g]) => g >= 0));
    const mine = this.model.world.humans.includes(second) || this.model.world.robots.includes(second) ? second : -1;
    this.game = { first, second: mine === first ? -1 : mine, seed, guess, chosen, told: {}, moves: [], begin: [this.s, this.t], episode: new Episode(this.model, seed, chosen) };
    this.view = "play";
    this.show();
  }

  again() { this.goTo(...this.game.begin, false); this.startGame(); }

  stopGame() { this.game = null; this.show(); }

  act(agent, action) {
    const { game } = this;
    if (this.isOver(this.s, this.t)) return;
    game.told[agent] = action;
    game.said = "";
    if ([game.first, game.second].every((i) => i < 0 || game.told[i] !== undefined)) this.advance();
    else this.show();
  }

  advance() {
    const { game } = this, random = game.episode.random.state, told = game.told;
    game.told = {};
    const before = this.decision().pi_r, done = game.episode.step(this.s, this.t, told);
    if (done === null || done.successor === NOT_KEPT) {
      game.said = done ? "The state that follows is not kept in this file." : "That action is not available here.";
      if (done) game.episode.random.state = random;
      this.show();
      return;
    }
    game.moves.push({ s: this.s, t: this.t, joint: done.joint, random });
    Object.assign(game, { before, last: this.jointName(done.joint) });
    this.step(done.successor, done.joint);
  }

  undo() {
    const move = this.game.moves.pop();
    if (!move) return;
    Object.assign(this.game, { last: null, before: null, said: "", told: {} });
    this.game.episode.random.state = move.random;
    this.goTo(move.s, move.t);
  }

  record() {
    const { model, game } = this, row = (s) => { const n = model.rows.length / model.S; return [...model.rows.subarray(s * n, (s + 1) * n)].map(Number); };
    return {
      world: model.world.name, theory: model.header.provenance.theory, seed: game.seed, goals: game.episode.goals,
      played: [game.first, game.second].filter((i) => i >= 0), time: game.begin[1],
      steps: [...game.moves.map((move) => ({ row: row(move.s), joint: move.joint })), { row: row(this.s), joint: null }],
    };
  }

  keyName(agent, action, place) {
    const name = this.model.world.agents[agent].actions[action], found = Object.keys(WORDS).find((key) => this.actionOf(agent, key) === action);
    if (place) return found ? Object.keys(SECOND).find((key) => SECOND[key] === found).toUpperCase() : "";
    return found ? SIGNS[found] : action < 9 ? String(action + 1) : name ? "" : "";
  }

  // The action that a direction stands for.
  actionOf(agent, key) {
    const names = this.model.world.agents[agent].actions;
    return WORDS[key]?.map((word) => names.findIndex((name) => name.toLowerCase() === word)).find((a) => a >= 0);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const { game, view } = this, { key } = event;
    if (game && view === "play") {
      const second = game.second >= 0 ? SECOND[key.toLowerCase()] : undefined, agent = second ? game.second : game.first;
      const digit = /^[1-9]$/.test(key) ? Number(key) - 1 : undefined, count = this.model.world.agents[agent].actions.length;
      const action = digit !== undefined && digit < count ? digit : this.actionOf(agent, second ?? key);
      if (action !== undefined) this.act(agent, action);
      else if (key === "Backspace") this.undo();
      else return;
      event.preventDefault();
      return;
    }
    const views = Object.keys(VIEWS), scrolls = event.target.closest?.(".wide");
    const does = { ArrowLeft: () => this.back(), ArrowRight: () => this.on(), Home: () => this.moveTo(0), End: () => this.moveTo(Infinity), p: () => this.run() };
    if (/^[1-7]$/.test(key)) this.select({ view: views[Number(key) - 1] });
    else if (key in does && !scrolls) does[key]();
    else return;
    event.preventDefault();
  }

  // The page.

  skeleton(header) {
    const { model } = this, world = header.world;
    const act = (text, label, does) => button(text, does, { "aria-label": label });
    this.buttons = {
      first: act("|◀", "first step", () => this.moveTo(0)), back: act("◀", "one step back", () => this.back()),
      run: act("play", "play or pause", () => this.run()),
      on: act("▶", "one step on", () => this.on()), last: act("▶|", "last step", () => this.moveTo(Infinity)),
    };
    this.slider = el("input", { type: "range", min: 0, "aria-label": "step", oninput: (event) => this.moveTo(Number(event.target.value)) });
    this.canvas = el("canvas", { role: "img", "aria-describedby": "state-text" });
    this.parts = Object.fromEntries(["status", "banner", "text", "goals", "legend", "picks", "when", "crumbs", "line"].map((name) => [name, el("div", { class: name })]));
    this.parts.status.setAttribute("aria-live", "polite");
    this.parts.text.id = "state-text";
    this.tabs = Object.fromEntries(Object.entries(TITLES).map(([id, title]) => [id, button(title, () => this.select({ view: id }), { class: "tab" })]));
    this.panel = el("section", { class: "panel", id: "panel", "aria-label": "view" });
    const { parts } = this;
    document.getElementById("app").replaceChildren(
      el("header", {}, el("h1", {}, world.name), el("p", {}, String(header.provenance.run ?? "")), parts.status),
      el("main", {},
        el("div", { class: "left" },
          el("section", { class: "board", "aria-label": "board" }, parts.picks, this.canvas, parts.legend, parts.text,
            el("details", {}, el("summary", {}, "Goals as a table"), parts.goals)),
          el("section", { class: "time", "aria-label": "time" }, el("div", { class: "row" }, Object.values(this.buttons)), this.slider, parts.when, parts.line, parts.crumbs)),
        el("div", { class: "right" }, el("nav", { "aria-label": "views" }, Object.values(this.tabs)), this.panel)));
    document.title = `${world.name} – EMPO inspector`;
  }

  show() {
    this.turn += 1;
    const focused = document.activeElement?.dataset?.key, { parts } = this;
    for (const [id, tab] of Object.entries(this.tabs)) tab.setAttribute("aria-current", id === this.view ? "page" : "false");
    this.drawBoard();
    this.showTime();
    parts.status.textContent = this.status();
    this.panel.setAttribute("aria-label", TITLES[this.view]);
    this.panel.replaceChildren(el("h2", {}, TITLES[this.view]), ...this.content().flat().filter((node) => node));
    if (focused && document.activeElement?.dataset?.key !== focused) {
      document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }
    this.toHash();
    this.warning = "";
  }

  content() {
    if (!FREE.includes(this.view)) {
      if (this.isOver(this.s, this.t)) return [el("p", { class: "over" }, "The episode is over here. V_r is the terminal value, ", num(this.model.theory.terminal_value), ".")];
      if (this.hidden()) return [note("Hidden until you have moved: see Play.")];
    }
    try {
      return VIEWS[this.view](this);
    } catch (error) {
      return trouble(error);
    }
  }

  status() {
    const { model, s, t } = this, left = this.stepsLeft(), number = `state ${model.number[s]}`;
    const when = left === null ? `Step ${t}` : `Step ${t} of ${model.horizon}, ${left} left`;
    if (this.warning) return this.warning;
    if (this.isOver(s, t)) return `${when}: ${number}, over.`;
    try {
      const { pi_r } = this.decision(), best = pi_r.indexOf(Math.max(...pi_r));
      return `${when}: ${number}${this.hidden() ? "" : `, robots: ${model.robotNames[best]} with ${short(pi_r[best])}`}.`;
    } catch (error) {
      return `${when}: ${number}. ${error.message}`;
    }
  }

  // Values of a goal for the heat map and the table.
  goalValue(kind, g) {
    const { model, s, t } = this, given = (name) => model[name] ? model.stored(name, s, t, g) : NaN;
    if (this.isOver(s, t) || kind === "none") return NaN;
    return kind === "difference" ? given("v_e") - given("v_m") : given(kind);
  }

  drawBoard() {
    const { model, board, s, parts, canvas } = this, h = model.whose[this.goal], own = model.goalsOf[h];
    const { world } = model, width = Math.max(160, Math.min(560, parts.picks.clientWidth || 480));
    canvas.hidden = !board.drawable(s);
    if (!canvas.hidden) {
      const values = board.isGrid && this.map !== "none" ? board.heatMap(own, (g) => this.goalValue(this.map, g)) : undefined;
      let policies = {};
      try { policies = this.robotPolicies(); } catch { /* It is not known here. */ }
      board.draw(canvas, s, Math.min(width, board.isGrid ? board.picture.width * 96 : width), { values, policies, goal: board.isGrid ? this.goal : null });
      canvas.setAttribute("aria-label", `state ${model.number[s]}`);
      canvas.classList.toggle("over", this.isOver(s, this.t));
    }
    const goals = own.map((g) => [g, model.goals[g].name]);
    parts.picks.replaceChildren(
      choice("human", world.humans.map((agent, i) => [i, world.agents[agent].name]), h, (value) => this.select({ goal: model.goalsOf[value][0] }), "human"),
      choice("goal", goals, this.goal, (value) => this.select({ goal: Number(value) }), "goal"),
      board.isGrid ? choice("heat map", MAPS.filter(([id]) => model.v_m || id === "v_e" || id === "none"), this.map, (value) => this.select({ map: value }), "map") : "");
    parts.legend.replaceChildren(...board.isGrid && this.map !== "none" ? [legend(this.map === "difference")] : []);
    parts.text.replaceChildren(canvas.hidden ? el("pre", {}, board.text(s)) : el("details", {}, el("summary", {}, "State in words"), el("pre", {}, board.text(s))));
    const rows = model.goals.map((goal, g) => el("tr", {}, el("th", { scope: "row" }, `${world.agents[goal.human].name}: ${goal.name}`),
      el("td", {}, num(this.goalValue("v_e", g)), bar(this.goalValue("v_e", g))), el("td", {}, num(this.goalValue("v_m", g))), el("td", {}, model.has(s, g) ? "achieved" : "")));
    parts.goals.replaceChildren(el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, ["goal", "V^e", "V^m", ""].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows))));
  }

  showTime() {
    const { model, path, t, parts } = this, at = t - model.first, left = this.stepsLeft();
    [this.slider.max, this.slider.value] = [path.length - 1, at];
    this.slider.setAttribute("aria-valuetext", `step ${t}`);
    parts.when.textContent = left === null ? `step ${t}` : `step ${t} of ${model.horizon}: ${left} ${left === 1 ? "step" : "steps"} left`;
    const crumbs = path.map((each, i) => button(each.joint === undefined || i > at ? `${model.first + i}` : `${model.first + i}: ${this.jointShort(each.joint)}`, () => this.moveTo(i),
      { class: i > at ? "crumb later" : "crumb", key: `crumb${i}`, "aria-current": i === at ? "step" : false, title: each.joint === undefined ? "" : this.jointName(each.joint) }));
    parts.crumbs.replaceChildren(...crumbs.filter((each) => each));
    parts.line.replaceChildren(...this.sparklines());
  }

  jointShort(joint) {
    const { world } = this.model;
    return world.robots.map((i) => world.agents[i].actions[Math.floor(joint / world.strides[i]) % world.agents[i].actions.length]).join(" + ");
  }

  // V_r and U_r along the path.
  sparklines() {
    const { model, path } = this, lines = { V_r: [], U_r: [] };
    path.forEach((each, i) => {
      const t = model.first + i, goes = each && model.alive(each.s, t);
      lines.V_r.push(goes ? model.stored("v_r", each.s, t) : NaN);
      lines.U_r.push(goes ? model.reward(model.attainable(each.s, t)).u_r : NaN);
    });
    return Object.entries(lines).map(([name, values]) => {
      const real = values.filter((v) => Number.isFinite(v)), low = Math.min(...real), span = Math.max(...real) - low || 1;
      const svg = (tag, attributes) => { const made = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value); return made; };
      const x = (i) => 4 + 192 * i / Math.max(1, values.length - 1), y = (v) => 28 - 24 * (v - low) / span;
      const drawn = svg("svg", { viewBox: "0 0 200 32", "aria-hidden": "true", preserveAspectRatio: "none" });
      drawn.append(svg("polyline", { points: values.map((v, i) => Number.isFinite(v) ? `${x(i)},${y(v)}` : "").filter((text) => text).join(" "), fill: "none", class: "spark" }));
      const now = this.t - model.first;
      if (Number.isFinite(values[now])) drawn.append(svg("circle", { cx: x(now), cy: y(values[now]), r: 3.5, class: "dot" }));
      return el("div", { class: "sparkline" }, el("span", {}, `${name} `, num(values[now])), drawn);
    });
  }

  banner() {
    return this.theory ? el("p", { class: "banner" }, "What if: only this decision is worked out anew. The values one step later stay as they were solved.") : null;
  }

  // Fills an element when work is done, unless the selection has changed by then.
  later(id, work) {
    const turn = this.turn;
    let rested = performance.now();
    const pause = async () => {
      if (performance.now() - rested < 30) return;
      await new Promise((resolve) => { setTimeout(resolve); });
      rested = performance.now();
      if (turn !== this.turn) throw new Cancelled();
    };
    queueMicrotask(async () => {
      let nodes;
      try {
        nodes = await work(pause);
      } catch (error) {
        if (error instanceof Cancelled) return;
        nodes = trouble(error);
      }
      const place = turn === this.turn && document.getElementById(id);
      if (!place) return;
      place.replaceChildren(...nodes);
      place.removeAttribute("data-busy");
    });
    return null;
  }
}

function copyAllDigits(event) {
  const chosen = getSelection();
  if (!chosen.rangeCount || /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) return;
  const part = chosen.getRangeAt(0).cloneContents(), numbers = part.querySelectorAll("data");
  const inside = chosen.getRangeAt(0).commonAncestorContainer.parentElement?.closest("data");
  if (!numbers.length && !inside) return;
  numbers.forEach((each) => { each.textContent = each.value; });
  event.clipboardData.setData("text/plain", inside ? inside.value : part.textContent);
  event.preventDefault();
}

export async function start(say) {
  const place = document.getElementById("app");
  try {
    const { header, arrays } = await decode(document.getElementById("data").textContent);
    globalThis.inspector = new App(new Model(header, arrays), say);
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    place.replaceChildren(el("p", { class: "trouble", role: "alert" }, `This page cannot show its data: ${error.message}.`));
    document.documentElement.dataset.ready = "no";
  }
}
