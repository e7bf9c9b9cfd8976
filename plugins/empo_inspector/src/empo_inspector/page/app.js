// The page: one selection of state, time, goal and actions, which all views show.

import T from "./texts.json" with { type: "json" };
import { Board, legend } from "./board.js";
import { decode } from "./container.js";
import { LeftOut, Model, NOT_KEPT } from "./decision.js";
import { bar, button, choice, el, note, num, short, table } from "./parts.js";
import { Episode } from "./play.js";
import { compared } from "./sentences.js";
import { aboutView, findView, humanView, playView, robotView, successorsView, trouble, whyView } from "./views.js";
import { explain } from "./why.js";

const VIEWS = { robot: robotView, next: successorsView, why: whyView, human: humanView, find: findView, play: playView, about: aboutView };
const LONGEST = 1000, FRAME_MS = 700, REST_MS = 30;

class Cancelled extends Error {}

export class App {
	constructor(model, say) {
		const draft = { first: model.world.humans[0], second: -1, seed: 0, goals: {}, guess: false };
		Object.assign(this, { model, say, draft, board: new Board(model), filter: {}, opened: new Set([T.decisive]), reasonsOf: new Map(), theory: null, game: null, turn: 0 });
		Object.assign(this, { view: "robot", map: "v_e", goal: 0, search: { at: {}, goal: -1, text: "" }, start: model.header.kept.start });
		this.skeleton();
		this.goTo(this.start, model.first, false);
		this.fromHash();
		addEventListener("hashchange", () => { if (location.hash !== this.hash) { this.fromHash(); this.show(); } });
		addEventListener("resize", () => this.drawBoard());
		addEventListener("keydown", (event) => this.key(event));
		document.addEventListener("copy", copyAllDigits);
		this.show();
	}

	// Questions about the selection.

	stepsLeft() { return this.model.horizon === null ? null : this.model.horizon - this.t; }

	isOver(s, t) { return !this.model.alive(s, t); }

	decision() {
		const { s, t } = this;
		if (this.decided?.s !== s || this.decided.t !== t) this.decided = { s, t, found: this.model.decision(s, t) };
		return this.decided.found;
	}

	whatIf() { return this.theory && this.model.decision(this.s, this.t, this.theory); }

	actions() { return compared(this.decision(), this.a, this.b); }

	async reasons(pair, pause) {
		const key = `${this.s} ${this.t} ${pair}`, found = this.reasonsOf.get(key) ?? await explain(this.model, this.s, this.t, ...pair, pause);
		this.reasonsOf.set(key, found);
		return found;
	}

	jointName(joint, which = this.model.world.agents.keys()) {
		return [...which].map((i) => `${this.model.world.agents[i].name}: ${this.model.world.agents[i].actions[this.model.action(joint, i)]}`).join(", ");
	}

	hidden() { return Boolean(this.game?.guess); }

	found(limit) {
		const { model, board, search } = this, hits = [], words = search.text.trim().toLowerCase();
		const places = Object.entries(search.at).filter(([, text]) => text.trim()).map(([i, text]) => [+i, text.replace(/[()\s]/g, "")]);
		for (let s = 0; s < model.S && hits.length < limit; s++) {
			const fits = places.every(([i, text]) => `${board.at(board.ofAgent("places", s, i))}` === text) && (search.goal < 0 || model.has(s, search.goal))
				&& (!words || words === `${model.number[s]}` || board.text(s).toLowerCase().includes(words));
			let t = model.goesOn(s) || model.horizon === null ? model.first : model.horizon;
			while (fits && !model.known(s, t)) t += 1;
			if (fits) hits.push([s, t]);
		}
		return hits;
	}

	// Changes of the selection.

	select(changes) { Object.assign(this, changes); this.show(); }

	assume(changes) { this.select({ theory: changes && { ...this.model.theory, ...this.theory, ...changes } }); }

	goTo(s, t, shows = true) {
		const i = t - this.model.first;
		if (this.path?.[i]?.s !== s) {
			this.path = [];
			this.path[i] = { s };
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
				const { s } = path.at(-1), t = model.first + path.length - 1, found = new Map();
				if (this.isOver(s, t)) return;
				const { chance, pi_r } = model.policies(s, t);
				for (const [slot, next, code] of model.transitions(s)) {
					const r = slot % model.R, mass = chance[(slot - r) / model.R] * pi_r[r] * model.prob[code], all = found.get(next) ?? { total: 0, most: -1 };
					all.total += mass;
					if (mass > all.most) Object.assign(all, { most: mass, joint: model.joint[slot] });
					found.set(next, all);
				}
				const [next, { joint }] = [...found].reduce((x, y) => y[1].total > x[1].total ? y : x);
				path.push({ s: next, joint });
			}
		} catch (error) { trouble(error); }
	}

	moveTo(i) {
		const at = Math.max(this.path.findIndex((each) => each), Math.min(this.path.length - 1, i));
		this.goTo(this.path[at].s, this.model.first + at);
	}

	move(by) { this.moveTo(this.t - this.model.first + by); }

	run() {
		const isLast = () => this.t - this.model.first >= this.path.length - 1, goes = !this.timer && !isLast();
		clearInterval(this.timer);
		this.timer = goes && setInterval(() => { this.move(1); if (isLast()) this.run(); }, FRAME_MS);
		this.playing.textContent = goes ? "pause" : "play";
	}

	fromHash() {
		const given = new URLSearchParams(location.hash.slice(1)), { model } = this;
		const whole = (name, end) => /^\d+$/.test(given.get(name) ?? "") && +given.get(name) < end ? +given.get(name) : null;
		const s = model.index.get(whole("s", 2 ** 31)), t = whole("t", (model.horizon ?? LONGEST) + 1);
		if (s !== undefined && t !== null && t >= model.first && model.known(s, t)) this.goTo(s, t, false);
		else if (given.has("s")) this.warning = T.bad_link;
		this.goal = whole("g", model.G) ?? model.goalsOf[whole("h", model.H)]?.[0] ?? this.goal;
		Object.assign(this, { a: whole("a", model.R), b: whole("b", model.R) });
		if (Object.hasOwn(VIEWS, given.get("v"))) this.view = given.get("v");
	}

	toHash() {
		const { model, s, t, goal: g, a, b, view: v } = this, parts = Object.entries({ s: model.number[s], t, h: model.whose[g], g, a, b, v });
		const hash = `#${parts.filter(([, value]) => value !== null).map((pair) => pair.join("=")).join("&")}`, isFirst = !this.hash;
		if (hash === this.hash) return;
		this.hash = hash;
		if (isFirst) location.replace(hash); else location.hash = hash;
	}

	// Play.

	startGame(from) {
		const { first, second, seed, goals, guess } = this.draft, chosen = Object.fromEntries(Object.entries(goals).filter(([, g]) => g >= 0));
		if (from) this.goTo(...from === true ? [this.start, this.model.first] : from, false);
		this.game = { mine: [...new Set([first, second])].filter((i) => i >= 0), seed, guess, told: {}, moves: [], says: "", begin: [this.s, this.t], episode: new Episode(this.model, seed, chosen) };
		this.select({ view: "play" });
	}

	act(agent, action) {
		const { game, s, t } = this, { random } = game.episode, before = random.state;
		if (this.isOver(s, t)) return;
		game.told[agent] = action;
		if (game.mine.some((i) => !(i in game.told))) { this.show(); return; }
		const done = game.episode.step(s, t, game.told);
		game.told = {};
		if (!done || done.successor === NOT_KEPT) {
			random.state = before;
			game.says = done ? T.not_kept : T.unavailable;
			this.show();
			return;
		}
		game.moves.push({ s, t, joint: done.joint, random: before });
		Object.assign(game, { before: this.decision().pi_r, says: `Last step: ${this.jointName(done.joint)}.` });
		this.step(done.successor, done.joint);
	}

	undo() {
		const { game } = this, move = game.moves.pop();
		if (!move) return;
		Object.assign(game, { before: null, says: "", told: {} });
		game.episode.random.state = move.random;
		this.goTo(move.s, move.t);
	}

	record() {
		const { model, game } = this, n = model.rows.length / model.S, row = (s) => Array.from(model.rows.subarray(s * n, (s + 1) * n), Number);
		return { world: model.world.name, theory: model.header.provenance.theory, seed: game.seed, goals: game.episode.goals, played: game.mine, time: game.begin[1],
			steps: [...game.moves, { s: this.s, joint: null }].map(({ s, joint }) => ({ row: row(s), joint })) };
	}

	// The action that a direction stands for.
	actionOf(agent, key) {
		const names = this.model.world.agents[agent].actions.map((name) => name.toLowerCase());
		return T.words[key]?.map((word) => names.indexOf(word)).find((a) => a >= 0);
	}

	keyName(agent, action, place) {
		const key = Object.keys(T.words).find((each) => this.actionOf(agent, each) === action);
		return place ? Object.keys(T.second).find((each) => T.second[each] === key)?.toUpperCase() ?? "" : T.signs[key] ?? action + 1;
	}

	key(event) {
		const { game, view } = this, { key, target } = event;
		if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
		const does = { ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1), Home: () => this.moveTo(0), End: () => this.moveTo(Infinity), p: () => this.run() };
		let done = /^Arrow/.test(key) && target.closest?.(".wide") ? null : does[key];
		if (game && view === "play") {
			const other = game.mine.length > 1 && T.second[key.toLowerCase()], agent = game.mine[other ? 1 : 0];
			const action = /^[1-9]$/.test(key) && key <= this.model.world.agents[agent].actions.length ? key - 1 : this.actionOf(agent, other || key);
			done = action !== undefined ? () => this.act(agent, action) : key === "Backspace" && (() => this.undo());
		} else if (/^[1-7]$/.test(key)) done = () => this.select({ view: Object.keys(VIEWS)[key - 1] });
		if (!done) return;
		event.preventDefault();
		done();
	}

	// The page.

	skeleton() {
		const { header: { provenance }, world } = this.model, part = (name, ...children) => this.parts[name] = el("div", { class: name }, children);
		const section = (name, ...children) => el("section", { class: name, "aria-label": name }, children), act = (text, label, does) => button(text, does, { "aria-label": label });
		this.parts = {};
		this.playing = act("play", "play or pause", () => this.run());
		this.canvas = el("canvas", { role: "img" });
		this.slider = el("input", { type: "range", min: 0, "aria-label": "step", oninput: (event) => this.moveTo(+event.target.value) });
		this.tabs = Object.entries(T.titles).map(([view, title]) => [view, button(title, () => this.select({ view }), { class: "tab" })]);
		this.panel = el("section", { id: "panel" });
		this.status = el("p", { class: "status", role: "status" });
		document.getElementById("app").replaceChildren(el("header", {}, el("h1", {}, world.name), el("p", {}, provenance.run ?? ""), this.status), el("main", {},
			el("div", {}, section("board", part("picks"), this.canvas, part("legend"), part("text")),
				section("time", el("div", { class: "row" }, act("|◀", "first step", () => this.moveTo(0)), act("◀", "one step back", () => this.move(-1)), this.playing,
					act("▶", "one step on", () => this.move(1)), act("▶|", "last step", () => this.moveTo(Infinity))), this.slider, part("line"), part("crumbs"))),
			el("div", {}, el("nav", { "aria-label": "views" }, this.tabs.map(([, tab]) => tab)), this.panel)));
	}

	show() {
		const focused = document.activeElement?.dataset.key, title = T.titles[this.view];
		this.turn += 1;
		for (const [view, tab] of this.tabs) tab.setAttribute("aria-current", view === this.view ? "page" : "false");
		this.drawBoard();
		this.showTime();
		this.status.textContent = this.warning || this.summary();
		this.panel.setAttribute("aria-label", title);
		this.panel.replaceChildren(el("h2", {}, title), ...this.content().filter((node) => node));
		if (focused && document.activeElement?.dataset.key !== focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
		this.toHash();
		this.warning = "";
	}

	content() {
		if (!["find", "play", "about"].includes(this.view)) {
			if (this.isOver(this.s, this.t)) return [note(T.is_over, num(this.model.theory.terminal_value), ".")];
			if (this.hidden()) return [note(T.hidden)];
		}
		try { return VIEWS[this.view](this); } catch (error) { return trouble(error); }
	}

	summary() {
		const { model, s, t } = this, when = `Step ${t}${model.horizon === null ? "" : ` of ${model.horizon}, ${this.stepsLeft()} left`}: state ${model.number[s]}`;
		if (this.isOver(s, t)) return `${when}, over.`;
		try {
			const { pi_r } = this.decision(), best = pi_r.indexOf(Math.max(...pi_r));
			return this.hidden() ? when : `${when}, robots: ${model.robotNames[best]} with ${short(pi_r[best])}.`;
		} catch (error) { return `${when}. ${error.message}`; }
	}

	// A value of a goal, for the heat map and the table.
	goalValue(kind, g) {
		const { model, s, t } = this, value = (name) => model[name] && !this.isOver(s, t) ? model.stored(name, s, t, g) : NaN;
		return kind === "difference" ? value("v_e") - value("v_m") : value(kind);
	}

	robotPolicies() {
		const { robots, agents } = this.model.world, policies = {};
		if (this.isOver(this.s, this.t) || this.hidden()) return policies;
		try {
			const { pi_r } = this.decision();
			robots.forEach((agent, i) => { policies[agent] = agents[agent].actions.map((_, a) => pi_r.reduce((total, p, r) => total + (this.model.robotDigits[r][i] === a ? p : 0), 0)); });
		} catch (error) { trouble(error); }
		return policies;
	}

	drawBoard() {
		const { model, board, s, parts, canvas, map } = this, h = model.whose[this.goal], own = model.goalsOf[h], { humans, agents } = model.world, isMap = board.isGrid && map !== "none";
		parts.picks.replaceChildren(choice("human", humans.map((i, each) => [each, agents[i].name]), h, (value) => this.select({ goal: model.goalsOf[value][0] }), "human"),
			choice("goal", own.map((g) => [g, model.goals[g].name]), this.goal, (goal) => this.select({ goal }), "goal"),
			board.isGrid ? choice("heat map", T.maps.filter(([id]) => model.v_m || id === "v_e" || id === "none"), map, (value) => this.select({ map: value }), "map") : "");
		canvas.hidden = !board.drawable(s);
		if (!canvas.hidden) {
			const width = Math.max(160, Math.min(560, parts.picks.clientWidth, board.isGrid ? board.picture.width * 96 : Infinity));
			board.draw(canvas, s, width, { values: isMap && board.heatMap(own, (g) => this.goalValue(map, g)), policies: this.robotPolicies(), goal: this.goal });
			canvas.setAttribute("aria-label", `state ${model.number[s]}`);
			canvas.classList.toggle("over", this.isOver(s, this.t));
		}
		parts.legend.replaceChildren(...isMap ? legend(map === "difference") : []);
		const goals = model.goals.map((_, g) => [model.goalName(g), el("span", {}, num(this.goalValue("v_e", g)), bar(this.goalValue("v_e", g))), num(this.goalValue("v_m", g)), model.has(s, g) ? "achieved" : ""]);
		const text = el("pre", {}, board.text(s));
		parts.text.replaceChildren(canvas.hidden ? text : this.details(T.in_words, text), this.details(T.table, table("Goals", ["goal", "V^e", "V^m", ""], goals)));
	}

	showTime() {
		const { model, path, t, parts } = this, at = t - model.first;
		Object.assign(this.slider, { max: path.length - 1, value: at });
		parts.line.replaceChildren(...this.sparkline("V_r", (s, time) => model.v_r[model.row(s, time)]), ...this.sparkline("U_r", (s, time) => model.reward(model.attainable(s, time)).u_r));
		parts.crumbs.replaceChildren(...path.map(({ joint }, i) => {
			const past = joint !== undefined && i <= at, said = past ? model.world.robots.map((agent) => model.world.agents[agent].actions[model.action(joint, agent)]).join(" + ") : "";
			return button(`${model.first + i}${said && ": "}${said}`, () => this.moveTo(i), { class: i > at ? "crumb later" : "crumb", key: `crumb${i}`, "aria-current": i === at && "step", title: past && this.jointName(joint) });
		}).filter((each) => each));
	}

	// A value along the path.
	sparkline(name, value) {
		const { model, path } = this, values = Array.from(path, (each, i) => each && model.alive(each.s, model.first + i) && each.s !== NOT_KEPT ? value(each.s, model.first + i) : NaN);
		const real = values.filter(Number.isFinite), low = Math.min(...real), span = Math.max(...real) - low || 1, now = this.t - model.first;
		const point = (v, i) => [4 + 192 * i / Math.max(1, values.length - 1), 28 - 24 * (v - low) / span];
		const svg = (tag, attributes, ...children) => { const made = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const each of Object.entries(attributes)) made.setAttribute(...each); made.append(...children); return made; };
		const [cx, cy] = Number.isFinite(values[now]) ? point(values[now], now) : [-9, -9];
		return [el("div", {}, `${name} `, num(values[now]), svg("svg", { viewBox: "0 0 200 32", "aria-hidden": "true", preserveAspectRatio: "none" },
			svg("polyline", { points: values.map(point).filter(([, y]) => Number.isFinite(y)).join(" ") }), svg("circle", { cx, cy, r: 3.5 })))];
	}

	// Something that stays open, once it is, whatever is selected.
	details(title, ...children) {
		const ontoggle = ({ target }) => this.opened[target.open ? "add" : "delete"](title);
		return el("details", { open: this.opened.has(title), ontoggle }, el("summary", { key: title }, title), children);
	}

	// Fills an element when work is done, unless the selection has changed by then.
	later(id, work) {
		const { turn } = this;
		let rested = performance.now();
		const pause = async () => {
			if (performance.now() - rested < REST_MS) return;
			await new Promise((resolve) => { setTimeout(resolve); });
			if (turn !== this.turn) throw new Cancelled();
			rested = performance.now();
		};
		queueMicrotask(async () => {
			const nodes = await work(pause).catch((error) => error instanceof Cancelled ? [] : trouble(error)), place = document.getElementById(id);
			if (turn !== this.turn || !place) return;
			place.replaceChildren(...nodes);
			delete place.dataset.busy;
		});
	}
}

function copyAllDigits(event) {
	const chosen = getSelection();
	if (!chosen.rangeCount || /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) return;
	const range = chosen.getRangeAt(0), part = range.cloneContents(), inside = range.commonAncestorContainer.parentElement?.closest("data");
	part.querySelectorAll("data").forEach((each) => { each.textContent = each.value; });
	if (!inside && !part.querySelector("data")) return;
	event.clipboardData.setData("text/plain", inside ? inside.value : part.textContent);
	event.preventDefault();
}

export async function start(say) {
	const { dataset } = document.documentElement;
	try {
		const { header, arrays } = await decode(document.getElementById("data").textContent);
		globalThis.inspector = new App(new Model(header, arrays), say);
		dataset.ready = "yes";
	} catch (error) {
		document.getElementById("app").replaceChildren(el("p", { class: "banner", role: "alert" }, `This page cannot show its data: ${error.message}.`));
		dataset.ready = "no";
	}
}
