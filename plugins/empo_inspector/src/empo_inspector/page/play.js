// Episodes by the same random numbers as in Python.

const MASK = (1n << 64n) - 1n, STRIDE = 6364136223846793005n, SEQUENCE = 54n << 1n | 1n;

class Episode {
	constructor(seed, goals = {}) {
		this.state = 0n;
		this.next();
		this.state = this.state + BigInt(seed) & MASK;
		this.next();
		this.goals = m.goalsOf.map((own, h) => {
			const drawn = own[this.draw(evened(own.map((g) => m.goals[g].weight)))];
			return goals[h] >= 0 ? goals[h] : drawn;
		});
	}

	// A number of PCG32.
	next() {
		const old = this.state, shifted = Number((old >> 18n ^ old) >> 27n & 0xffffffffn), turn = Number(old >> 59n);
		this.state = old * STRIDE + SEQUENCE & MASK;
		return (shifted >>> turn | shifted << (-turn & 31)) >>> 0;
	}

	draw(weights) {
		const u = (this.next() + 0.5) / 2 ** 32;
		let total = 0, last = 0;
		for (let i = 0; i < weights.length; i++) {
			if (!(weights[i] > 0)) continue;
			[total, last] = [total + weights[i], i];
			if (u < total) break;
		}
		return last;
	}

	step(s, t, told) {
		const {humans, robots, strides} = m, {pi_h, pi_r} = m.policies(s, t);
		const own = humans.map((agent, h) => told[agent] ?? this.draw(pi_h.subarray(this.goals[h] * m.A, (this.goals[h] + 1) * m.A)));
		const fits = (r) => robots.every((agent, i) => (told[agent] ?? m.robot_digits[r][i]) === m.robot_digits[r][i]);
		const r = robots.every((agent) => agent in told) ? pi_r.findIndex((_, each) => fits(each)) : this.draw(evened(pi_r.map((p, each) => fits(each) ? p : 0)));
		const joint = sum(humans.map((agent, h) => strides[agent] * own[h])) + sum(robots.map((agent, i) => strides[agent] * m.robot_digits[r][i]));
		const begin = m.offsets[s * m.J + joint], codes = m.code.slice(begin, m.offsets[s * m.J + joint + 1]);
		if (!codes.length) throw new LeftOut(T.unavailable);
		const successor = m.successor[begin + this.draw([...codes].map((code) => m.prob[code]))];
		if (successor === NOT_KEPT) throw new LeftOut(T.not_kept);
		return {joint, successor};
	}
}
