// The page: one selection, which all views show.

const VIEWS = {robot: robotView, next: successorsView, why: whyView, human: humanView, find: findView, play: playView, about: aboutView, errors: errorsView};
const LONGEST = 1000, FRAME_MS = 700, REST_MS = 15;

const byId = (id) => document.getElementById(id);

class App {
	constructor() {
		const draft = {first: m.humans[0], second: -1, seed: 0, goals: {}, guess: 0};
		Object.assign(this, {draft, board: new Board(), filter: {}, opened: new Set([T.decisive]), reasonsOf: new Map(), theory: null, game: null, turn: 0, parts: {}});
		Object.assign(this, {view: "robot", map: "v_e", goal: 0, search: {goal: -1, time: -1, text: ""}, start: m.header.kept.start});
		this.skeleton();
		this.goTo(this.start, m.first, false);
		this.fromHash();
		addEventListener("hashchange", () => {if (location.hash !== this.hash) {this.fromHash(); this.hash = ""; this.show();}});
		addEventListener("resize", () => this.drawBoard());
		addEventListener("keydown", (e) => this.key(e));
		document.addEventListener("copy", copyAllDigits);
		this.show();
	}

	stepsLeft() {return m.horizon === null ? null : m.horizon - this.t;}

	isOver(s, t) {return !m.alive(s, t);}

	decision() {
		const {s, t} = this;
		if (this.decided?.s !== s || this.decided.t !== t) this.decided = {s, t, found: m.decision(s, t)};
		return this.decided.found;
	}

	whatIf() {return this.theory && m.decision(this.s, this.t, this.theory);}

	right() {return attempt(() => m.right?.decision(this.s, this.t));}

	link(s, t, key) {return button(`${m.number[s]}${m.horizon === null ? "" : ` at ${t}`}`, () => this.goTo(s, t), {class: "link", key});}

	actions() {return compared(this.decision(), this.a, this.b);}

	async reasons(pair, pause) {
		const key = `${this.s} ${this.t} ${pair}`, found = this.reasonsOf.get(key) ?? await explain(this.s, this.t, ...pair, pause);
		this.reasonsOf.set(key, found);
		return found;
	}

	jointName(joint) {
		return m.agents.map(({name, actions}, i) => `${name}: ${actions[m.action(joint, i)]}`).join(", ");
	}

	hidden() {return this.game?.guess > 0;}

	async found(limit, pause) {
		const {board, search: {goal, time, text}} = this, hits = [], words = text.toLowerCase().split(";").map((word) => word.trim()).filter(Boolean);
		for (let s = 0; s < m.S && hits.length < limit; s++) {
			await pause();
			const said = words.length > 0 && board.text(s).toLowerCase(), times = m.goesOn(s) || m.horizon === null ? m.header.kept.times : [m.horizon];
			const t = times.find((each) => (time < 0 || each === time) && m.known(s, each));
			if (t !== undefined && (goal < 0 || m.has(s, goal)) && words.every((word) => word === `${m.number[s]}` || said.includes(word))) hits.push([s, t]);
		}
		return hits;
	}

	pick(label, options, at, name, value = at[name] ?? -1) {
		return choice(label, options, value, (chosen) => {at[name] = chosen; this.show();});
	}

	select(changes) {Object.assign(this, changes); this.show();}

	assume(changes) {this.select({theory: changes && {...m.theory, ...this.theory, ...changes}});}

	goTo(s, t, shows = true) {
		const i = t - m.first;
		if (this.path?.[i]?.s !== s) {
			this.path = [];
			this.path[i] = {s};
			this.extend();
		}
		Object.assign(this, {s, t, a: null, b: null});
		if (shows) this.show();
	}

	step(s, joint) {
		this.path.length = this.t - m.first + 1;
		this.path.push({s, joint});
		this.extend();
		this.goTo(s, this.t + 1);
	}

	// Goes on with the likeliest states.
	extend() {
		const {path} = this, now = () => [path.at(-1).s, m.first + path.length - 1];
		while (path.length < LONGEST && !this.isOver(...now())) {
			const found = new Map(), policies = attempt(() => m.policies(...now()));
			if (!policies) return;
			for (const [slot, next, code, p, r] of m.transitions(now()[0])) {
				const mass = policies.chance[p] * policies.pi_r[r] * m.prob[code], all = found.get(next) ?? {total: 0, most: -1};
				all.total += mass;
				if (mass > all.most) Object.assign(all, {most: mass, joint: m.joint[slot]});
				found.set(next, all);
			}
			const [s, {joint}] = [...found].reduce((x, y) => y[1].total > x[1].total ? y : x);
			path.push({s, joint});
		}
	}

	moveTo(i) {
		const {path} = this, at = max(path.findIndex((each) => each), min(path.length - 1, i));
		this.goTo(path[at].s, m.first + at);
	}

	move(by) {this.moveTo(this.t - m.first + by);}

	run() {
		const isLast = () => this.t - m.first >= this.path.length - 1, goes = !this.timer && !isLast();
		clearInterval(this.timer);
		this.timer = goes && setInterval(() => {this.move(1); if (isLast()) this.run();}, FRAME_MS);
		this.parts.pause.textContent = goes ? "pause" : "play";
	}

	fromHash() {
		const given = new URLSearchParams(location.hash.slice(1));
		const whole = (name, end) => /^\d+$/.test(given.get(name) ?? "") && +given.get(name) < end ? +given.get(name) : null;
		const s = m.index.get(whole("s", 2 ** 31)), t = whole("t", (m.horizon ?? LONGEST) + 1);
		if (s !== undefined && t !== null && t >= m.first && m.known(s, t)) this.goTo(s, t, false);
		else if (given.has("s")) this.warning = T.bad_link;
		this.goal = whole("g", m.G) ?? m.goalsOf[whole("h", m.H)]?.[0] ?? this.goal;
		Object.assign(this, {a: whole("a", m.R), b: whole("b", m.R)});
		if (this.tabs.some((tab) => tab.dataset.view === given.get("v"))) this.view = given.get("v");
	}

	toHash() {
		const {s, t, goal: g, a, b, view: v} = this, parts = Object.entries({s: m.number[s], t, h: m.whose[g], g, a, b, v});
		const hash = `#${parts.filter(([, value]) => value !== null).map((pair) => pair.join("=")).join("&")}`, isFirst = !this.hash;
		if (hash === this.hash) return;
		this.hash = hash;
		// A mere "#..." would lead a frame without an address to the page around it.
		if (isFirst) location.replace(location.href.split("#")[0] + hash); else location.hash = hash;
	}

	startGame(from) {
		const {first, second, seed, goals, guess} = this.draft, chosen = Object.fromEntries(Object.entries(goals).filter(([, g]) => g >= 0));
		if (from) this.goTo(...from === true ? [this.start, m.first] : from, false);
		this.game = {mine: [...new Set([first, second])].filter((i) => i >= 0), seed, guess, told: {}, moves: [], says: "", begin: [this.s, this.t], episode: new Episode(seed, chosen)};
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
		Object.assign(game, {before: this.decision().pi_r, says: fill(T.last_step, {actions: this.jointName(done.joint)})});
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
		const {game} = this, n = m.rows.length / m.S, row = (s) => Array.from(m.rows.subarray(s * n, (s + 1) * n), Number);
		return {world: m.name, theory: m.header.provenance.theory, seed: game.seed, goals: game.episode.goals, played: game.mine, time: game.begin[1],
			steps: [...game.moves, {s: this.s, joint: null}].map(({s, joint}) => ({row: row(s), joint}))};
	}

	actionOf(agent, key) {
		const names = m.agents[agent].actions.map((name) => name.toLowerCase());
		return T.words[key]?.map((word) => names.indexOf(word)).find((a) => a >= 0);
	}

	keyName(agent, action, place) {
		const key = Object.keys(T.words).find((each) => this.actionOf(agent, each) === action);
		return place ? Object.keys(T.second).find((each) => T.second[each] === key)?.toUpperCase() ?? "" : T.signs[key] ?? action + 1;
	}

	key(e) {
		const {game, view} = this, {key, target} = e;
		if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
		const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[key], does = by ? () => this.move(by) : key === "p" && (() => this.run());
		let done = /^Arrow/.test(key) && target.closest?.(".wide") ? null : does;
		if (game && view === "play") {
			const other = game.mine.length > 1 && T.second[key.toLowerCase()], agent = game.mine[other ? 1 : 0];
			const action = /^[1-9]$/.test(key) && key <= m.agents[agent].actions.length ? key - 1 : this.actionOf(agent, other || key);
			done = action !== undefined ? () => this.act(agent, action) : key === "Backspace" && (() => this.undo());
		} else if (/^[1-8]$/.test(key)) done = () => this.tabs[key - 1]?.click();
		if (!done) return;
		e.preventDefault();
		done();
	}

	skeleton() {
		const {parts} = this, all = (name) => [...document.querySelectorAll(`[data-${name}]`)];
		for (const name of "run status picks canvas legend text pause slider crumbs panel".split(" ")) parts[name] = byId(name);
		num.rounded = m.header.precision === "compact";
		parts.run.textContent = m.header.provenance.run;
		parts.pause.onclick = () => this.run();
		parts.slider.oninput = () => this.moveTo(+parts.slider.value);
		byId("errors").hidden = !m.q_r;
		this.tabs = all("view").filter((tab) => !tab.hidden);
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
		if (!T.plain.includes(this.view)) {
			if (this.isOver(this.s, this.t)) return [note(T.is_over, num(m.theory.terminal_value), ".")];
			if (this.hidden()) return [note(T.hidden)];
		}
		try {return VIEWS[this.view](this);} catch (error) {return trouble(error);}
	}

	summary() {
		const {s, t} = this, when = `Step ${t}${m.horizon === null ? "" : ` of ${m.horizon}, ${this.stepsLeft()} left`}: state ${m.number[s]}`;
		if (this.isOver(s, t)) return `${when}, over.`;
		try {
			const {pi_r} = this.decision(), best = pi_r.indexOf(max(...pi_r));
			return this.hidden() ? when : `${when}, robots: ${m.robot_actions[best]} with ${short(pi_r[best])}.`;
		} catch (error) {return `${when}. ${error.message}`;}
	}

	goalValue(g, name, less) {
		const {s, t} = this;
		return m[name] && !this.isOver(s, t) ? m.stored(name, s, t, g) - (less ? this.goalValue(g, less) : 0) : NaN;
	}

	robotPolicies() {
		const {robots, agents, robot_digits} = m, found = !this.isOver(this.s, this.t) && !this.hidden() && attempt(() => this.decision()), policies = {};
		if (found) robots.forEach((agent, i) => {policies[agent] = agents[agent].actions.map((_, a) => sum(found.pi_r.filter((_, r) => robot_digits[r][i] === a)));});
		return policies;
	}

	drawBoard() {
		const {board, s, parts, map} = this, {canvas} = parts, own = m.goalsOf[m.whose[this.goal]], maps = T.maps.filter(([,, ...names]) => names.every((name) => m[name]));
		const [,, ...mapped] = maps.find(([id]) => id === map) ?? maps[0], isMap = board.isGrid && mapped.length > 0;
		parts.picks.replaceChildren(this.pick("goal", m.goals.map((_, g) => [g, m.goalName(g)]), this, "goal"), board.isGrid ? this.pick("heat map", maps, this, "map") : "");
		const values = isMap && board.heatMap(own, (g) => this.goalValue(g, ...mapped));
		const scale = map === "error" ? max(1e-12, ...[...values].filter((v) => !isNaN(v)).map(abs)) : 1;
		canvas.hidden = !board.drawable(s);
		if (!canvas.hidden) {
			const width = max(160, min(560, parts.picks.clientWidth, board.isGrid ? board.picture.width * 96 : Infinity));
			board.draw(canvas, s, width, {values, scale, policies: this.robotPolicies(), goal: this.goal});
			canvas.setAttribute("aria-label", `state ${m.number[s]}`);
			canvas.classList.toggle("over", this.isOver(s, this.t));
		}
		parts.legend.replaceChildren(...isMap ? legend(mapped.length > 1, scale) : []);
		const value = (...names) => m[names.at(-1)] && ((_, g) => this.goalValue(g, ...names));
		const goals = table("Goals", [["goal", (_, g) => m.goalName(g)], numbers("V^e", value("v_e")), bars(value("v_e")), numbers("V^m", value("v_m")),
			numbers("V^e, exact", value("exact_v_e")), numbers(T.minus_exact, value("v_e", "exact_v_e")), ["", (_, g) => m.has(s, g) && "achieved"]], m.goals);
		const text = el("pre", board.text(s));
		parts.text.replaceChildren(canvas.hidden ? text : this.details(T.in_words, text), this.details(T.table, goals));
	}

	showTime() {
		const {path, t, parts} = this, at = t - m.first;
		Object.assign(parts.slider, {max: path.length - 1, value: at});
		this.sparkline("V_r", (s, time) => m.v_r[m.row(s, time)]);
		this.sparkline("U_r", (s, time) => m.reward(m.attainable(s, time)).u_r);
		parts.crumbs.replaceChildren(...path.map(({joint}, i) => {
			const past = joint !== undefined && i <= at, said = past ? m.robots.map((agent) => m.agents[agent].actions[m.action(joint, agent)]).join(" + ") : "";
			return button(`${m.first + i}${said && ": "}${said}`, () => this.moveTo(i), {class: i > at ? "crumb later" : "crumb", key: `crumb${i}`, "aria-current": i === at && "step", title: past && this.jointName(joint)});
		}).filter((each) => each));
	}

	sparkline(name, value) {
		const {path} = this, {first} = m, values = Array.from(path, (each, i) => each && m.alive(each.s, first + i) ? value(each.s, first + i) : NaN), now = this.t - first;
		const real = values.filter(isFinite), low = min(...real), span = max(...real) - low || 1;
		const points = values.map((v, i) => isFinite(v) && [4 + 192 * i / max(1, values.length - 1), 28 - 24 * (v - low) / span]), [words, {children: [line, dot]}] = byId(name).children;
		words.replaceChildren(`${name} `, num(values[now]));
		line.setAttribute("points", points.filter(Boolean).join(" "));
		["cx", "cy"].forEach((side, i) => dot.setAttribute(side, points[now]?.[i] ?? -9));
	}

	details(title, ...children) {
		const ontoggle = ({target}) => this.opened[target.open ? "add" : "delete"](title);
		return el("details", {open: this.opened.has(title), ontoggle}, el("summary", {key: title}, title), children);
	}

	// An element that work fills, unless the selection has changed by then.
	later(kind, id, work) {
		const {turn} = this, place = el(kind, {id, "data-busy": ""}, note(T.working));
		let rested = performance.now();
		const pause = async () => {
			if (performance.now() - rested < REST_MS) return;
			await new Promise((done) => setTimeout(done));
			if (turn !== this.turn) throw this;
			rested = performance.now();
		};
		queueMicrotask(async () => {
			place.replaceChildren(...await work(pause).catch((error) => error === this ? [] : trouble(error)));
			delete place.dataset.busy;
		});
		return place;
	}
}

function copyAllDigits(e) {
	const chosen = getSelection(), range = chosen.rangeCount && chosen.getRangeAt(0), part = range && range.cloneContents();
	const inside = range && range.commonAncestorContainer.parentElement?.closest("data");
	if (!range || !inside && !part.querySelector("data") || /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) return;
	part.querySelectorAll("data").forEach((each) => {each.textContent = each.value;});
	e.clipboardData.setData("text/plain", inside ? inside.value : part.textContent);
	e.preventDefault();
}

async function start() {
	const {dataset} = document.documentElement;
	try {
		const {header, arrays} = await decode(byId("data").textContent);
		m = new Model(header, arrays);
		globalThis.inspector = new App();
		dataset.ready = "yes";
	} catch (error) {
		byId("app").replaceChildren(el("p.banner", {role: "alert"}, fill(T.cannot_show, {error: error.message})));
		dataset.ready = "no";
	}
}
