// The page: one selection, which all views show.

const VIEWS = {robot: robotView, next: successorsView, why: whyView, human: humanView, find: findView, play: playView, about: aboutView, errors: errorsView, power: powerView};
const LONGEST = 1000, FRAME_MS = 700, REST_MS = 8;

const byId = (id) => document.getElementById(id);
const isField = ({tagName}) => /^(INPUT|SELECT|TEXTAREA)$/.test(tagName);

class App {
	constructor() {
		const draft = {first: m.humans[0], second: -1, seed: 0, goals: {}, guess: 0}, search = {goal: -1, text: ""};
		Object.assign(this, {draft, search, board: new Board(), filter: {}, opened: new Set([T.decisive]), reasonsOf: new Map(), turn: 0, view: "robot", map: "v_e", goal: 0, start: m.header.kept.start});
		this.skeleton();
		this.goTo(this.start, m.first, false);
		this.fromHash();
		addEventListener("hashchange", () => {if (location.hash !== this.hash) {this.fromHash(); this.hash = ""; this.show();}});
		addEventListener("resize", () => this.drawBoard());
		addEventListener("keydown", (e) => this.key(e));
		document.addEventListener("copy", copyAllDigits);
		this.show();
	}

	stepsLeft() {return m.horizon && m.horizon - this.t;}

	decision() {
		const {s, t} = this;
		if (this.decided?.s !== s || this.decided.t !== t) this.decided = {s, t, found: m.decision(s, t)};
		return this.decided.found;
	}

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
		const {board, search: {goal, text}} = this, hits = [], words = text.toLowerCase().trim().split(/\s*;\s*/).filter(Boolean);
		for (let s = 0; s < m.S && hits.length < limit; s++) {
			await pause();
			const said = words.length > 0 && board.text(s).toLowerCase(), t = m.goesOn(s) || m.horizon === null ? m.header.kept.times.find((each) => m.known(s, each)) : m.horizon;
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
		while (path.length < LONGEST && m.alive(...now())) {
			const found = new Map(), policies = attempt(() => m.policies(...now()));
			if (!policies) return;
			for (const {next: s, joint, mass} of m.followed(now()[0], policies)) {
				const all = found.get(s) ?? {s, total: 0, most: -1};
				all.total += mass;
				if (mass > all.most) Object.assign(all, {most: mass, joint});
				found.set(s, all);
			}
			path.push([...found.values()].reduce((x, y) => y.total > x.total ? y : x));
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
		byId("pause").textContent = goes ? "pause" : "play";
		// Nobody can listen to every step; the last one is told.
		byId("status").ariaLive = goes ? "off" : "polite";
		if (!goes) this.show();
	}

	fromHash() {
		const given = new URLSearchParams(location.hash.slice(1));
		const whole = (name, end) => /^\d+$/.test(given.get(name)) && given.get(name) < end ? +given.get(name) : null;
		const s = m.number.indexOf(whole("s", 2 ** 31)), t = whole("t", (m.horizon ?? LONGEST) + 1) ?? -1;
		if (s >= 0 && t >= m.first && m.known(s, t)) this.goTo(s, t, false);
		else if (given.has("s")) this.warning = T.bad_link;
		this.goal = whole("g", m.G) ?? m.goalsOf[whole("h", m.H)]?.[0] ?? this.goal;
		Object.assign(this, {a: whole("a", m.R), b: whole("b", m.R)});
		if (this.tabs.some((tab) => tab.dataset.view === given.get("v"))) this.view = given.get("v");
	}

	toHash() {
		const {s, t, goal: g, a, b, view: v} = this, parts = Object.entries({s: m.number[s], t, h: m.whose[g], g, a, b, v});
		const hash = `#${new URLSearchParams(parts.filter(([, value]) => value !== null))}`, isFirst = !this.hash;
		if (hash === this.hash) return;
		this.hash = hash;
		// A mere "#..." would lead a frame without an address to the page around it.
		if (isFirst) location.replace(location.href.split("#")[0] + hash); else location.hash = hash;
	}

	startGame(begin = [this.start, m.first]) {
		const {first, second, seed, goals, guess} = this.draft;
		this.goTo(...begin, false);
		this.game = {mine: [...new Set([first, second])].filter((i) => i >= 0), seed, guess, told: {}, moves: [], says: "", begin, episode: new Episode(seed, goals)};
		this.select({view: "play"});
		byId("panel").focus();
	}

	act(agent, action) {
		const {game, s, t} = this, {episode} = game, before = episode.state;
		if (!m.alive(s, t)) return;
		game.told[agent] = action;
		if (game.mine.some((i) => !(i in game.told))) {this.show(); return;}
		try {
			const {joint, successor} = episode.step(s, t, game.told);
			game.moves.push({s, t, joint, state: before});
			Object.assign(game, {before: this.decision().pi_r, says: fill(T.last_step, {actions: this.jointName(joint)}), told: {}});
			this.step(successor, joint);
		} catch (error) {
			Object.assign(game, {says: trouble(error), told: {}});
			episode.state = before;
			this.show();
		}
	}

	undo() {
		const {game} = this, move = game.moves.pop();
		if (!move) return;
		Object.assign(game, {before: null, says: "", told: {}});
		game.episode.state = move.state;
		this.goTo(move.s, move.t);
	}

	record() {
		const {game} = this, n = m.rows.length / m.S, row = (s) => Array.from(m.rows.subarray(s * n, (s + 1) * n), Number);
		return {world: m.name, theory: m.header.provenance.theory, seed: game.seed, goals: game.episode.goals, played: game.mine, time: game.begin[1],
			steps: [...game.moves, {s: this.s, joint: null}].map(({s, joint}) => ({row: row(s), joint}))};
	}

	key(e) {
		const {game, view} = this, {key, target} = e, within = (row) => target.closest?.(row);
		if (!byId("keys").checked || e.ctrlKey || e.metaKey || e.altKey || isField(target)) return;
		let done;
		if (within(".time")) {
			const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[key];
			done = by && (() => this.move(by));
		} else if (within("nav")) {
			const tab = /^[1-9]$/.test(key) && this.tabs[key - 1];
			done = tab && (() => {tab.focus(); tab.click();});
		} else if (within("#panel") && game && view === "play") {
			const other = game.mine.length > 1 && T.second[key.toUpperCase()], agent = game.mine[other ? 1 : 0];
			const {keys} = m.agents[agent], action = /^[1-9]$/.test(key) && key <= keys.length ? key - 1 : keys.indexOf(other || T.arrows[key]);
			done = action >= 0 ? () => this.act(agent, action) : key === "Backspace" && (() => this.undo());
		}
		if (!done) return;
		e.preventDefault();
		done();
	}

	skeleton() {
		num.rounded = m.header.precision === "compact";
		byId("run").textContent = [m.header.provenance.run, m.header.provenance.start].filter(Boolean).join("; begins in ");
		byId("pause").onclick = () => this.run();
		byId("slider").oninput = (e) => this.moveTo(+e.target.value);
		byId("errors").hidden = !m.q_r;
		byId("power").hidden = !m.header.power;
		this.tabs = [...document.querySelectorAll(".tab:not([hidden])")];
		addEventListener("click", ({target: {dataset: {by, view}}}) => {if (by) this.move(+by); else if (view) this.select({view});});
		document.querySelector("main").hidden = false;
	}

	show() {
		const panel = byId("panel"), inPanel = panel.contains(document.activeElement), focused = document.activeElement?.dataset.key, tab = this.tabs.find((each) => each.dataset.view === this.view);
		this.turn += 1;
		for (const each of this.tabs) each.ariaCurrent = each === tab ? "page" : null;
		this.drawBoard();
		this.showTime();
		byId("status").textContent = this.warning || this.summary();
		panel.replaceChildren(el("h2", tab.textContent), ...this.content().flat().filter(Boolean));
		if (focused && document.activeElement?.dataset.key !== focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
		if (inPanel && !panel.contains(document.activeElement)) panel.focus();
		this.toHash();
		this.warning = "";
	}

	content() {
		if (!T.plain.includes(this.view)) {
			if (!m.alive(this.s, this.t)) return [note(T.is_over, num(m.endValue(this.s, this.t)), ".")];
			if (this.hidden()) return [note(T.hidden)];
		}
		try {return VIEWS[this.view](this);} catch (error) {return trouble(error);}
	}

	summary() {
		const {s, t} = this, pi_r = this.policy(), best = pi_r?.indexOf(max(...pi_r));
		const now = `Step ${t}${m.horizon === null ? "" : ` of ${m.horizon}, ${this.stepsLeft()} left`}: state ${m.number[s]}`;
		return now + (pi_r ? `, robots: ${m.robot_actions[best]} with ${short(pi_r[best])}.` : m.alive(s, t) ? "." : ", over.");
	}

	goalValue(g, name, less) {
		const {s, t} = this;
		return m[name] && m.alive(s, t) ? m.part(name, s, t)[g] - (less ? this.goalValue(g, less) : 0) : NaN;
	}

	// The robots' policy, unless it is hidden or too little is kept.
	policy() {return m.alive(this.s, this.t) && !this.hidden() ? attempt(() => this.decision().pi_r) : undefined;}

	robotPolicies() {
		const pi_r = this.policy(), of = (i) => m.agents[m.robots[i]].actions.map((_, a) => sum(pi_r.filter((_, r) => m.robot_digits[r][i] === a)));
		return pi_r && Object.fromEntries(m.robots.map((agent, i) => [agent, of(i)]));
	}

	drawBoard() {
		const {board, s, map} = this, canvas = byId("canvas"), picks = byId("picks"), room = picks.clientWidth, own = m.goalsOf[m.whose[this.goal]], maps = T.maps.filter(([,, ...names]) => names.every((name) => m[name]));
		const [,, ...mapped] = maps.find(([id]) => id === map), isMap = board.isGrid && mapped.length > 0;
		picks.replaceChildren(this.pick("goal", m.goal_names.map((name, g) => [g, name]), this, "goal"), board.isGrid ? this.pick("heat map", maps, this, "map") : "");
		const values = isMap && board.heatMap(own, (g) => this.goalValue(g, ...mapped));
		const scale = map === "error" ? max(1e-12, ...values.filter((v) => !isNaN(v)).map(abs)) : 1;
		canvas.hidden = !board.drawable(s);
		if (!canvas.hidden) {
			const width = max(160, min(560, room, board.isGrid ? board.picture.width * 96 : Infinity));
			board.draw(canvas, s, width, {values, scale, policies: this.robotPolicies(), goal: this.goal});
			canvas.classList.toggle("over", !m.alive(s, this.t));
		}
		byId("legend").replaceChildren(...isMap ? legend(mapped.length > 1, scale) : []);
		const value = (...names) => m[names.at(-1)] && ((_, g) => this.goalValue(g, ...names));
		const goals = table("Goals", [["goal", (name) => name], chances("V^e", value("v_e")), ["V^m", value("v_m") && ((name, g) => m.has(s, g) ? "achieved" : num(value("v_m")(name, g)))],
			numbers("V^e, exact", value("exact_v_e")), numbers(T.minus_exact, value("v_e", "exact_v_e")), ["", (_, g) => m.has(s, g) && "achieved"]], m.goal_names);
		const text = el("pre", board.text(s));
		byId("text").replaceChildren(canvas.hidden ? text : this.details(T.in_words, text), this.details(T.table, goals));
	}

	showTime() {
		const {path, t} = this, {first} = m, at = t - first, robots = (joint) => m.robot_actions[m.slot[joint] % m.R];
		Object.assign(byId("slider"), {max: path.length - 1, value: at});
		const kept = Array.from(path, (each, i) => each && m.alive(each.s, first + i) ? m.kept(each.s, first + i) : {});
		for (const name of ["V_r", "U_r"]) sparkline(name, kept.map((each) => each[name.toLowerCase()]), at);
		byId("crumbs").replaceChildren(...path.map(({joint}, i) => {
			const past = joint !== undefined && i <= at;
			return button(`${first + i}${past ? `: ${robots(joint)}` : ""}`, () => this.moveTo(i), {class: i > at ? "crumb later" : "crumb", key: `crumb${i}`, "aria-current": i === at && "step"});
		}).filter(Boolean));
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
			if (turn !== this.turn) throw new LeftOut("");
			rested = performance.now();
		};
		queueMicrotask(async () => {
			place.replaceChildren(...await work(pause).catch(trouble));
			delete place.dataset.busy;
		});
		return place;
	}
}

function sparkline(name, values, now) {
	const real = values.filter(isFinite), low = min(...real), span = max(...real) - low || 1, [words, {children: [line, dot]}] = byId(name).children;
	const points = values.map((v, i) => isFinite(v) && [4 + 192 * i / max(1, values.length - 1), 28 - 24 * (v - low) / span]);
	words.replaceChildren(`${name} `, num(values[now]));
	line.setAttribute("points", points.filter(Boolean).join(" "));
	["cx", "cy"].forEach((side, i) => dot.setAttribute(side, points[now]?.[i] ?? -9));
}

function copyAllDigits(e) {
	if (getSelection().isCollapsed || isField(e.target)) return;
	const range = getSelection().getRangeAt(0), part = range.cloneContents(), inside = range.commonAncestorContainer.parentElement?.closest("data");
	for (const each of part.querySelectorAll("data")) each.textContent = each.value;
	for (const each of part.querySelectorAll("td, th, tr")) each.append(each.tagName === "TR" ? "\n" : "\t");
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
