// The views beside the board: each returns elements for the selection of the page.

import T from "./texts.json" with { type: "json" };
import { LeftOut, NOT_KEPT } from "./decision.js";
import { bar, button, choice, el, field, note, num, percent, short, signed, sum, table } from "./parts.js";
import { sentences, stepTotals, tiesOf, totals } from "./sentences.js";
import { firstPassage } from "./why.js";

const MOST_ROWS = 60, MOST_FOUND = 20;
const ANY = [-1, "any"];
const indexed = (names) => names.map((name, i) => [i, name]);
const whole = (event) => Math.max(0, Math.floor(event.target.value) || 0);

export function robotView(app) {
	const { model } = app, solved = app.decision(), other = app.whatIf(), { q_r, pi_r } = solved, names = model.robotNames;
	const order = [...q_r.keys()].sort((a, b) => pi_r[b] - pi_r[a] || a - b), known = order.filter((r) => !Number.isNaN(q_r[r]));
	const pair = app.actions() ?? [], best = Math.max(...known.map((r) => q_r[r])), both = (x, y) => [x, other && y].filter((each) => each !== null);
	const choose = (letter, r, i) => button(letter, () => app.select({ [letter]: r }), { class: "mini", key: letter + r, "aria-pressed": `${r === pair[i]}`, "aria-label": `compare ${names[r]} as ${letter}` });
	const rows = known.map((r) => [names[r], [num(pi_r[r]), bar(pi_r[r])], num(q_r[r]), num(q_r[r] - best),
		...other ? [[num(other.pi_r[r]), bar(other.pi_r[r], "against")], num(other.q_r[r])] : [], [choose("a", r, 0), choose("b", r, 1)]].map((cell) => el("span", {}, cell)));
	const values = [["V_r", "v_r"], ["U_r", "u_r"]].map(([name, key]) => [name, ...both(solved, other).map((each) => num(each[key]))]);
	const powers = model.world.humans.map((i, h) => [`X_h of ${model.world.agents[i].name}`, ...both(solved, other).map((each) => num(each.x_h[h]))]);
	return [
		el("p", { class: "sentence", id: "sentence", "data-busy": "" }, "…"),
		other && el("p", { class: "banner" }, T.whatIf),
		table(T.order, ["action", "π_r", "Q_r", "below the best", ...other ? ["π_r, what if", "Q_r, what if"] : [], "compare"], rows),
		known.length < order.length && note(`Not available: ${order.slice(known.length).map((r) => names[r]).join(", ")}.`),
		table("Values here", ["", ...both("solved", "what if")], [...values, ...powers]), whatIf(app),
		app.later("sentence", async (pause) => [await told(app, pause)]),
	];
}

async function told(app, pause) {
	const { model } = app, pair = app.actions(), { q_e } = app.decision();
	if (!pair) return T.only;
	if (app.stepsLeft() === 1) return app.say.last;
	return sentences(model, await app.reasons(pair, pause), pair.map((r) => q_e.subarray(r * model.G, (r + 1) * model.G)), app.stepsLeft(), app.say).join(" ");
}

function whatIf(app) {
	const { model } = app, now = app.theory ?? model.theory, change = (name, value) => app.assume({ [name]: value });
	const sliders = T.sliders.map(([name, label, low, high], i) => {
		const value = now[name] === "inf" ? Infinity : now[name], top = Math.max(high, Number.isFinite(value) ? value : 0);
		const input = el("input", { type: "range", min: low, max: top, step: "any", value: Math.min(value, top), key: name, disabled: i < 3 && !model.v_m, oninput: (event) => change(name, +event.target.value) });
		return field(el("span", {}, label, " ", el("output", {}, short(value))), input);
	});
	const weights = [...model.weights(now)], number = (g) => el("input", { type: "number", min: 0, step: "any", value: weights[g], key: `weight${g}`,
		onchange: (event) => {
			const changed = weights.map((weight, i) => i === g ? Math.max(0, +event.target.value) : weight);
			if (model.goalsOf.every((own) => own.some((i) => changed[i] > 0))) change("weights", changed);
		} });
	return app.details(T.change, note(T.only_here),
		!model.v_m && note(T.prior),
		el("div", { class: "fields" }, sliders, choice("humans expect of robots", [["pessimistic", "the worst"], ["optimistic", "the best"]], now.robot_model, (value) => change("robot_model", value), "expect")),
		app.details(T.weights, el("div", { class: "fields" }, weights.map((_, g) => field(model.goalName(g), number(g))))),
		button("As solved", () => app.assume(null), { key: "solved", disabled: !app.theory }));
}

export function successorsView(app) {
	const { model, s, t, filter, board } = app, { agents } = model.world, { chance, pi_r } = app.decision(), found = [];
	let item = model.offsets[s * model.J];
	for (const [slot, next, code] of model.transitions(s)) {
		const r = slot % model.R;
		found.push({ joint: model.joint[slot], next, item: item++, mass: chance[(slot - r) / model.R] * pi_r[r] * model.prob[code], code });
	}
	const fits = found.filter(({ joint }) => agents.every((_, i) => (filter[i] ?? -1) < 0 || filter[i] === model.action(joint, i))).sort((x, y) => y.mass - x.mass || x.item - y.item);
	const unit = model.duration.every((d) => d === 1), goals = (next) => model.goals.filter((_, g) => model.has(next, g) && !model.has(s, g)).map((goal) => goal.name).join(", ");
	const rows = fits.slice(0, MOST_ROWS).map(({ joint, next, mass, code, item: i }) => [app.jointName(joint), num(mass), num(model.prob[code]), ...unit ? [] : [num(model.duration[code])],
		...next === NOT_KEPT ? ["not kept", "?"] : [el("button", { type: "button", class: "go", key: `go${i}`, onclick: () => app.step(next, joint) }, board.thumbnail(next, 104), `${model.number[next]}${app.isOver(next, t + 1) ? ", over" : ""}`), goals(next) || "–"]]);
	const pick = (agent, i) => choice(agent.name, [[-1, "any action"], ...indexed(agent.actions)], filter[i] ?? -1, (value) => { filter[i] = value; app.show(); }, `filter${i}`);
	return [el("div", { class: "fields" }, agents.map(pick)), table(T.next, ["joint action", "probability here", "given the actions", ...unit ? [] : ["duration"], "next state", "goals it reaches"], rows),
		fits.length > MOST_ROWS && note(`${fits.length - MOST_ROWS} less likely ones are not listed; choose actions above.`),
		note(T.probability)];
}

export function whyView(app) {
	const { model } = app, pair = app.actions(), { q_r, power, x_h, y_h } = app.decision();
	if (!pair) return [note(T.nothing)];
	const known = indexed(model.robotNames).filter(([r]) => !Number.isNaN(q_r[r])), share = (x) => [percent(x), bar(x)].map((each) => el("span", {}, each));
	const pick = (letter, label, i) => choice(label, known, pair[i], (r) => app.select({ [letter]: r }), `why${letter}`);
	return [el("div", { class: "fields" }, pick("a", "why", 0), pick("b", "rather than", 1)),
		el("div", { id: "reasons", "data-busy": "" }, note(T.working)),
		table(T.weighs, ["human", "X_h", "bits", "share", ""], model.world.humans.map((i, h) => [model.world.agents[i].name, num(x_h[h]), num(Math.log2(x_h[h])), ...share(y_h[h] / sum(y_h))])),
		table(T.made_of, ["goal", "term of X_h", "share", ""], model.goals.map((_, g) => [model.goalName(g), num(power[g]), ...share(power[g] / x_h[model.whose[g]])])),
		app.later("reasons", (pause) => reasonTables(app, pair, pause))];
}

async function reasonTables(app, pair, pause) {
	const { model } = app, { G } = model, found = await app.reasons(pair, pause), parts = totals(model, found), { q_e, u_r } = app.decision();
	const tied = tiesOf(found.policies.q_r, pair[0]).includes(pair[1]), size = (x) => Math.abs(x);
	const cells = (x, all) => [num(x), tied ? "–" : percent(x / found.gap).replace("-", "−"), signed(x, Math.max(...all.map(size)))];
	const order = [...parts.keys()].sort((x, y) => size(parts[y]) - size(parts[x])).filter((g) => g < G || parts[g]);
	const goals = order.map((g) => [g < G ? model.goalName(g) : "ends of episodes", ...cells(parts[g], parts), ...pair.map((r) => g < G ? num(q_e[r * G + g]) : "–")]);
	const steps = stepTotals(found), says = await told(app, pause);
	return [el("p", { class: "sentence" }, says),
		table(T.goals, ["goal", "part", "share", "", ...pair.map((r) => `V^e after ${model.robotNames[r]}`)], goals),
		table(T.counts, ["step", "part", "share", ""], steps.map((d, k) => [`${k + 1}`, ...cells(d, steps)])),
		note(T.sum, num(found.gap), "; left over is ", num(found.gap - sum(parts)), T.exact, num(u_r), ".")];
}

export function humanView(app) {
	const { model, s, t, goal: g } = app, { A } = model, now = app.decision(), h = model.whose[g], agent = model.world.agents[model.goals[g].human], given = !model.v_m;
	const q = now.q_m.subarray(g * A), expects = model.theory.robot_model === "optimistic" ? "best" : "worst", word = model.theory.gamma_h === 1 ? "chance" : "discounted chance";
	const possible = [...agent.actions.keys()].filter((a) => model.humanDigits.some((own, p) => own[h] === a && (given ? now.pi_h[g * A + a] > 0 : now.reply[p * model.G + g] >= 0)));
	const rows = possible.map((a) => {
		const replies = new Map(model.humanDigits.map((own, p) => [own[h] === a ? now.reply[p * model.G + g] : -1, p]).filter(([r]) => r >= 0).reverse());
		const links = [...replies].slice(0, 3).map(([r, p]) => {
			const joint = model.joint[p * model.R + r], next = model.successor[model.offsets[s * model.J + joint]];
			return button(model.robotNames[r], () => app.step(next, joint), { class: "link", disabled: next === NOT_KEPT, key: `reply${a} ${r}` });
		});
		return [agent.actions[a], given ? "–" : num(q[a]), num(now.pi_h[g * A + a]), bar(now.pi_h[g * A + a]), num(now.marginal[h][a]), el("span", {}, given ? "–" : links)];
	});
	return [
		el("p", {}, `${agent.name} pursues ${model.goals[g].name}. V^e, the ${word} of attaining it: `, num(now.v_e[g]), ". V^m, what it hopes for: ", num(given ? NaN : model.stored("v_m", s, t, g)), "."),
		model.has(s, g) ? note(T.achieved)
			: !given && possible.every((a) => q[a] === 0) && note(T.hopeless),
		table(`Actions of ${agent.name}`, ["action", "Q^m", "π_h", "", T.average, `${expects} reply it expects`], rows),
		el("div", { id: "passage", "data-busy": "" }, note(T.working)),
		app.later("passage", async (pause) => {
			const curve = await firstPassage(model, s, t, g, pause), most = Math.max(...curve, 1e-300);
			return [table(T.first, ["step", word, "", "so far"], curve.map((f, k) => [`${k + 1}`, num(f), bar(f / most), num(sum(curve.slice(0, k + 1)))])), note(T.identity)];
		}),
	];
}

export function findView(app) {
	const { model, board, search } = app, go = (s, t, key) => button(model.horizon === null ? `${model.number[s]}` : `${model.number[s]} at ${t}`, () => app.goTo(s, t), { class: "link", key });
	const set = (at, name) => ({ key: `find${name}`, value: at[name] ?? "", onchange: (event) => { at[name] = event.target.value; app.show(); } });
	const cells = board.isGrid ? model.world.agents.map((agent, i) => field(`${agent.name} at`, el("input", { placeholder: "x,y", ...set(search.at, i) }))) : [];
	const hits = app.found(MOST_FOUND).map(([s, t], i) => [go(s, t, `hit${i}`), board.thumbnail(s), num(model.alive(s, t) ? model.v_r[model.row(s, t)] : NaN), app.isOver(s, t) ? "over" : ""]);
	const decisive = model.header.decisive.map(([s, t, chance, gap], i) => [go(s, t, `decisive${i}`), board.thumbnail(s), num(chance), num(gap), num(chance * gap)]);
	return [el("div", { class: "fields" }, cells, choice("achieved goal", [ANY, ...model.goals.map((_, g) => [g, model.goalName(g)])], search.goal, (goal) => { search.goal = goal; app.show(); }, "goalfound"),
		field("number, or words", el("input", { type: "search", ...set(search, "text") }))),
	app.details(T.decisive, table(T.most_decisive, ["state", "", T.chance_there, "gap of Q_r", "product"], decisive),
		note(T.decisive_note)),
	hits.length ? table(`States found${hits.length === MOST_FOUND ? `, the first ${MOST_FOUND}` : ""}`, ["state", "", "V_r", ""], hits) : note(T.no_fit)];
}

export function playView(app) {
	const { model, game, draft, s, t } = app, { agents, humans } = model.world;
	if (!game) {
		const everyone = indexed(agents.map((agent) => `${agent.name} (${agent.role})`)), pick = (at, name, label, options) => choice(label, options, at[name] ?? -1, (value) => { at[name] = value; }, `play ${label}`);
		return [note(T.be_one),
			el("div", { class: "fields" }, pick(draft, "first", "I am", everyone), pick(draft, "second", "and also (W A S D)", [[-1, "no one else"], ...everyone]),
				humans.map((i, h) => pick(draft.goals, h, `goal of ${agents[i].name}`, [[-1, T.drawn], ...model.goalsOf[h].map((g) => [g, model.goals[g].name])])),
				field("seed", el("input", { type: "number", min: 0, value: draft.seed, key: "seed", onchange: (event) => { draft.seed = whole(event); } })),
				choice("robots' policy", [[0, "shown"], [1, T.hidden_until]], +draft.guess, (value) => { draft.guess = value === 1; }, "guess")),
			button("Play from here", () => app.startGame(), { class: "primary", key: "play" }), " ", button("Play from the start", () => app.startGame(true), { key: "replay" })];
	}
	const over = app.isOver(s, t), moves = (i, n) => el("fieldset", {}, el("legend", {}, agents[i].name), agents[i].actions.map((name, a) =>
		button(`${app.keyName(i, a, n)} ${name}`, () => app.act(i, a), { key: `act${i} ${a}`, disabled: over, "aria-pressed": `${game.told[i] === a}` })));
	return [el("p", {}, over ? T.over : "Your move. ", `Goals: ${game.episode.goals.map((g) => model.goalName(g)).join("; ")}.`), game.mine.map(moves),
		el("p", { role: "status" }, game.says),
		game.guess && game.before && table(T.before, ["action", "π_r", ""], indexed(model.robotNames).filter(([r]) => game.before[r] > 0).map(([r, name]) => [name, num(game.before[r]), bar(game.before[r])])),
		el("p", { class: "row" }, button("Undo", () => app.undo(), { key: "undo", disabled: !game.moves.length }), button("Again", () => app.startGame(game.begin), { key: "again" }), button("Stop", () => { app.game = null; app.show(); }, { key: "stop" })),
		field(T.record, el("textarea", { readonly: true, rows: 4, key: "record", id: "record" }, JSON.stringify(app.record())))];
}

export function aboutView({ model }) {
	const { kept, provenance } = model.header, rows = (data) => Object.entries(data).map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : `${value}`]);
	return [table("Theory", ["parameter", "value"], rows(model.theory)), table(T.kept, ["", ""], rows(kept)), table(T.origin, ["", ""], rows(provenance)),
		note(T.keys),
		note(T.about)];
}

export function trouble(error) {
	if (!(error instanceof LeftOut)) throw error;
	return [note(error.message)];
}
