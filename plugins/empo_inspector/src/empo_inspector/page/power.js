// Who holds the power at the start: as Python measured it and put it into words.

function powerView() {
	const {humans, coalitions, reserve, sentences} = m.header.power, [first] = humans, say = T.power;
	const cases = (human) => [["I_h", human], ["alone", human.alone], ...human.threats.map((threat) => [`${threat.adversary}, λ ${short(threat.penalty)}`, threat]), ["every state", human.canonical]];
	const all = humans.flatMap((human) => cases(human).filter(([, found]) => found).map(([, {bits}]) => bits)).filter((bits) => bits !== null);
	const low = min(0, ...all), high = max(...all, ...humans.map(({maximum}) => maximum));
	const measured = cases(first).flatMap(([head, found], i) => found ? [[head, (human) => inBits(cases(human)[i][1].bits, low, high)]] : []);
	return [
		...sentences.map((sentence) => el("p.sentence", sentence)),
		table(say.humans, [["human", ({name}) => name], measured[0], numbers(say.most, ({maximum}) => maximum), ...measured.slice(1)], humans),
		note(say.note),
		coalitions && coalitionTables(coalitions),
		reserve && table(say.reserve, [
			["weight", ({weight}) => weight === null ? say.not_there : num(weight)], ["action", ({action}) => action], [say.lost, ({lost}) => (lost ?? null) === null ? "–" : num(lost)]],
		[{weight: null, action: reserve.action}, ...reserve.weights]),
	];
}

// Bits, and a bar that begins where bars of the least power end.
function inBits(bits, low, high) {
	return bits === null ? T.power.nothing : [num(bits), bar((bits - low) / (high - low))];
}

function coalitionTables({goals, coalitions, shares}) {
	const total = sum(shares.map(({mass}) => mass)), say = T.power;
	return [
		table(say.together, [["coalition", ({members}) => members.join(", ")],
			...goals.map((goal, g) => [goal, ({capability, best}) => [num(capability[g]), " (", num(best[g]), ")"]]), numbers("value", ({value}) => value), numbers(say.dividend, ({dividend}) => dividend)], coalitions),
		table(say.shares, [["human", ({name}) => name], numbers("share", ({mass}) => mass), bars(({mass}) => mass / (total || 1)), ["bits", ({bits}) => bits === null ? "–" : num(bits)]], shares),
	];
}
