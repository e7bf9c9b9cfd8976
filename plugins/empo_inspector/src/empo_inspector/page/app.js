// The page: one selection of state, time, goal and actions, which all views show.

import T from "./texts.json" with {type: "json"};
import {Board, legend} from "./board.js";
import {decode} from "./container.js";
import {LeftOut, Model, NOT_KEPT} from "./decision.js";
import {bar, button, choice, el, max, min, note, num, short, table} from "./parts.js";
import {Episode} from "./play.js";
import {compared} from "./sentences.js";
import {aboutView, findView, humanView, playView, robotView, successorsView, trouble, whyView} from "./views.js";
import {explain} from "./why.js";

const VIEWS = {robot: robotView, next: successorsView, why: whyView, human: humanView, find: findView, play: playView, about: aboutView};
const LONGEST = 1000, FRAME_MS = 700, REST_MS = 30;

const byId = (id) => document.getElementById(id);

export class App {
	constructor(m, say) {
		const draft = {first: m.humans[0], second: -1, seed: 0, goals: {}, guess: false};
		Object.assign(this, {m, say, draft, board: new Board(m), filter: {}, opened: new Set([T.decisive]), reasonsOf: new Map(), theory: null, game: null, turn: 0, parts: {}});
		Object.assign(this, {view: "robot", map: "v_e", goal: 0, search: {at: {}, goal: -1, text: ""}, start: m.header.kept.start});
		this.skeleton();
		this.goTo(this.start, m.first, false);
		this.fromHash();
		addEventListener("hashchange", () => {if (location.hash !== this.hash) {this.fromHash(); this.hash = ""; this.show();}});
		addEventListener("resize", () => this.drawBoard());
		addEventListener("keydown", (e) => this.key(e));
		document.addEventListener("copy", copyAllDigits);
		this.show();
	}

	stepsLeft() {return this.m.horizon === null ? null : this.m.horizon - this.t;}

	isOver(s, t) {return !this.m.alive(s, t);}

	decision() {
		const {s, t} = this;
		if (this.decided?.s !== s || this.decided.t !== t) this.decided = {s, t, found: this.m.decision(s, t)};
		return this.decided.found;
	}

	whatIf() {return this.theory && this.m.decision(this.s, this.t, this.theory);}

	actions() {return compared(this.decision(), this.a, this.b);}

	async reasons(pair, pause) {
		const key = `${this.s} ${this.t} ${pair}`, found = this.reasonsOf.get(key) ?? await explain(this.m, this.s, this.t, ...pair, pause);
		this.reasonsOf.set(key, found);
		return found;
	}

	jointName(joint) {
		return this.m.agents.map(({name, actions}, i) => `${name}: ${actions[this.m.action(joint, i)]}`).join(", ");
	}

	hidden() {return Boolean(this.game?.guess);}

	found(limit) {
		const {m, board, search} = this, hits = [], words = search.text.trim().toLowerCase();
		const places = Object.entries(search.at).filter(([, text]) => text.trim()).map(([i, text]) => [+i, text.replace(/[()\s]/g, "")]);
		for (let s = 0; s < m.S && hits.length < limit; s++) {
			const fits = places.every(([i, text]) => `${board.at(board.ofAgent("places", s, i))}` === text) && (search.goal < 0 || m.has(s, search.goal))
				&& (!words || words === `${m.number[s]}` || board.text(s).toLowerCase().includes(words));
			let t = m.goesOn(s) || m.horizon === null ? m.first : m.horizon;
			while (fits && !m.known(s, t)) t += 1;
			if (fits) hits.push([s, t]);
		}
		return hits;
	}

	select(changes) {Object.assign(this, changes); this.show();}

	assume(changes) {this.select({theory: changes && {...this.m.theory, ...this.theory, ...changes}});}

	goTo(s, t, shows = true) {
		const i = t - this.m.first;
		if (this.path?.[i]?.s !== s) {
			this.path = [];
			this.path[i] = {s};
			this.extend();
		}
		Object.assign(this, {s, t, a: null, b: null});
		if (shows) this.show();
	}

	step(s, joint) {
		this.path.length = this.t - this.m.first + 1;
		this.path.push({s, joint});
		this.extend();
		this.goTo(s, this.t + 1);
	}

	// Goes on with the likeliest next state at each step.
	extend() {
		const {m, path} = this;
		try {
			while (path.length < LONGEST) {
				const {s} = path.at(-1), t = m.first + path.length - 1, found = new Map();
				if (this.isOver(s, t)) return;
				const {chance, pi_r} = m.policies(s, t);
				for (const [slot, next, code, p, r] of m.transitions(s)) {
					const mass = chance[p] * pi_r[r] * m.prob[code], all = found.get(next) ?? {total: 0, most: -1};
					all.total += mass;
					if (mass > all.most) Object.assign(all, {most: mass, joint: m.joint[slot]});
					found.set(next, all);
				}
				const [next, {joint}] = [...found].reduce((x, y) => y[1].total > x[1].total ? y : x);
				path.push({s: next, joint});
			}
		} catch (error) {trouble(error);}
	}

	moveTo(i) {
		const at = max(this.path.findIndex((each) => each), min(this.path.length - 1, i));
		this.goTo(this.path[at].s, this.m.first + at);
	}

	move(by) {this.moveTo(this.t - this.m.first + by);}

	run() {
		const isLast = () => this.t - this.m.first >= this.path.length - 1, goes = !this.timer && !isLast();
		clearInterval(this.timer);
		this.timer = goes && setInterval(() => {this.move(1); if (isLast()) this.run();}, FRAME_MS);
		this.parts.pause.textContent = goes ? "pause" : "play";
	}

	fromHash() {
		const given = new URLSearchParams(location.hash.slice(1)), {m} = this;
		const whole = (name, end) => /^\d+$/.test(given.get(name) ?? "") && +given.get(name) < end ? +given.get(name) : null;
		const s = m.index.get(whole("s", 2 ** 31)), t = whole("t", (m.horizon ?? LONGEST) + 1);
		if (s !== undefined && t !== null && t >= m.first && m.known(s, t)) this.goTo(s, t, false);
		else if (given.has("s")) this.warning = T.bad_link;
		this.goal = whole("g", m.G) ?? m.goalsOf[whole("h", m.H)]?.[0] ?? this.goal;
		Object.assign(this, {a: whole("a", m.R), b: whole("b", m.R)});
		if (Object.hasOwn(VIEWS, given.get("v"))) this.view = given.get("v");
	}

	toHash() {
		const {m, s, t, goal: g, a, b, view: v} = this, parts = Object.entries({s: m.number[s], t, h: m.whose[g], g, a, b, v});
		const hash = `#${parts.filter(([, value]) => value !== null).map((pair) => pair.join("=")).join("&")}`, isFirst = !this.hash;
		if (hash === this.hash) return;
		this.hash = hash;
		// A mere "#..." would lead a frame without an address to the page around it.
		if (isFirst) location.replace(location.href.split("#")[0] + hash); else location.hash = hash;
	}

	startGame(from) {
		const {first, second, seed, goals, guess} = this.draft, chosen = Object.fromEntries(Object.entries(goals).filter(([, g]) => g >= 0));
		if (from) this.goTo(...from === true ? [this.start, this.m.first] : from, false);
		this.game = {mine: [...new Set([first, second])].filter((i) => i >= 0), seed, guess, told: {}, moves: [], says: "", begin: [this.s, this.t], episode: new Episode(this.m, seed, chosen)};
		this.select({view: "play"});
	}

	act(agent, action) {
		const {game, s, t} = this, {random} = game.episode, before = random.state;
		if (this.isOver(s, t)) return;
		game.told[agent] = action;
		if (game.mine.some((i) => !(i in game.told))) {this.show(); return;}
		const done = game.episode.step(s, t, game.told);
		game.told = {};
		if (!done || done.successor === NOT_KEPT) {
			random.state = before;
			game.says = done ? T.not_kept : T.unavailable;
			this.show();
			return;
		}
		game.moves.push({s, t, joint: done.joint, random: before});
		Object.assign(game, {before: this.decision().pi_r, says: `Last step: ${this.jointName(done.joint)}.`});
		this.step(done.successor, done.joint);
	}

	undo() {
		const {game} = this, move = game.moves.pop();
		if (!move) return;
		Object.assign(game, {before: null, says: "", told: {}});
		game.episode.random.state = move.random;
		this.goTo(move.s, move.t);
	}

	record() {
		const {m, game} = this, n = m.rows.length / m.S, row = (s) => Array.from(m.rows.subarray(s * n, (s + 1) * n), Number);
		return {world: m.name, theory: m.header.provenance.theory, seed: game.seed, goals: game.episode.goals, played: game.mine, time: game.begin[1],
			steps: [...game.moves, {s: this.s, joint: null}].map(({s, joint}) => ({row: row(s), joint}))};
	}

	// The action that a direction stands for.
	actionOf(agent, key) {
		const names = this.m.agents[agent].actions.map((name) => name.toLowerCase());
		return T.words[key]?.map((word) => names.indexOf(word)).find((a) => a >= 0);
	}

	keyName(agent, action, place) {
		const key = Object.keys(T.words).find((each) => this.actionOf(agent, each) === action);
		return place ? Object.keys(T.second).find((each) => T.second[each] === key)?.toUpperCase() ?? "" : T.signs[key] ?? action + 1;
	}

	key(e) {
		const {game, view} = this, {key, target} = e;
		if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
		const does = {ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1), Home: () => this.moveTo(0), End: () => this.moveTo(Infinity), p: () => this.run()};
		let done = /^Arrow/.test(key) && target.closest?.(".wide") ? null : does[key];
		if (game && view === "play") {
			const other = game.mine.length > 1 && T.second[key.toLowerCase()], agent = game.mine[other ? 1 : 0];
			const action = /^[1-9]$/.test(key) && key <= this.m.agents[agent].actions.length ? key - 1 : this.actionOf(agent, other || key);
			done = action !== undefined ? () => this.act(agent, action) : key === "Backspace" && (() => this.undo());
		} else if (/^[1-7]$/.test(key)) done = () => this.select({view: Object.keys(VIEWS)[key - 1]});
		if (!done) return;
		e.preventDefault();
		done();
	}

	skeleton() {
		const {parts} = this, all = (name) => [...document.querySelectorAll(`[data-${name}]`)];
		for (const name of "run status picks canvas legend text pause slider crumbs panel".split(" ")) parts[name] = byId(name);
		parts.run.textContent = this.m.header.provenance.run;
		parts.pause.onclick = () => this.run();
		parts.slider.oninput = () => this.moveTo(+parts.slider.value);
		this.tabs = all("view");
		for (const each of all("by")) each.onclick = () => this.move(+each.dataset.by);
		for (const tab of this.tabs) tab.onclick = () => this.select({view: tab.dataset.view});
		document.querySelector("main").hidden = false;
	}

	show() {
		const focused = document.activeElement?.dataset.key, tab = this.tabs.find((each) => each.dataset.view === this.view), {parts} = this;
		this.turn += 1;
		for (const each of this.tabs) each.setAttribute("aria-current", each === tab ? "page" : "false");
		this.drawBoard();
		this.showTime();
		parts.status.textContent = this.warning || this.summary();
		parts.panel.setAttribute("aria-label", tab.textContent);
		parts.panel.replaceChildren(el("h2", tab.textContent), ...this.content().filter((node) => node));
		if (focused && document.activeElement?.dataset.key !== focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
		this.toHash();
		this.warning = "";
	}

	content() {
		if (!["find", "play", "about"].includes(this.view)) {
			if (this.isOver(this.s, this.t)) return [note(T.is_over, num(this.m.theory.terminal_value), ".")];
			if (this.hidden()) return [note(T.hidden)];
		}
		try {return VIEWS[this.view](this);} catch (error) {return trouble(error);}
	}

	summary() {
		const {m, s, t} = this, when = `Step ${t}${m.horizon === null ? "" : ` of ${m.horizon}, ${this.stepsLeft()} left`}: state ${m.number[s]}`;
		if (this.isOver(s, t)) return `${when}, over.`;
		try {
			const {pi_r} = this.decision(), best = pi_r.indexOf(max(...pi_r));
			return this.hidden() ? when : `${when}, robots: ${m.robotNames[best]} with ${short(pi_r[best])}.`;
		} catch (error) {return `${when}. ${error.message}`;}
	}

	// A value of a goal, for the heat map and the table.
	goalValue(kind, g) {
		const {m, s, t} = this, value = (name) => m[name] && !this.isOver(s, t) ? m.stored(name, s, t, g) : NaN;
		return kind === "difference" ? value("v_e") - value("v_m") : value(kind);
	}

	robotPolicies() {
		const {robots, agents} = this.m, policies = {};
		if (this.isOver(this.s, this.t) || this.hidden()) return policies;
		try {
			const {pi_r} = this.decision();
			robots.forEach((agent, i) => {policies[agent] = agents[agent].actions.map((_, a) => pi_r.reduce((total, p, r) => total + (this.m.robotDigits[r][i] === a ? p : 0), 0));});
		} catch (error) {trouble(error);}
		return policies;
	}

	drawBoard() {
		const {m, board, s, parts, map} = this, {canvas} = parts, h = m.whose[this.goal], own = m.goalsOf[h], {humans, agents} = m, isMap = board.isGrid && map !== "none";
		parts.picks.replaceChildren(choice("human", humans.map((i, each) => [each, agents[i].name]), h, (value) => this.select({goal: m.goalsOf[value][0]}), "human"),
			choice("goal", own.map((g) => [g, m.goals[g].name]), this.goal, (goal) => this.select({goal}), "goal"),
			board.isGrid ? choice("heat map", T.maps.filter(([id]) => m.v_m || id === "v_e" || id === "none"), map, (value) => this.select({map: value}), "map") : "");
		canvas.hidden = !board.drawable(s);
		if (!canvas.hidden) {
			const width = max(160, min(560, parts.picks.clientWidth, board.isGrid ? board.picture.width * 96 : Infinity));
			board.draw(canvas, s, width, {values: isMap && board.heatMap(own, (g) => this.goalValue(map, g)), policies: this.robotPolicies(), goal: this.goal});
			canvas.setAttribute("aria-label", `state ${m.number[s]}`);
			canvas.classList.toggle("over", this.isOver(s, this.t));
		}
		parts.legend.replaceChildren(...isMap ? legend(map === "difference") : []);
		const goals = m.goals.map((_, g) => [m.goalName(g), el("span", num(this.goalValue("v_e", g)), bar(this.goalValue("v_e", g))), num(this.goalValue("v_m", g)), m.has(s, g) ? "achieved" : ""]);
		const text = el("pre", board.text(s));
		parts.text.replaceChildren(canvas.hidden ? text : this.details(T.in_words, text), this.details(T.table, table("Goals", T.goal_heads, goals)));
	}

	showTime() {
		const {m, path, t, parts} = this, at = t - m.first;
		Object.assign(parts.slider, {max: path.length - 1, value: at});
		this.sparkline("V_r", (s, time) => m.v_r[m.row(s, time)]);
		this.sparkline("U_r", (s, time) => m.reward(m.attainable(s, time)).u_r);
		parts.crumbs.replaceChildren(...path.map(({joint}, i) => {
			const past = joint !== undefined && i <= at, said = past ? m.robots.map((agent) => m.agents[agent].actions[m.action(joint, agent)]).join(" + ") : "";
			return button(`${m.first + i}${said && ": "}${said}`, () => this.moveTo(i), {class: i > at ? "crumb later" : "crumb", key: `crumb${i}`, "aria-current": i === at && "step", title: past && this.jointName(joint)});
		}).filter((each) => each));
	}

	sparkline(name, value) {
		const {m, path} = this, values = Array.from(path, (each, i) => each && m.alive(each.s, m.first + i) ? value(each.s, m.first + i) : NaN), now = this.t - m.first;
		const real = values.filter(isFinite), low = min(...real), span = max(...real) - low || 1, point = (v, i) => [4 + 192 * i / max(1, values.length - 1), 28 - 24 * (v - low) / span];
		const [words, {children: [line, dot]}] = byId(name).children, [x, y] = isFinite(values[now]) ? point(values[now], now) : [-9, -9];
		words.replaceChildren(`${name} `, num(values[now]));
		line.setAttribute("points", values.map(point).filter((each) => isFinite(each[1])).join(" "));
		dot.setAttribute("cx", x);
		dot.setAttribute("cy", y);
	}

	// Something that stays open, once it is, whatever is selected.
	details(title, ...children) {
		const ontoggle = ({target}) => this.opened[target.open ? "add" : "delete"](title);
		return el("details", {open: this.opened.has(title), ontoggle}, el("summary", {key: title}, title), children);
	}

	// Fills an element when work is done, unless the selection has changed by then.
	later(id, work) {
		const {turn} = this;
		let rested = performance.now();
		const pause = async () => {
			if (performance.now() - rested < REST_MS) return;
			await new Promise((done) => setTimeout(done));
			if (turn !== this.turn) throw this; // The answer is not wanted any more.
			rested = performance.now();
		};
		queueMicrotask(async () => {
			const nodes = await work(pause).catch((error) => error === this ? [] : trouble(error)), place = byId(id);
			if (turn !== this.turn || !place) return;
			place.replaceChildren(...nodes);
			delete place.dataset.busy;
		});
	}
}

function copyAllDigits(e) {
	const chosen = getSelection();
	if (!chosen.rangeCount || /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) return;
	const range = chosen.getRangeAt(0), part = range.cloneContents(), inside = range.commonAncestorContainer.parentElement?.closest("data");
	part.querySelectorAll("data").forEach((each) => {each.textContent = each.value;});
	if (!inside && !part.querySelector("data")) return;
	e.clipboardData.setData("text/plain", inside ? inside.value : part.textContent);
	e.preventDefault();
}

export async function start(say) {
	const {dataset} = document.documentElement;
	try {
		const {header, arrays} = await decode(byId("data").textContent);
		globalThis.inspector = new App(new Model(header, arrays), say);
		dataset.ready = "yes";
	} catch (error) {
		byId("app").replaceChildren(el("p.banner", {role: "alert"}, `This page cannot show its data: ${error.message}.`));
		dataset.ready = "no";
	}
}
