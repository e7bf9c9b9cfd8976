// From base64 to a header and typed arrays; the format is docs/reference/inspector_format.md.

import T from "./texts.json" with {type: "json"};
import {floor} from "./parts.js";

const TYPES = {
	"|u1": Uint8Array, "|i1": Int8Array, "<i2": Int16Array, "<u2": Uint16Array, "<i4": Int32Array,
	"<u4": Uint32Array, "<i8": BigInt64Array, "<f8": Float64Array,
};
const NEEDED = ["rows", "number", "offsets", "successor", "prob", "v_r", "v_e"];

function check(holds, says) {if (!holds) throw new Error(says);}

export async function decode(text) {
	let bytes, buffer;
	try {bytes = fromBase64(text.trim());} catch {check(false, T.no_base64);}
	try {
		const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
		buffer = await new Response(stream).arrayBuffer();
	} catch {check(false, T.not_inflated);}
	return parse(buffer);
}

function fromBase64(text) {
	if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
	const bytes = new Uint8Array(floor(text.length / 4) * 3), chunk = 1 << 20;
	let end = 0;
	for (let i = 0; i < text.length; i += chunk) {
		const part = atob(text.slice(i, i + chunk));
		for (let k = 0; k < part.length; k++) bytes[end++] = part.charCodeAt(k);
	}
	return bytes.subarray(0, end);
}

export function parse(buffer) {
	const size = buffer.byteLength, view = new DataView(buffer);
	check(size >= 16 && new TextDecoder().decode(buffer.slice(0, 8)) === "EMPOVIEW", T.no_magic);
	const version = view.getUint32(8, true), length = view.getUint32(12, true), start = 16 + length + (8 - length % 8) % 8;
	check(version === 1, `it has version ${version}, and this page reads version 1`);
	check(start <= size, T.long_header);
	let header;
	try {header = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(buffer.slice(16, 16 + length)));} catch {check(false, T.no_json);}
	const arrays = {};
	for (const {name, dtype, shape, offset} of header.arrays ?? []) {
		const Type = TYPES[dtype], count = (shape ?? []).reduce((a, b) => a * b, 1), fits = Type && count >= 0 && offset >= 0;
		check(fits && start + offset + count * Type.BYTES_PER_ELEMENT <= size, `its array ${String(name).slice(0, 40)} does not fit`);
		arrays[name] = new Type(buffer, start + offset, count);
	}
	for (const name of NEEDED) check(name in arrays, `its array ${name} is missing`);
	return {header, arrays};
}
