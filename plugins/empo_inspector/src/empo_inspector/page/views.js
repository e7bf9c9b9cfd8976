// The views: elements for the selection of the page.

const MOST_ROWS = 60, MOST_FOUND = 20, ACHIEVED = "achieved";

function robotView(app) {
	const {s, t, theory} = app, solved = app.decision(), other = theory && m.decision(s, t, theory), right = attempt(() => m.right?.decision(s, t)), {q_r, pi_r} = solved, names = m.robot_actions;
	const known = likeliest(q_r, pi_r), lost = names.filter((_, r) => isNaN(q_r[r])), best = max(...known.map((r) => q_r[r]));
	const of = (from, name) => from && ((r) => from[name][r]), values = (head, from, name = "q_r") => numbers(head, of(from, name));
	const kept = m.q_r ? m.kept(s, t) : solved, all = (of) => [of.v_r, of.u_r, ...of.x_h, ...m.bits(of)], column = (head, from) => numbers(head, from && ((_, i) => all(from)[i]));
	const ofHumans = (name, unit = "") => m.humans.map((i) => `${name} of ${m.agents[i].name}${unit}`);
	return [
		app.later("p.sentence", "sentence", async (pause) => [await told(app, pause)]),
		other && el("p.banner", T.whatIf),
		table(T.order, [
			["action", (r) => names[r]], chances("π_r", of(solved, "pi_r")), values("Q_r", solved), numbers("Q_r, bits", (r) => -log2(-q_r[r])), numbers(T.below, !m.q_r && ((r) => q_r[r] - best)),
			values(T.q_ahead, m.q_r && solved, "ahead"), chances("π_r, what if", of(other, "pi_r"), "against"), values("Q_r, what if", !m.q_r && other),
			values("π_r, exact", right, "pi_r"), values("Q_r, exact", right), numbers(T.minus_exact, right && ((r) => q_r[r] - right.q_r[r]))], known),
		lost.length > 0 && note(fill(T.not_available, {names: lost.join(", ")})),
		table(T.values, [
			["", (name) => name], column(m.q_r ? "learned" : "solved", kept), column(T.ahead, m.q_r && solved), column("what if", other),
			column("exact", right), numbers(T.minus_exact, right && ((_, i) => all(kept)[i] - all(right)[i]))], ["V_r", "U_r", ...ofHumans("X_h"), ...ofHumans("I_h", ", bits"), "P, bits", "L, bits"]),
		m.q_r && note(T.remainder, num(m.remainder(s, t)), "."), whatIf(app),
	];
}

async function told(app, pause) {
	const pair = app.actions();
	return pair ? sentences(await app.reasons(pair, pause), app.stepsLeft()).join(" ") : T.only;
}

function whatIf(app) {
	const now = app.theory ?? m.theory, change = (name, value) => app.assume({[name]: value}), fixed = [...m.v_m ? [] : T.of_prior, m.q_r && "gamma_r"];
	const sliders = T.sliders.filter(([name]) => !fixed.includes(name)).map(([name, label, low, high]) => {
		const value = now[name] === "inf" ? Infinity : now[name], top = max(high, isFinite(value) ? value : 0), said = el("output", short(value));
		return field(el("span", label, " ", said), el("input", {type: "range", min: low, max: top, step: "any", value: min(value, top), key: name,
			oninput: (e) => {said.textContent = short(+e.target.value);}, onchange: (e) => change(name, +e.target.value)}));
	});
	const weights = m.goal_names.map((name, g) => entry(name, "number", `weight${g}`, m.weights(now)[g], (value) => {
		const changed = m.weights(now).with(g, max(0, +value));
		if (m.goalsOf.every((own) => own.some((i) => changed[i] > 0))) change("weights", changed);
	}));
	return app.details(T.change, note(T.only_here), !m.v_m && note(T.prior),
		el("div.fields", sliders, m.v_m && choice(T.expect, T.worst_best, now.robot_model, (value) => change("robot_model", value))),
		app.details(T.weights, el("div.fields", weights)),
		button("As solved", () => app.assume(null), {key: "solved", disabled: !app.theory}));
}

function successorsView(app) {
	const {s, t, filter, board} = app, {agents} = m, chosen = ({joint}) => agents.every((_, i) => [undefined, -1, m.action(joint, i)].includes(filter[i]));
	const fits = m.followed(s, app.decision()).filter(chosen).sort((x, y) => y.mass - x.mass);
	const go = ({next, joint}) => next === NOT_KEPT ? "not kept"
		: button([board.thumbnail(next, 90), `${m.number[next]}${m.alive(next, t + 1) ? "" : ", over"}`], () => app.step(next, joint), {class: "go", key: `go${joint} ${next}`});
	const goals = ({next}) => next === NOT_KEPT ? "?" : m.goals.filter((_, g) => m.has(next, g) && !m.has(s, g)).map((goal) => goal.name).join(", ") || "–";
	const pick = ({name, actions}, i) => app.pick(name, [[-1, T.all_actions], ...actions.map((action, a) => [a, action])], filter, i);
	return [el("div.fields", agents.map(pick)), table(T.next, [
		["joint action", ({joint}) => app.jointName(joint)], numbers(T.here, ({mass}) => mass), numbers(T.given, ({code}) => m.prob[code]),
		numbers("duration", m.duration.some((d) => d !== 1) && (({code}) => m.duration[code])), ["next state", go], [T.reaches, goals]], fits.slice(0, MOST_ROWS)),
	fits.length > MOST_ROWS && note(fill(T.more_next, {number: fits.length - MOST_ROWS})), note(T.probability)];
}

const shares = (of) => [["share", (x, i) => percent(of(x, i))], bars(of)];

function whyView(app) {
	const pair = app.actions(), {q_r, power, x_h, y_h} = app.decision();
	if (!pair) return [note(T.nothing)];
	const known = likeliest(q_r, q_r).map((r) => [r, m.robot_actions[r]]);
	return [el("div.fields", app.pick("why", known, app, "a", pair[0]), app.pick("rather than", known, app, "b", pair[1])),
		app.later("div", "reasons", (pause) => reasonTables(app, pair, pause)),
		table(T.weighs, [["human", (i) => m.agents[i].name], numbers("X_h", (_, h) => x_h[h]), ...shares((_, h) => y_h[h] / sum(y_h))], m.humans),
		table(T.made_of, [["goal", (name) => name], numbers("term of X_h", (_, g) => power[g]), ...shares((_, g) => power[g] / x_h[m.whose[g]])], m.goal_names)];
}

async function reasonTables(app, pair, pause) {
	const {G} = m, found = await app.reasons(pair, pause), parts = totals(found), steps = stepTotals(found), {q_e, q_r, u_r} = app.decision();
	const tied = isTie(...pair.map((r) => q_r[r])), most = (all) => max(EQUAL * abs(q_r[pair[0]]), ...all.map(abs));
	const columns = (all) => [numbers("part", (i) => all[i]), ["share", (i) => tied ? "–" : percent(all[i] / found.gap)], ["", (i) => signed(all[i], most(all))]];
	const order = range(parts.length).sort((x, y) => abs(parts[y]) - abs(parts[x])).filter((g) => g < G || abs(parts[g]) > 1e-9 * abs(q_r[pair[0]]));
	return [el("p.sentence", await told(app, pause)),
		table(T.goals, [["goal", (g) => [...m.goal_names, ...T.others][g]], ...columns(parts),
			...pair.map((r) => [fill(T.v_e_after, {name: m.robot_actions[r]}), (g) => g < G ? num(q_e[r * G + g]) : "–"])], order),
		table(T.counts, [["step", (k) => `${k + 1}`], ...columns(steps)], range(steps.length)),
		note(T.sum, num(found.gap), T.exact, num(u_r), ".", m.q_r && T.not_exact)];
}

function humanView(app) {
	const {s, t, goal: g} = app, {A} = m, now = app.decision(), h = m.whose[g], agent = m.agents[m.goals[g].human], solved = m.v_m;
	const q = now.q_m.subarray(g * A), pi = now.pi_h.subarray(g * A), word = T.word[m.theory.gamma_h === 1];
	const replies = (a) => new Map(m.human_digits.map((own, p) => [own[h] === a ? now.reply[p * m.G + g] : -1, p]).filter(([r]) => r >= 0).reverse());
	const possible = range(agent.actions.length).filter((a) => solved ? replies(a).size : pi[a] > 0);
	const links = (a) => [...replies(a)].slice(0, 3).map(([r, p]) => {
		const joint = m.joint[p * m.R + r], next = m.successor[m.offsets[s * m.J + joint]];
		return button(m.robot_actions[r], () => app.step(next, joint), {class: "link", disabled: next === NOT_KEPT, key: `reply${a} ${r}`});
	});
	return [
		el("p", fill(T.pursues, {agent: agent.name, goal: m.goals[g].name, word}), m.has(s, g) ? [ACHIEVED, ", "] : "", num(now.v_e[g]), ".", solved && [T.hopes, m.has(s, g) ? ACHIEVED : num(m.part("v_m", s, t)[g]), "."]),
		m.has(s, g) ? note(T.achieved) : solved && possible.every((a) => q[a] === 0) && note(T.hopeless),
		table(fill(T.actions_of, {agent: agent.name}), [["action", (a) => agent.actions[a]], numbers("Q^m", solved && ((a) => q[a])), chances("π_h", (a) => pi[a]),
			numbers(T.of_average, (a) => now.marginal[h][a]), [T.reply[m.theory.robot_model], solved && links]], possible),
		app.later("div", "passage", async (pause) => {
			const curve = await firstPassage(s, t, g, pause), most = max(...curve, 1e-300);
			return [table(T.first, [["step", (_, k) => `${k + 1}`], numbers(word, (f) => f), bars((f) => f / most), numbers("so far", (_, k) => sum(curve.slice(0, k + 1)))], curve),
				note(m.q_r ? T.not_identity : T.identity)];
		}),
	];
}

function findView(app) {
	const {search} = app;
	const heads = [...places(app, "hit"), numbers("V_r", ([s, t]) => m.alive(s, t) ? m.kept(s, t).v_r : NaN), ["", ([s, t]) => !m.alive(s, t) && "over"]];
	return [el("div.fields", app.pick(T.achieved_goal, [[-1, "any"], ...m.goal_names.map((name, g) => [g, name])], search, "goal"),
		entry(T.words_too, "search", "words", search.text, (text) => {search.text = text; app.show();})),
	app.details(T.decisive, ranked(app, T.most_decisive, "gap of Q_r", m.header.decisive), note(T.decisive_note)),
	app.later("div", "hits", async (pause) => {
		const hits = await app.found(MOST_FOUND, pause);
		return [hits.length ? table(hits.length < MOST_FOUND ? T.found : fill(T.first_found, {number: MOST_FOUND}), heads, hits) : note(T.no_fit)];
	})];
}

const places = (app, key) => [
	["state", ([s, t]) => button(m.horizon === null ? m.number[s] : `${m.number[s]} at ${t}`, () => app.goTo(s, t), {class: "link", key: `${key}${s} ${t}`})], ["", ([s]) => app.board.thumbnail(s)],
];

const ranked = (app, title, head, list) => table(title, [
	...places(app, head), numbers(T.chance_there, ([,, chance]) => chance),
	numbers(head, ([,,, size]) => size), numbers("product", ([,, chance, size]) => chance * size)], list);

function errorsView(app) {
	const {right} = m, list = ranked(app, right ? T.worst : T.worst_remainders, right ? T.relative : T.remainder_head, m.header.errors);
	return [...m.header.histograms.map(histogram), list, note(right ? T.errors_note : T.no_exact)];
}

const histogram = ({of, mean, worst, counts}) => table(fill(T[of], {mean: short(mean), worst: short(worst)}),
	[["error", (_, i) => T.up_to[i]], numbers("number", (count) => count), ...shares((count) => count / sum(counts))], counts);

function playView(app) {
	const {game, draft, s, t} = app, {agents, humans} = m;
	if (!game) {
		const everyone = agents.map(({name, role}, i) => [i, `${name} (${role})`]);
		return [note(T.be_one),
			el("div.fields", app.pick("I am", everyone, draft, "first"), app.pick(T.second_player, [[-1, T.no_one], ...everyone], draft, "second"),
				humans.map((i, h) => app.pick(`goal of ${agents[i].name}`, [[-1, T.drawn], ...m.goalsOf[h].map((g) => [g, m.goals[g].name])], draft.goals, h)),
				entry("seed", "number", "seed", draft.seed, (value) => {draft.seed = max(0, floor(value) || 0);}),
				app.pick(T.policy, T.shown_hidden, draft, "guess")),
			button(T.from_here, () => app.startGame([s, t]), {key: "play"}), " ", button(T.from_start, () => app.startGame(), {key: "replay"})];
	}
	const over = !m.alive(s, t), moves = (i, n) => el("fieldset", el("legend", agents[i].name), agents[i].keys.map((sign, a) =>
		button(`${n ? T.letters[sign] ?? "" : sign} ${agents[i].actions[a]}`, () => app.act(i, a), {key: `act${i} ${a}`, disabled: over, "aria-pressed": `${game.told[i] === a}`})));
	return [el("p", over ? T.over : T.your_move, `Goals: ${game.episode.goals.map((g) => m.goal_names[g]).join("; ")}.`), game.mine.map(moves),
		el("p", {role: "status"}, game.says),
		game.guess && game.before && table(T.before, [["action", (r) => m.robot_actions[r]], chances("π_r", (r) => game.before[r])], range(m.R).filter((r) => game.before[r] > 0)),
		el("p.row", button("Undo", () => app.undo(), {key: "undo", disabled: !game.moves.length}), button("Stop", () => app.select({game: null}), {key: "stop"})),
		field(T.record, el("textarea", {readonly: true, rows: 4, key: "record", id: "record"}, JSON.stringify(app.record())))];
}

const aboutView = () => [byId("about").content.cloneNode(true)];

// Nothing where too little is kept.
function attempt(work) {
	try {return work();} catch (error) {trouble(error);}
}

function trouble(error) {
	if (!(error instanceof LeftOut)) throw error;
	return [note(error.message)];
}
