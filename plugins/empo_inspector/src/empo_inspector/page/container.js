// Containers, as docs/reference/inspector_format.md says.

const TYPES = {
	"|u1": Uint8Array, "|i1": Int8Array, "<i2": Int16Array, "<u2": Uint16Array, "<i4": Int32Array,
	"<u4": Uint32Array, "<i8": BigInt64Array, "<f4": Float32Array, "<f8": Float64Array,
};

function check(holds, says) {if (!holds) throw new Error(says);}

async function decode(text) {
	const stream = new Blob(fromBase64(text.trim())).stream().pipeThrough(new DecompressionStream("deflate"));
	return parse(await new Response(stream).arrayBuffer().catch(() => check(false, T.not_inflated)));
}

function fromBase64(text) {
	try {
		if (Uint8Array.fromBase64) return [Uint8Array.fromBase64(text)];
		return (text.match(/.{1,1048576}/g) ?? []).map((part) => Uint8Array.from(atob(part), (c) => c.charCodeAt(0)));
	} catch {return check(false, T.no_base64);}
}

function parse(buffer) {
	const size = buffer.byteLength, view = new DataView(buffer), text = (from, to) => new TextDecoder().decode(buffer.slice(from, to));
	check(size >= 16 && text(0, 8) === "EMPOVIEW", T.no_magic);
	const version = view.getUint32(8, true), length = view.getUint32(12, true), start = 16 + length + (8 - length % 8) % 8, arrays = {};
	check(version === 1, fill(T.version, {version}));
	check(start <= size, T.long_header);
	const header = JSON.parse(text(16, 16 + length));
	for (const {name, dtype, shape, offset} of header.arrays) {
		const Type = TYPES[dtype], count = shape.reduce((a, b) => a * b, 1), fits = Type && count >= 0 && offset >= 0;
		check(fits && start + offset + count * Type.BYTES_PER_ELEMENT <= size, fill(T.no_fit_array, {name}));
		const found = new Type(buffer, start + offset, count);
		arrays[name] = Type === Float32Array ? Float64Array.from(found) : found;
	}
	return {header, arrays};
}
