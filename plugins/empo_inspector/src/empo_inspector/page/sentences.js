// Reasons in plain words, as empo_inspector.sentences.

const MOST_PARTS = 3, MOST_TIES = 5, LEAST_SHARE = 5, EQUAL = 1e-9;

const fill = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const isTie = (one, other) => abs(one - other) < EQUAL * abs(one);
const tiesOf = (q_r, first) => range(m.R).filter((a) => a !== first && isTie(q_r[first], q_r[a]));

// Available actions.
const likeliest = (q_r, pi_r) => range(m.R).filter((a) => !isNaN(q_r[a])).sort((a, b) => pi_r[b] - pi_r[a] || a - b);

// The two actions that are compared; null where there is but one.
function compared({q_r, pi_r}, first, second) {
	const ranked = likeliest(q_r, pi_r), chosen = ranked.includes(first) ? first : ranked.find((a) => a !== second) ?? ranked[0];
	const others = ranked.filter((a) => a !== chosen), other = others.includes(second) ? second : others.find((a) => !isTie(q_r[chosen], q_r[a]));
	return others.length ? [chosen, other ?? others[0]] : null;
}

function sentences(found, stepsLeft) {
	const {first, second, policies: {q_r}} = found, ties = tiesOf(q_r, first), names = m.robot_actions;
	const actions = {first: names[first], second: names[second], q_first: q_r[first].toPrecision(5), q_second: q_r[second].toPrecision(5)};
	if (ties.includes(second)) return [stepsLeft === 1 ? say.last : fill(say.equal, actions)];
	const others = ties.slice(0, MOST_TIES).map((a) => names[a]).join(", ");
	return [fill(say.preferred, actions), ...others ? [fill(say.ties, {first: actions.first, others})] : [],
		...reasons(found), when(found)];
}

function reasons(found) {
	const parts = totals(found), size = (i) => abs(parts[i]);
	const order = range(parts.length).sort((a, b) => size(b) - size(a) || a - b).slice(0, MOST_PARTS);
	const named = order.filter((i) => size(i) >= LEAST_SHARE / 100 * abs(found.gap)), values = named.map((i) => parts[i]);
	const shares = wholeShares([...values, found.gap - sum(values)], found.gap), rest = shares.pop();
	let isFirst = true;
	const said = named.map((part, i) => {
		const kind = shares[i] < 0 ? "against" : isFirst ? "for" : "more";
		isFirst = isFirst && shares[i] < 0;
		const goal = part < m.G ? aboutGoal(part, found) : [say.ends, say.beyond, say.remainder][part - m.G];
		return fill(say[kind], {share: abs(shares[i]), goal});
	});
	return rest ? [...said, fill(say.rest, {share: rest})] : said;
}

// Of goals, of ends, of what is not kept, and the Bellman remainder.
function totals(found) {
	const parts = [...range(m.G).map((g) => sum(found.parts.map((part) => part[g]))), sum(found.ends), found.beyond];
	return [...parts, found.gap - sum(parts)];
}

const stepTotals = (found) => found.parts.map((part, k) => sum(part) + found.ends[k]);

function aboutGoal(g, {origins: {[g]: {step, state, chances: [one, two]}}, achieved}) {
	const decimals = [2, 3, 4, 5, 6].find((n) => one.toFixed(n) !== two.toFixed(n));
	return fill(decimals ? say.changed : say.unchanged, {
		human: m.agents[m.goals[g].human].name, attains: say.attains, goal: m.goals[g].name,
		chance: m.theory.gamma_h === 1 ? say.chance : say.discounted_chance,
		first: one.toFixed(decimals ?? 2), second: two.toFixed(decimals ?? 2), achieved: achieved[g] ? say.achieved : "",
		when: fill(step > 1 ? say.then : say.next, {step}), state,
	});
}

// The shortest stretch that makes up half of what all steps contribute.
function when(found) {
	const total = [0];
	for (const part of stepTotals(found)) total.push(total.at(-1) + abs(part));
	for (let length = 1; length < total.length; length++) {
		for (let begin = 0; begin + length < total.length; begin++) {
			const to = begin + length;
			if (total[to] - total[begin] >= total.at(-1) / 2) return length > 1 ? fill(say.steps, {from: begin + 1, to}) : begin ? fill(say.one_step, {from: to}) : say.next_step;
		}
	}
	return say.next_step;
}

function wholeShares(parts, gap) {
	const exact = parts.map((part) => 100 * part / gap), shares = exact.map(floor), lost = (i) => shares[i] - exact[i];
	const order = range(parts.length).map((i) => [lost(i), i]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
	for (const [, i] of order.slice(0, 100 - sum(shares))) shares[i] += 1;
	return shares;
}
