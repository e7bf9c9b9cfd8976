// The views beside the board: each returns elements for the selection of the page.

import T from "./texts.json" with {type: "json"};
import {LeftOut, NOT_KEPT} from "./decision.js";
import {abs, bar, button, choice, el, field, floor, log2, max, min, note, num, percent, short, signed, sum, table} from "./parts.js";
import {sentences, stepTotals, tiesOf, totals} from "./sentences.js";
import {firstPassage} from "./why.js";

const MOST_ROWS = 60, MOST_FOUND = 20;
const indexed = (names) => names.map((name, i) => [i, name]);

export function robotView(app) {
	const {m} = app, solved = app.decision(), other = app.whatIf(), {q_r, pi_r} = solved, names = m.robotNames;
	const order = [...q_r.keys()].sort((a, b) => pi_r[b] - pi_r[a] || a - b), known = order.filter((r) => !isNaN(q_r[r]));
	const pair = app.actions() ?? [], best = max(...known.map((r) => q_r[r])), both = (x, y) => [x, other && y].filter((each) => each !== null);
	const choose = (letter, r, i) => button(letter, () => app.select({[letter]: r}), {class: "mini", key: letter + r, "aria-pressed": `${r === pair[i]}`, "aria-label": `compare ${names[r]} as ${letter}`});
	const rows = known.map((r) => [names[r], [num(pi_r[r]), bar(pi_r[r])], num(q_r[r]), num(q_r[r] - best),
		...other ? [[num(other.pi_r[r]), bar(other.pi_r[r], "against")], num(other.q_r[r])] : [], [choose("a", r, 0), choose("b", r, 1)]].map((cell) => el("span", cell)));
	const values = [["V_r", "v_r"], ["U_r", "u_r"]].map(([name, key]) => [name, ...both(solved, other).map((each) => num(each[key]))]);
	const powers = m.humans.map((i, h) => [`X_h of ${m.agents[i].name}`, ...both(solved, other).map((each) => num(each.x_h[h]))]);
	return [
		el("p.sentence", {id: "sentence", "data-busy": ""}, "…"),
		other && el("p.banner", T.whatIf),
		table(T.order, T.robot_heads.filter((head) => other || !head.includes("what")), rows),
		known.length < order.length && note(`Not available: ${order.slice(known.length).map((r) => names[r]).join(", ")}.`),
		table(T.values, ["", ...both("solved", "what if")], [...values, ...powers]), whatIf(app),
		app.later("sentence", async (pause) => [await told(app, pause)]),
	];
}

async function told(app, pause) {
	const {m} = app, pair = app.actions(), {q_e} = app.decision();
	if (!pair) return T.only;
	if (app.stepsLeft() === 1) return app.say.last;
	return sentences(m, await app.reasons(pair, pause), pair.map((r) => q_e.subarray(r * m.G, (r + 1) * m.G)), app.stepsLeft(), app.say).join(" ");
}

function whatIf(app) {
	const {m} = app, now = app.theory ?? m.theory, change = (name, value) => app.assume({[name]: value});
	const sliders = T.sliders.map(([name, label, low, high], i) => {
		const value = now[name] === "inf" ? Infinity : now[name], top = max(high, isFinite(value) ? value : 0);
		const said = el("output", short(value)), oninput = (e) => {said.textContent = short(+e.target.value);}, onchange = (e) => change(name, +e.target.value);
		return field(el("span", label, " ", said), el("input", {type: "range", min: low, max: top, step: "any", value: min(value, top), key: name, disabled: i < 3 && !m.v_m, oninput, onchange}));
	});
	const weights = [...m.weights(now)], number = (g) => el("input", {type: "number", min: 0, step: "any", value: weights[g], key: `weight${g}`,
		onchange: (e) => {
			const changed = weights.map((weight, i) => i === g ? max(0, +e.target.value) : weight);
			if (m.goalsOf.every((own) => own.some((i) => changed[i] > 0))) change("weights", changed);
		}});
	return app.details(T.change, note(T.only_here),
		!m.v_m && note(T.prior),
		el("div.fields", sliders, choice(T.expect, T.worst_best, now.robot_model, (value) => change("robot_model", value), "expect")),
		app.details(T.weights, el("div.fields", weights.map((_, g) => field(m.goalName(g), number(g))))),
		button("As solved", () => app.assume(null), {key: "solved", disabled: !app.theory}));
}

export function successorsView(app) {
	const {m, s, t, filter, board} = app, {agents} = m, {chance, pi_r} = app.decision(), found = [];
	let item = m.offsets[s * m.J];
	for (const [slot, next, code, p, r] of m.transitions(s)) found.push({joint: m.joint[slot], next, item: item++, mass: chance[p] * pi_r[r] * m.prob[code], code});
	const fits = found.filter(({joint}) => agents.every((_, i) => (filter[i] ?? -1) < 0 || filter[i] === m.action(joint, i))).sort((x, y) => y.mass - x.mass || x.item - y.item);
	const unit = m.duration.every((d) => d === 1), goals = (next) => m.goals.filter((_, g) => m.has(next, g) && !m.has(s, g)).map((goal) => goal.name).join(", ");
	const rows = fits.slice(0, MOST_ROWS).map(({joint, next, mass, code, item: i}) => [app.jointName(joint), num(mass), num(m.prob[code]), ...unit ? [] : [num(m.duration[code])],
		...next === NOT_KEPT ? ["not kept", "?"] : [el("button", {type: "button", class: "go", key: `go${i}`, onclick: () => app.step(next, joint)}, board.thumbnail(next, 104), `${m.number[next]}${app.isOver(next, t + 1) ? ", over" : ""}`), goals(next) || "–"]]);
	const pick = (agent, i) => choice(agent.name, [[-1, "any action"], ...indexed(agent.actions)], filter[i] ?? -1, (value) => {filter[i] = value; app.show();}, `filter${i}`);
	return [el("div.fields", agents.map(pick)), table(T.next, T.next_heads.filter((head) => !unit || head !== "duration"), rows),
		fits.length > MOST_ROWS && note(`${fits.length - MOST_ROWS} less likely ones are not listed; choose actions above.`),
		note(T.probability)];
}

export function whyView(app) {
	const {m} = app, pair = app.actions(), {q_r, power, x_h, y_h} = app.decision();
	if (!pair) return [note(T.nothing)];
	const known = indexed(m.robotNames).filter(([r]) => !isNaN(q_r[r])), share = (x) => [percent(x), bar(x)].map((each) => el("span", each));
	const pick = (letter, label, i) => choice(label, known, pair[i], (r) => app.select({[letter]: r}), `why${letter}`);
	return [el("div.fields", pick("a", "why", 0), pick("b", "rather than", 1)),
		el("div", {id: "reasons", "data-busy": ""}, note(T.working)),
		table(T.weighs, T.human_heads, m.humans.map((i, h) => [m.agents[i].name, num(x_h[h]), num(log2(x_h[h])), ...share(y_h[h] / sum(y_h))])),
		table(T.made_of, T.power_heads, m.goals.map((_, g) => [m.goalName(g), num(power[g]), ...share(power[g] / x_h[m.whose[g]])])),
		app.later("reasons", (pause) => reasonTables(app, pair, pause))];
}

async function reasonTables(app, pair, pause) {
	const {m} = app, {G} = m, found = await app.reasons(pair, pause), parts = totals(m, found), {q_e, u_r} = app.decision();
	const tied = tiesOf(found.policies.q_r, pair[0]).includes(pair[1]), size = (x) => abs(x);
	const cells = (x, all) => [num(x), tied ? "–" : percent(x / found.gap), signed(x, max(...all.map(size)))];
	const order = [...parts.keys()].sort((x, y) => size(parts[y]) - size(parts[x])).filter((g) => g < G || size(parts[g]) > 1e-9 * size(found.gap));
	const goals = order.map((g) => [g < G ? m.goalName(g) : "ends of episodes", ...cells(parts[g], parts), ...pair.map((r) => g < G ? num(q_e[r * G + g]) : "–")]);
	const steps = stepTotals(found), says = await told(app, pause);
	return [el("p.sentence", says),
		table(T.goals, [...T.part_heads, ...pair.map((r) => `V^e after ${m.robotNames[r]}`)], goals),
		table(T.counts, T.step_heads, steps.map((d, k) => [`${k + 1}`, ...cells(d, steps)])),
		note(T.sum, num(found.gap), "; left over is ", num(found.gap - sum(parts)), T.exact, num(u_r), ".")];
}

export function humanView(app) {
	const {m, s, t, goal: g} = app, {A} = m, now = app.decision(), h = m.whose[g], agent = m.agents[m.goals[g].human], given = !m.v_m;
	const q = now.q_m.subarray(g * A), expects = m.theory.robot_model === "optimistic" ? "best" : "worst", word = m.theory.gamma_h === 1 ? "chance" : "discounted chance";
	const possible = [...agent.actions.keys()].filter((a) => m.humanDigits.some((own, p) => own[h] === a && (given ? now.pi_h[g * A + a] > 0 : now.reply[p * m.G + g] >= 0)));
	const rows = possible.map((a) => {
		const replies = new Map(m.humanDigits.map((own, p) => [own[h] === a ? now.reply[p * m.G + g] : -1, p]).filter(([r]) => r >= 0).reverse());
		const links = [...replies].slice(0, 3).map(([r, p]) => {
			const joint = m.joint[p * m.R + r], next = m.successor[m.offsets[s * m.J + joint]];
			return button(m.robotNames[r], () => app.step(next, joint), {class: "link", disabled: next === NOT_KEPT, key: `reply${a} ${r}`});
		});
		return [agent.actions[a], given ? "–" : num(q[a]), num(now.pi_h[g * A + a]), bar(now.pi_h[g * A + a]), num(now.marginal[h][a]), el("span", given ? "–" : links)];
	});
	return [
		el("p", `${agent.name} pursues ${m.goals[g].name}. V^e, the ${word} of attaining it: `, num(now.v_e[g]), ". V^m, what it hopes for: ", num(given ? NaN : m.stored("v_m", s, t, g)), "."),
		m.has(s, g) ? note(T.achieved)
			: !given && possible.every((a) => q[a] === 0) && note(T.hopeless),
		table(`Actions of ${agent.name}`, [...T.own_heads, `${expects} reply it expects`], rows),
		el("div", {id: "passage", "data-busy": ""}, note(T.working)),
		app.later("passage", async (pause) => {
			const curve = await firstPassage(m, s, t, g, pause), most = max(...curve, 1e-300);
			return [table(T.first, ["step", word, "", "so far"], curve.map((f, k) => [`${k + 1}`, num(f), bar(f / most), num(sum(curve.slice(0, k + 1)))])), note(T.identity)];
		}),
	];
}

export function findView(app) {
	const {m, board, search} = app, go = (s, t, key) => button(m.horizon === null ? `${m.number[s]}` : `${m.number[s]} at ${t}`, () => app.goTo(s, t), {class: "link", key});
	const set = (at, name) => ({key: `find${name}`, value: at[name] ?? "", onchange: (e) => {at[name] = e.target.value; app.show();}});
	const cells = board.isGrid ? m.agents.map((agent, i) => field(`${agent.name} at`, el("input", {placeholder: "x,y", ...set(search.at, i)}))) : [];
	const hits = app.found(MOST_FOUND).map(([s, t], i) => [go(s, t, `hit${i}`), board.thumbnail(s), num(m.alive(s, t) ? m.v_r[m.row(s, t)] : NaN), app.isOver(s, t) ? "over" : ""]);
	const decisive = m.header.decisive.map(([s, t, chance, gap], i) => [go(s, t, `decisive${i}`), board.thumbnail(s), num(chance), num(gap), num(chance * gap)]);
	return [el("div.fields", cells, choice("achieved goal", [[-1, "any"], ...m.goals.map((_, g) => [g, m.goalName(g)])], search.goal, (goal) => {search.goal = goal; app.show();}, "goalfound"),
		field(T.words_too, el("input", {type: "search", ...set(search, "text")}))),
	app.details(T.decisive, table(T.most_decisive, T.decisive_heads, decisive),
		note(T.decisive_note)),
	hits.length ? table(`States found${hits.length === MOST_FOUND ? `, the first ${MOST_FOUND}` : ""}`, T.found_heads, hits) : note(T.no_fit)];
}

export function playView(app) {
	const {m, game, draft, s, t} = app, {agents, humans} = m;
	if (!game) {
		const everyone = indexed(agents.map((agent) => `${agent.name} (${agent.role})`)), pick = (at, name, label, options) => choice(label, options, at[name] ?? -1, (value) => {at[name] = value;}, `play ${label}`);
		return [note(T.be_one),
			el("div.fields", pick(draft, "first", "I am", everyone), pick(draft, "second", T.second_player, [[-1, "no one else"], ...everyone]),
				humans.map((i, h) => pick(draft.goals, h, `goal of ${agents[i].name}`, [[-1, T.drawn], ...m.goalsOf[h].map((g) => [g, m.goals[g].name])])),
				field("seed", el("input", {type: "number", min: 0, value: draft.seed, key: "seed", onchange: (e) => {draft.seed = max(0, floor(e.target.value) || 0);}})),
				choice(T.policy, T.shown_hidden, +draft.guess, (value) => {draft.guess = value === 1;}, "guess")),
			button(T.from_here, () => app.startGame(), {class: "primary", key: "play"}), " ", button(T.from_start, () => app.startGame(true), {key: "replay"})];
	}
	const over = app.isOver(s, t), moves = (i, n) => el("fieldset", el("legend", agents[i].name), agents[i].actions.map((name, a) =>
		button(`${app.keyName(i, a, n)} ${name}`, () => app.act(i, a), {key: `act${i} ${a}`, disabled: over, "aria-pressed": `${game.told[i] === a}`})));
	return [el("p", over ? T.over : "Your move. ", `Goals: ${game.episode.goals.map((g) => m.goalName(g)).join("; ")}.`), game.mine.map(moves),
		el("p", {role: "status"}, game.says),
		game.guess && game.before && table(T.before, T.policy_heads, indexed(m.robotNames).filter(([r]) => game.before[r] > 0).map(([r, name]) => [name, num(game.before[r]), bar(game.before[r])])),
		el("p.row", button("Undo", () => app.undo(), {key: "undo", disabled: !game.moves.length}), button("Again", () => app.startGame(game.begin), {key: "again"}), button("Stop", () => {app.game = null; app.show();}, {key: "stop"})),
		field(T.record, el("textarea", {readonly: true, rows: 4, key: "record", id: "record"}, JSON.stringify(app.record())))];
}

export function aboutView({m}) {
	const {kept, provenance} = m.header, rows = (data) => Object.entries(data).map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : `${value}`]);
	return [table("Theory", ["parameter", "value"], rows(m.theory)), table(T.kept, ["", ""], rows(kept)), table(T.origin, ["", ""], rows(provenance)),
		note(T.keys), note(T.about)];
}

export function trouble(error) {
	if (!(error instanceof LeftOut)) throw error;
	return [note(error.message)];
}
