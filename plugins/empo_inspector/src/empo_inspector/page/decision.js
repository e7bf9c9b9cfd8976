// Decisions by equations (1)-(9), as empo_inspector.decision.

const NOT_KEPT = 0xffffffff;
const TIE = 1e-12;
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);

let m;

class LeftOut extends Error {}

class Model {
	constructor(header, arrays) {
		const {world, kept, theory} = header, {humans, agents, goals} = world;
		Object.assign(this, arrays, world, {header, theory, S: kept.states, first: kept.times[0], place: new Map(kept.times.map((t, i) => [t, i]))});
		[this.G, this.H, this.A] = [goals.length, humans.length, max(...humans.map((i) => agents[i].actions.length))];
		[this.R, this.P, this.J] = [world.robot_digits, world.human_digits, world.joint].map((each) => each.length);
		this.whose = goals.map((goal) => humans.indexOf(goal.human));
		this.goalsOf = humans.map((_, h) => range(this.G).filter((g) => this.whose[g] === h));
		this.slot = range(this.J).map((j) => this.joint.indexOf(j));
		this.cache = new Map();
		const exact = {v_r: this.exact_v_r, v_e: this.exact_v_e, q_r: null, theory: {...theory, x_h_floor: 0}, cache: new Map()};
		this.right = exact.v_r && Object.assign(Object.create(this), exact);
	}

	action(joint, i) {return floor(joint / this.strides[i]) % this.agents[i].actions.length;}

	has(s, g) {return (this.achieved[s * ceil(this.G / 8) + (g >> 3)] >> (g & 7) & 1) === 1;}

	goesOn(s) {return this.offsets[(s + 1) * this.J] > this.offsets[s * this.J];}

	alive(s, t) {return (this.horizon === null || t < this.horizon) && this.goesOn(s);}

	// NaN where the time is not kept.
	row(s, t) {return (this.horizon === null ? 0 : this.place.get(t)) * this.S + s;}

	// Stored numbers of a state and time.
	part(name, s, t) {
		const size = this[name].length / this.v_r.length, row = this.row(s, t);
		return this[name].subarray(row * size, (row + 1) * size);
	}

	// Whether all that follows is kept, so that policies can be worked out.
	decides(s, t) {
		const isLast = this.horizon === null || t + 1 >= this.horizon || this.place.has(t + 1);
		if (!isLast || isNaN(this.row(s, t))) return false;
		return !this.successor.subarray(this.offsets[s * this.J], this.offsets[(s + 1) * this.J]).includes(NOT_KEPT);
	}

	known(s, t) {return !this.alive(s, t) || !isNaN(this.part("v_r", s, t)[0]);}

	*transitions(s) {
		for (let j = 0; j < this.J; j++) {
			for (let k = this.offsets[s * this.J + j]; k < this.offsets[s * this.J + j + 1]; k++) {
				const slot = this.slot[j], r = slot % this.R;
				yield [slot, this.successor[k], this.code[k], (slot - r) / this.R, r];
			}
		}
	}

	// Transitions under policies, with their chances.
	followed(s, {chance, pi_r}) {
		return [...this.transitions(s)].map(([slot, next, code, p, r]) => ({joint: this.joint[slot], next, code, mass: chance[p] * pi_r[r] * this.prob[code]}));
	}

	tables(theory = this.theory) {
		const {duration} = this, {gamma_h, gamma_r} = theory;
		return {human: duration.map((d) => gamma_h ** d), robot: duration.map((d) => gamma_r ** d), accrued: duration.map((d) => accrued(d, theory))};
	}

	attained(s) {return range(this.G).map((g) => +this.has(s, g));}

	// Weight of U_r where the episode is over, if presence counts.
	endWeight(t, theory = this.theory) {
		const once = accrued(1, theory), {gamma_r} = theory;
		if (theory.early_end !== "absorb") return once;
		return once * (this.horizon === null ? 1 / (1 - gamma_r) : sum(range(this.horizon - t + 1).map((k) => gamma_r ** k)));
	}

	// V_r where the episode is over.
	endValue(s, t, theory = this.theory) {
		return presence(theory) ? this.endWeight(t, theory) * this.reward(this.attained(s), theory).u_r : theory.terminal_value;
	}

	policies(s, t, theory = this.theory) {
		if (theory !== this.theory) return this.workedOut(s, t, theory);
		const key = this.row(s, t);
		if (isNaN(key)) throw new LeftOut(T.time_left_out);
		if (this.cache.size > 20000) this.cache.clear();
		if (!this.cache.has(key)) this.cache.set(key, this.workedOut(s, t, theory));
		return this.cache.get(key);
	}

	workedOut(s, t, theory) {
		const {R} = this, expected = this.expected(s, t, theory, "v_m"), {possible, next, weight} = expected;
		const {q_m, pi_h, reply} = this.phase1(s, t, theory, expected), goalWeight = this.weights(theory);
		const marginal = this.goalsOf.map((goals) => {
			const share = evened(goals.map((g) => goalWeight[g]));
			return range(this.A).map((a) => sum(goals.map((g, i) => share[i] * pi_h[g * this.A + a])));
		});
		const chance = this.product(marginal), ahead = zeros(R).fill(NaN), accrued = zeros(R);
		possible.forEach((is, slot) => {
			if (!is) return;
			const r = slot % R, p = (slot - r) / R;
			ahead[r] = (ahead[r] || 0) + chance[p] * next[slot];
			accrued[r] += chance[p] * weight[slot];
		});
		const q_r = this.q_r ? this.part("q_r", s, t) : ahead;
		return {q_m, pi_h, reply, marginal, chance, q_r, ahead, accrued, pi_r: robotPolicy(q_r, theory.beta_r)};
	}

	// By slot: a joint action of the humans, times R, plus one of the robots.
	expected(s, t, theory, name) {
		const {G} = this, table = this.tables(theory), values = this[name], over = this.horizon !== null && t + 1 >= this.horizon;
		const [next, weight, worth] = [this.J, this.J, values ? this.J * G : 0].map((n) => zeros(n)), possible = new Uint8Array(this.J);
		for (const [slot, successor, code] of this.transitions(s)) {
			if (successor === NOT_KEPT) throw new LeftOut(T.next_left_out);
			const p = this.prob[code], alive = !over && this.goesOn(successor), row = this.row(successor, t + 1);
			const v = alive ? this.v_r[row] : this.endValue(successor, t + 1, theory);
			if (isNaN(v)) throw new LeftOut(v === undefined ? T.time_left_out : T.unreachable);
			possible[slot] = 1;
			next[slot] += p * (table.robot[code] * v);
			weight[slot] += p * table.accrued[code];
			for (let g = 0; values && g < G; g++) {
				const entered = presence(theory) ? table.human[code] : 1;
				worth[slot * G + g] += p * (this.has(successor, g) ? entered : alive ? table.human[code] * values[row * G + g] : 0);
			}
		}
		return {possible, next, weight, worth};
	}

	// Equations (1) and (2), and the replies that humans expect.
	phase1(s, t, theory, {possible, worth}) {
		const {G, A, P, R} = this, q_m = zeros(G * A), pi_h = zeros(G * A), reply = new Int32Array(P * G).fill(-1);
		if (!this.v_m) return {q_m, pi_h: this.part("pi_h", s, t), reply};
		const sign = theory.robot_model === "optimistic" ? -1 : 1, isEven = theory.robot_model === "even";
		for (let g = 0; g < G; g++) {
			const q = zeros(A), ways = zeros(A);
			for (let p = 0; p < P; p++) {
				const at = (r) => worth[(p * R + r) * G + g], a = this.human_digits[p][this.whose[g]];
				let best = -1, total = 0, number = 0;
				for (let r = 0; r < R; r++) {
					if (!possible[p * R + r]) continue;
					if (best < 0 || !isEven && sign * at(r) < sign * at(best)) best = r;
					total += at(r);
					number += 1;
				}
				if (best < 0) continue;
				reply[p * G + g] = best;
				q[a] += isEven ? total / number : at(best);
				ways[a] += 1;
			}
			for (let a = 0; a < A; a++) q[a] /= max(1, ways[a]);
			q_m.set(q, g * A);
			const idle = ways.findIndex((n) => n > 0);
			pi_h.set(this.has(s, g) ? q.map((_, a) => +(a === idle)) : humanPolicy(q, ways, theory), g * A);
		}
		return {q_m, pi_h, reply};
	}

	weights(theory) {return theory.weights ?? this.goals.map((goal) => goal.weight);}

	// Chances of the humans' joint actions.
	product(marginal, without = -1) {
		return this.human_digits.map((own) => product(marginal.map((policy, h) => h === without ? 1 : policy[own[h]])));
	}

	decision(s, t, theory = this.theory) {
		const {G, A, R} = this, found = this.policies(s, t, theory), {worth} = this.expected(s, t, theory, "v_e");
		const q_e = zeros(R * G), v_e = zeros(G), {pi_r, q_r} = found;
		for (let g = 0; g < G; g++) {
			const h = this.whose[g], others = this.product(found.marginal, h);
			others.forEach((other, p) => {
				const chance = found.pi_h[g * A + this.human_digits[p][h]] * other;
				for (let r = 0; r < R; r++) q_e[r * G + g] += chance * worth[(p * R + r) * G + g];
			});
			for (let r = 0; r < R; r++) v_e[g] += pi_r[r] * q_e[r * G + g];
			if (presence(theory) && this.has(s, g)) v_e[g] = 1;
		}
		for (let r = 0; r < R; r++) if (isNaN(q_r[r])) q_e.fill(NaN, r * G, (r + 1) * G);
		const reward = this.reward(v_e, theory);
		return {...found, ...reward, q_e, v_e, v_r: this.value(reward.u_r, found)};
	}

	// Equation (9), one step ahead.
	value(u_r, {pi_r, accrued, ahead}) {return sum(pi_r.map((p, r) => p && p * (u_r * accrued[r] + ahead[r])));}

	// As it was solved or learned.
	kept(s, t) {return {v_r: this.part("v_r", s, t)[0], ...this.reward(this.part("v_e", s, t))};}

	// What equation (9) leaves of V_r.
	remainder(s, t) {
		const {v_r, u_r} = this.kept(s, t);
		return v_r - this.value(u_r, this.policies(s, t));
	}

	// Equations (7) and (8), and the terms that they sum.
	reward(v_e, theory = this.theory) {
		const weight = this.weights(theory), power = v_e.map((v, g) => (theory.x_agg === "weighted" ? weight[g] : 1) * v ** theory.zeta);
		const x_h = this.goalsOf.map((goals) => sum(goals.map((g) => power[g]))), y_h = x_h.map((x, h) => this.counts(h) && this.least(x) ** -theory.xi);
		return {power, x_h, y_h, u_r: -((sum(y_h) / this.people(theory)) ** theory.eta)};
	}

	// Whether U_r counts a human, and by how many it divides.
	counts(h) {return +(this.theory.counts?.[h] ?? true);}

	people({u_agg}) {return u_agg === "mean" ? sum(range(this.H).map((h) => this.counts(h))) : 1;}

	// Powers in bits: I_h, P and L.
	bits({x_h, u_r, v_r}) {return [...x_h.map((x) => log2(x)), -log2(-u_r) / this.theory.eta, -log2(-v_r)];}

	least(x) {return max(x, this.theory.x_h_floor ?? 0);}
}

const presence = ({counting}) => counting === "presence";

// What U_r counts during a transition.
function accrued(d, {gamma_r, accrual}) {
	const rho = -log(gamma_r);
	return accrual === "discrete" ? 1 : rho ? -expm1(-rho * d) / rho : d;
}

function humanPolicy(q, ways, {beta_h, nu}) {
	const best = max(...q.filter((_, a) => ways[a])), number = ways.filter((n) => n).length;
	const tie = (gap) => +(gap >= -TIE * max(1, abs(best)));
	const soft = q.map((x, a) => !ways[a] ? 0 : beta_h === "inf" ? tie(x - best) : exp(beta_h * (x - best))), total = sum(soft);
	return soft.map((x, a) => ways[a] ? nu / number + (1 - nu) * x / total : 0);
}

function robotPolicy(q_r, beta) {
	const logits = q_r.map((q) => isNaN(q) ? -Infinity : -beta * log(-q)), best = max(...logits);
	return evened(logits.map((x) => exp(x - best)));
}
