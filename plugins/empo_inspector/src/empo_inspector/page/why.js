// Reasons: two Q_r split over steps and goals, as empo_inspector.why.

const NEAR = 1e-8;

function secant(value, reference, exponent) {
	const ratio = value / reference - 1;
	const slope = abs(ratio) < NEAR ? exponent * (1 + (exponent - 1) / 2 * ratio) : expm1(exponent * log1p(ratio)) / ratio;
	return reference ** (exponent - 1) * slope;
}

// A difference of U_r, split over goals.
function goalGains(there, here) {
	const {theory, whose} = m, humans = m.people(theory), outer = secant(sum(there.y_h) / humans, sum(here.y_h) / humans, theory.eta);
	const inner = there.x_h.map((x, h) => {
		const y = here.x_h[h], [a, b] = [x, y].map((z) => m.least(z)), slope = m.counts(h) * secant(a, b, -theory.xi);
		return a === x && b === y ? slope : slope * (a - b) / (x - y || 1);
	});
	return there.power.map((q, g) => -outer * inner[whose[g]] * (q - here.power[g]) / humans);
}

// Follows masses in states from step to step; `pause` may end the work by throwing.
async function follow(s, t, mass, pause, visit) {
	for (let masses = new Map([[s, mass]]), time = t; masses.size; time += 1) {
		const following = new Map(), send = (next, added) => {
			if (next === NOT_KEPT) throw new LeftOut(T.later_left_out);
			const total = following.get(next);
			if (total) added.forEach((x, i) => {total[i] += x;}); else following.set(next, added);
		};
		for (const [state, here] of masses) {
			await pause();
			visit(state, time, here, send);
		}
		masses = following;
	}
}

// Parts of each future step. What follows a state whose successors are not all kept is not split: V_r there is beyond.
async function explain(s, t, first, second, pause) {
	const here = m.decision(s, t), parts = [], ends = [], steps = [], {robot} = m.tables(), {theory, prob} = m, {why, kept} = m.header;
	if (s === kept.start && t === m.first && why?.first === first && why.second === second) return {...why, beyond: 0, policies: here};
	let beyond = 0;
	const both = [first, second].map((a) => here.pi_r.map((_, r) => +(r === a)));
	await follow(s, t, [1, 1], pause, (state, time, mass, send) => {
		const k = time - t - 1, gap = mass[0] - mass[1], alive = m.alive(state, time);
		if (k >= 0) {
			parts[k] ??= zeros(m.G);
			ends[k] ??= 0;
			steps[k] ??= {mass: [0, 0], chances: [zeros(m.G), zeros(m.G)], each: []};
		}
		if (k >= 0 && alive && !m.decides(state, time)) {
			const [v_r] = m.part("v_r", state, time);
			if (v_r === undefined) throw new LeftOut(T.time_left_out);
			beyond += gap * v_r;
			return;
		}
		const {chance, pi_r, accrued} = alive ? m.policies(state, time) : {}, weight = alive && gap * sum(pi_r.map((p, r) => p * accrued[r]));
		if (k >= 0 && !alive && presence(theory)) {
			const last = gap * m.endWeight(time);
			goalGains(m.reward(m.attained(state)), here).forEach((gain, g) => {parts[k][g] += last * gain;});
			ends[k] += last * here.u_r;
		} else if (k >= 0) ends[k] += alive ? weight * here.u_r : gap * theory.terminal_value;
		if (!alive) return;
		if (k >= 0) {
			const gains = goalGains(m.kept(state, time), here).map((gain) => weight * gain), v_e = m.part("v_e", state, time), step = steps[k];
			gains.forEach((gain, g) => {parts[k][g] += gain;});
			mass.forEach((x, i) => {step.mass[i] += x; v_e.forEach((v, g) => {step.chances[i][g] += x * v;});});
			step.each.push([state, gains]);
		}
		for (const [, next, code, p, r] of m.transitions(state)) {
			const share = chance[p] * prob[code] * robot[code], moved = mass.map((x, i) => x * (k < 0 ? both[i] : pi_r)[r] * share);
			if (moved[0] || moved[1]) send(next, moved);
		}
	});
	const origins = range(m.G).map((g) => origin(g, parts, steps)), achieved = range(m.G).map((g) => m.has(s, g));
	return {first, second, gap: here.q_r[first] - here.q_r[second], parts, ends, beyond, origins, achieved, policies: here};
}

// The first of the largest values, but for rounding.
function firstOfMost(values) {
	const most = values.reduce((x, y) => max(x, y));
	return values.findIndex((value) => value >= most - EQUAL * abs(most));
}

// Where the part of a goal arises: the step and the state that contribute most, and V^e there on average.
function origin(g, parts, steps) {
	const side = sum(parts.map((part) => part[g])) >= 0 ? 1 : -1, k = firstOfMost(parts.map((part) => side * part[g]));
	const {mass, chances, each} = steps[k], sorted = [...each].sort(([a], [b]) => a - b);
	const state = sorted.length ? sorted[firstOfMost(sorted.map(([, gains]) => side * gains[g]))][0] : 0;
	return {step: k + 1, state: m.number[state], chances: mass.map((x, i) => x ? chances[i][g] / x : 0)};
}

// The chance that a goal is first reached after k + 1 steps, discounted as V_h^e, which is its sum.
async function firstPassage(s, t, g, pause) {
	const h = m.whose[g], {human} = m.tables(), curve = [];
	await follow(s, t, [1], pause, (state, time, [mass], send) => {
		if (!m.alive(state, time)) return;
		const {pi_h, pi_r, marginal} = m.policies(state, time), others = m.product(marginal, h), k = time - t;
		curve[k] ??= 0;
		for (const [, next, code, p, r] of m.transitions(state)) {
			const share = mass * pi_h[g * m.A + m.human_digits[p][h]] * others[p] * pi_r[r] * m.prob[code];
			if (share && next !== NOT_KEPT && m.has(next, g)) curve[k] += share * (presence(m.theory) ? human[code] : 1); else if (share) send(next, [share * human[code]]);
		}
	});
	return curve;
}
