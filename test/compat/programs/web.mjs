// Runs inside a sandbox: an HTTP server with a WebSocket written by hand, so
// that the suite sees what reached the program, and needs no package there.

import { createHash } from "node:crypto";
import { createServer } from "node:http";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const [port, host] = [Number(process.argv[2] ?? 3000), process.argv[3] ?? "0.0.0.0"];

const server = createServer({ maxHeaderSize: 64 << 10 }, (req, res) => {
  const url = new URL(req.url, "http://x");
  if (url.pathname === "/up") return hashBody(req, res);
  if (url.pathname === "/down") return stream(res, Number(url.searchParams.get("n")));
  if (url.pathname === "/steps") return steps(res);
  if (url.pathname === "/step") {
    goOn();
    return res.end();
  }
  res.setHeader("content-type", "application/json");
  res.setHeader("set-cookie", ["a=1", "b=2"]);
  res.end(JSON.stringify({ method: req.method, url: req.url, headers: req.headers }));
});

function hashBody(req, res) {
  const hash = createHash("sha256");
  let count = 0;
  req.on("data", (chunk) => {
    hash.update(chunk);
    count += chunk.length;
  });
  req.on("end", () => res.end(JSON.stringify({ count, sha256: hash.digest("hex") })));
}

async function stream(res, total) {
  const chunk = Buffer.alloc(1 << 20, "0123456789abcdef");
  res.setHeader("content-length", total);
  for (let left = total; left > 0; left -= chunk.length) {
    if (!res.write(left < chunk.length ? chunk.subarray(0, left) : chunk)) await new Promise((go) => res.once("drain", go));
  }
  res.end();
}

let goOn = () => {};

// Three lines, each but the first sent when /step is asked for.
async function steps(res) {
  for (let i = 0; i < 3; i++) {
    const asked = new Promise((resolve) => (goOn = resolve));
    res.write(`${i}\n`);
    await asked;
  }
  res.end();
}

server.on("upgrade", (req, socket) => {
  const accept = createHash("sha1").update(req.headers["sec-websocket-key"] + GUID).digest("base64");
  const protocol = req.headers["sec-websocket-protocol"];
  socket.write(
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Accept: ${accept}\r\n${protocol ? `Sec-WebSocket-Protocol: ${protocol}\r\n` : ""}\r\n`,
  );
  socket.write(frame(1, Buffer.from(JSON.stringify(req.headers))));
  echoFrames(socket);
});

function echoFrames(socket) {
  let buffer = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (let next = parse(buffer); next; next = parse(buffer)) {
      buffer = buffer.subarray(next.size);
      if (next.opcode === 8) {
        console.log(`closed ${next.payload.length ? next.payload.readUInt16BE(0) : "without a code"}`);
        socket.end(frame(8, next.payload));
      } else {
        socket.write(frame(next.opcode === 9 ? 10 : next.opcode, next.payload));
      }
    }
  });
}

// One whole, unfragmented, masked frame, or undefined where more is to come.
function parse(buffer) {
  if (buffer.length < 6) return undefined;
  const short = buffer[1] & 0x7f;
  const [length, start] =
    short === 127 ? [buffer.length < 14 ? Infinity : Number(buffer.readBigUInt64BE(2)), 10] : short === 126 ? [buffer.readUInt16BE(2), 4] : [short, 2];
  if (buffer.length < start + 4 + length) return undefined;
  const mask = buffer.subarray(start, start + 4);
  const payload = Buffer.from(buffer.subarray(start + 4, start + 4 + length));
  for (let i = 0; i < payload.length; i++) payload[i] ^= mask[i & 3];
  return { opcode: buffer[0] & 0xf, payload, size: start + 4 + length };
}

function frame(opcode, payload) {
  const head = payload.length < 126 ? Buffer.alloc(2) : payload.length < 65536 ? Buffer.alloc(4) : Buffer.alloc(10);
  head[0] = 0x80 | opcode;
  head[1] = head.length === 2 ? payload.length : head.length === 4 ? 126 : 127;
  if (head.length === 4) head.writeUInt16BE(payload.length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(payload.length), 2);
  return Buffer.concat([head, payload]);
}

server.listen(port, host, () => console.log(`listening on ${host}:${port}`));
