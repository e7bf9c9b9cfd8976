// Containers: from base64 to a header and typed arrays. The format is docs/reference/inspector_format.md.

const TYPES = {
  "|u1": Uint8Array, "|i1": Int8Array, "<i2": Int16Array, "<u2": Uint16Array, "<i4": Int32Array,
  "<u4": Uint32Array, "<i8": BigInt64Array, "<f8": Float64Array,
};
const NEEDED = ["rows", "number", "offsets", "successor", "code", "prob", "duration", "achieved", "v_r", "v_e"];

export class Damaged extends Error {}

export async function decode(text) {
  return parse(await inflated(fromBase64(text.trim())));
}

function fromBase64(text) {
  try {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const bytes = new Uint8Array(Math.floor(text.length / 4) * 3), chunk = 1 << 20;
    let end = 0;
    for (let i = 0; i < text.length; i += chunk) {
      const part = atob(text.slice(i, i + chunk));
      for (let k = 0; k < part.length; k++) bytes[end++] = part.charCodeAt(k);
    }
    return bytes.subarray(0, end);
  } catch {
    throw new Damaged("it is not base64");
  }
}

async function inflated(bytes) {
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return await new Response(stream).arrayBuffer();
  } catch {
    throw new Damaged("it cannot be decompressed; the file was changed or cut");
  }
}

export function parse(buffer) {
  if (buffer.byteLength < 16) throw new Damaged("it is cut");
  const view = new DataView(buffer);
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 8));
  if (magic !== "EMPOVIEW") throw new Damaged("it does not begin with EMPOVIEW");
  const version = view.getUint32(8, true);
  if (version !== 1) throw new Damaged(`it has version ${version}, and this page reads version 1`);
  const length = view.getUint32(12, true), start = 16 + length + (8 - length % 8) % 8;
  if (start > buffer.byteLength) throw new Damaged("its header is longer than it");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(buffer, 16, length)));
  } catch {
    throw new Damaged("its header is not JSON");
  }
  const arrays = {};
  for (const { name, dtype, shape, offset } of header.arrays ?? []) {
    const Type = TYPES[dtype], count = (shape ?? []).reduce((a, b) => a * b, 1);
    const fits = Type && Number.isSafeInteger(count) && count >= 0 && offset >= 0 && offset % 8 === 0
      && start + offset + count * Type.BYTES_PER_ELEMENT <= buffer.byteLength;
    if (!fits) throw new Damaged(`its array ${String(name).slice(0, 40)} does not fit`);
    arrays[name] = new Type(buffer, start + offset, count);
  }
  const missing = NEEDED.find((name) => !(name in arrays));
  if (missing) throw new Damaged(`its array ${missing} is missing`);
  return { header, arrays };
}
