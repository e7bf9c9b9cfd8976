// Who holds the power at the start: as Python measured it and put it into words.

function powerView() {
	const {humans, coalitions, reserve, sentences} = m.header.power, [first] = humans, say = T.power;
	const cases = (human) => [["I_h", human], ["alone", human.alone], ...human.threats.filter(({adversary}) => human.has_others || adversary !== "others").map((threat) => [`${threat.adversary}, λ ${short(threat.penalty)}`, threat]), ["every state", human.canonical]];
	const all = humans.flatMap((human) => cases(human).filter(([, found]) => found).map(([, {bits}]) => bits)).filter((bits) => bits !== null);
	const low = min(0, ...all), high = max(...all, ...humans.map(({maximum}) => maximum));
	const measured = cases(first).flatMap(([head, found], i) => found ? [[head, (human) => inBits(cases(human)[i][1].bits, low, high)]] : []);
	return [
		table(say.humans, [["human", ({name}) => name], measured[0], [say.most, ({maximum}) => rounded(maximum)], ...measured.slice(1)], humans),
		note(say.note),
		el("ul.sentence", sentences.map((sentence) => el("li", sentence))),
		coalitions && coalitionTables(coalitions),
		reserve && table(say.reserve, [
			["weight", ({weight}) => weight === null ? say.not_there : num(weight)], ["action", ({action}) => action], [say.lost, ({lost}) => (lost ?? null) === null ? "–" : rounded(lost)]],
		[{weight: null, action: reserve.action}, ...reserve.weights]),
	];
}

// To four decimals, which tell apart what matters; a copy has all digits.
const rounded = (x) => el("data", {value: x, title: x}, (+x.toFixed(4) || 0).toFixed(4).replace("-", "−"));

// Bits, and a bar that begins where bars of the least power end.
function inBits(bits, low, high) {
	return bits === null ? T.power.nothing : [rounded(bits), bar((bits - low) / (high - low))];
}

function coalitionTables({goals, coalitions, shares}) {
	const total = sum(shares.map(({mass}) => mass)), say = T.power;
	return [
		table(say.together, [["coalition", ({members}) => members.join(", ")],
			...goals.map((goal, g) => [goal, ({capability, best}) => [rounded(capability[g]), " (", rounded(best[g]), ")"]]), ["value", ({value}) => rounded(value)], [say.dividend, ({dividend}) => rounded(dividend)]], coalitions),
		table(say.shares, [["human", ({name}) => name], ["share", ({mass}) => [rounded(mass), bar(mass / (total || 1))]], ["bits", ({bits}) => bits === null ? "–" : rounded(bits)]], shares),
	];
}
