// A proxy in front of the server that cuts connections where a test wants it.

import { connect, createServer } from "node:net";
import { SERVER } from "./client.mjs";

const HEAD_END = "\r\n\r\n";

/** Where an answer may be cut: each returns how many bytes still pass, or -1. */
export const cuts = {
  beforeHead: () => 0,
  afterHead: (text) => (text.includes(HEAD_END) ? text.indexOf(HEAD_END) + HEAD_END.length : -1),
  afterFirstLine: (text) => {
    const body = text.indexOf(HEAD_END);
    const line = body < 0 ? -1 : text.indexOf("\n", text.indexOf("{", body));
    return line < 0 || text.indexOf("{", body) < 0 ? -1 : line + 1;
  },
  beforeLastLine: (text) => {
    const last = text.search(/[0-9a-f]+\r\n\{"command":[^\n]*"exitCode":\d/);
    return last < 0 ? -1 : last;
  },
};

/**
 * Starts the proxy. Answers to POST …/cmd are cut; `clean` ends the body in
 * form instead of resetting the connection; `times` bounds how often.
 */
export async function startCutter(cut, { clean = false, times = Infinity } = {}) {
  const { hostname, port } = new URL(SERVER);
  const state = { cut: 0 };
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    let asked = false;
    client.on("data", (chunk) => {
      asked ||= /^POST \S*\/cmd[ ?]/.test(chunk.toString("latin1"));
      upstream.write(chunk);
    });
    let seen = Buffer.alloc(0);
    let passed = 0;
    upstream.on("data", (chunk) => {
      if (!asked || state.cut >= times) return client.write(chunk);
      seen = Buffer.concat([seen, chunk]);
      const keep = cut(seen.toString("latin1"));
      client.write(seen.subarray(passed, keep < 0 ? seen.length : Math.max(passed, keep)));
      passed = seen.length;
      if (keep >= 0) end(keep);
    });
    function end(keep) {
      state.cut++;
      upstream.destroy();
      // The end of a body sent in chunks; a line was just completed, and with
      // it its chunk, but for the line break that closes the chunk.
      if (clean) client.end(`${seen.subarray(0, keep).toString("latin1").endsWith("}\n") ? "\r\n" : ""}0\r\n\r\n`);
      else client.resetAndDestroy();
    }
    client.on("end", () => upstream.end());
    upstream.on("end", () => client.end());
    for (const socket of [client, upstream]) socket.on("error", () => [client, upstream].forEach((other) => other.destroy()));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    state,
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}
