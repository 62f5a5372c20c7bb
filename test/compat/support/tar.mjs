// A small tar writer, for archives that the client would never send.

import { gzipSync } from "node:zlib";

const BLOCK = 512;

/** The header block of an entry. */
export function tarHeader({ name, size = 0, mode = 0o644, type = "0", linkname = "" }) {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, 100);
  octal(header, mode, 100, 8);
  octal(header, 0, 108, 8);
  octal(header, 0, 116, 8);
  octal(header, size, 124, 12);
  octal(header, 0, 136, 12);
  header.fill(" ", 148, 156);
  header.write(type, 156, 1);
  header.write(linkname, 157, 100);
  header.write("ustar\0" + "00", 257, 8, "latin1");
  octal(header, header.reduce((sum, byte) => sum + byte, 0), 148, 7);
  return header;
}

function octal(buffer, value, offset, length) {
  // Sizes above 8 GiB do not fit in octal digits and use the binary form.
  if (value >= 8 ** (length - 1)) {
    buffer.writeBigUInt64BE(BigInt(value), offset + length - 8);
    buffer[offset] |= 0x80;
    return;
  }
  buffer.write(value.toString(8).padStart(length - 1, "0") + "\0", offset, length);
}

/** A whole archive of `{name, content}` entries. */
export function tar(entries) {
  const parts = [];
  for (const { content = "", ...entry } of entries) {
    const bytes = Buffer.from(content);
    parts.push(tarHeader({ size: bytes.length, ...entry }), bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK));
  }
  return Buffer.concat([...parts, tarEnd()]);
}

/** The two empty blocks at the end. */
export function tarEnd() {
  return Buffer.alloc(2 * BLOCK);
}

/** The same, compressed as the API wants it. */
export function tarGz(entries) {
  return gzipSync(tar(entries));
}
