// Reasons: the difference of two Q_r, split exactly over steps, humans and goals; as empo_inspector.why.

import T from "./texts.json" with {type: "json"};
import {LeftOut, NOT_KEPT} from "./decision.js";
import {abs, expm1, log1p, sum} from "./parts.js";

const NEAR = 1e-8;

export function secant(value, reference, exponent) {
	const ratio = value / reference - 1;
	const slope = abs(ratio) < NEAR ? exponent * (1 + (exponent - 1) / 2 * ratio) : expm1(exponent * log1p(ratio)) / ratio;
	return reference ** (exponent - 1) * slope;
}

// U_r of a state minus U_r of a reference, split over goals.
function goalGains({theory, H, whose}, there, here) {
	const humans = theory.u_agg === "mean" ? H : 1, outer = secant(sum(there.y_h) / humans, sum(here.y_h) / humans, theory.eta);
	const inner = there.x_h.map((x, h) => secant(x, here.x_h[h], -theory.xi));
	return there.power.map((q, g) => -outer * inner[whose[g]] * (q - here.power[g]) / humans);
}

// Parts of goals and of ends in each future step; `pause` may end the work by throwing.
export async function explain(m, s, t, first, second, pause) {
	const policies = m.policies(s, t), here = m.decision(s, t), parts = [], ends = [], {robot} = m.tables();
	const only = (a) => policies.pi_r.map((_, r) => +(r === a)), both = [only(first), only(second)];
	let masses = new Map([[s, [1, 1]]]), time = t, begins = true;
	while (masses.size) {
		const following = new Map(), part = new Float64Array(m.G);
		let end = 0, going = false;
		for (const [state, mass] of masses) {
			if (!m.alive(state, time)) {
				end += m.theory.terminal_value * (mass[0] - mass[1]);
				continue;
			}
			await pause();
			going = true;
			const {chance, pi_r, accrued} = m.policies(state, time), actions = begins ? both : [pi_r, pi_r];
			if (!begins) {
				const weight = (mass[0] - mass[1]) * sum(pi_r.map((p, r) => p * accrued[r]));
				goalGains(m, m.reward(m.attainable(state, time)), here).forEach((gain, g) => {part[g] += weight * gain;});
				end += weight * here.u_r;
			}
			for (const [, next, code, p, r] of m.transitions(state)) {
				const share = chance[p] * m.prob[code] * robot[code];
				const one = mass[0] * actions[0][r] * share, two = mass[1] * actions[1][r] * share;
				if (one || two) add(following, next, [one, two]);
			}
		}
		if (!begins) {parts.push(part); ends.push(end);}
		begins = false;
		if (!going) break;
		masses = following;
		time += 1;
	}
	return {first, second, gap: policies.q_r[first] - policies.q_r[second], parts, ends, policies};
}

function add(masses, state, mass) {
	if (state === NOT_KEPT) throw new LeftOut(T.later_left_out);
	const total = masses.get(state);
	if (total) mass.forEach((x, i) => {total[i] += x;}); else masses.set(state, mass);
}

// The chance that a goal is first reached after k + 1 steps, discounted as V_h^e is: its sum is V_h^e.
export async function firstPassage(m, s, t, g, pause) {
	const h = m.whose[g], {human} = m.tables(), curve = [];
	let masses = new Map([[s, [1]]]), time = t;
	while (masses.size) {
		const following = new Map();
		let reached = 0;
		for (const [state, [mass]] of masses) {
			if (!m.alive(state, time)) continue;
			await pause();
			const {pi_h, pi_r, marginal} = m.policies(state, time), others = m.product(marginal, h);
			for (const [, next, code, p, r] of m.transitions(state)) {
				const share = mass * pi_h[g * m.A + m.humanDigits[p][h]] * others[p] * pi_r[r] * m.prob[code];
				if (!share) continue;
				if (next !== NOT_KEPT && m.has(next, g)) reached += share; else add(following, next, [share * human[code]]);
			}
		}
		if (!curve.length || following.size || reached) curve.push(reached);
		masses = following;
		time += 1;
	}
	return curve;
}
