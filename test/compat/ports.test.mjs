// Ports of a sandbox by their public addresses: HTTP, WebSocket, streams.

import assert from "node:assert/strict";
import { connect as http2Connect } from "node:http2";
import { request as httpRequest } from "node:http";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { api, assertError, newSandbox, noise, pause, sha256, sharedSandbox, within } from "./support/client.mjs";
import { openSocket, plainGet, startWeb } from "./support/web.mjs";

let base;
let web;
const box = sharedSandbox({ ports: [3000, 3001, 4000] }, async (sandbox) => {
  web = await startWeb(sandbox, 3000);
  base = sandbox.domain(3000);
});

describe("addresses", { concurrency: 3 }, () => {
  test("each port has an address of its own, and no other port has one", () => {
    const urls = [3000, 3001, 4000].map((port) => box.sandbox.domain(port));
    assert.equal(new Set(urls).size, 3);
    for (const url of urls) assert.match(url, /^https?:\/\/[a-z0-9-]+\.[a-z0-9.-]+(:\d+)?$/);
    assert.throws(() => box.sandbox.domain(9999));
  });

  test("where nothing listens the answer says so and is not kept", async () => {
    const answer = await fetch(box.sandbox.domain(4000));
    assert.equal(answer.status, 502);
    assert.match(answer.headers.get("cache-control") ?? "", /no-store/);
    const text = await answer.text();
    assert.match(text, /4000/);
    assert.match(text, /SANDBOX_NOT_LISTENING/);
    const page = await plainGet(box.sandbox.domain(4000), { accept: "text/html" });
    assert.equal(page.status, 502);
    assert.match(page.headers["content-type"], /text\/html/);
  });

  test("an unknown host is not found", async () => {
    const url = new URL(base);
    url.hostname = `nosuchsubdomain.${url.hostname.split(".").slice(1).join(".")}`;
    assert.equal((await fetch(url)).status, 404);
  });

  test("a preview with a token opens for nobody else", async (t) => {
    const token = "a-token-of-this-test";
    const sandbox = await newSandbox(t, { ports: [3000], __previewToken: token });
    await startWeb(sandbox, 3000);
    const url = sandbox.domain(3000);
    assert.equal((await fetch(url)).status, 401);
    assert.equal((await fetch(url, { headers: { "x-glovebox-preview-token": token } })).status, 200);
    const link = await fetch(`${url}/?__preview_token=${token}`, { redirect: "manual" });
    assert.equal(link.status, 303);
    const cookie = link.headers.getSetCookie()[0].split(";")[0];
    assert.equal((await fetch(url, { headers: { cookie } })).status, 200);
    assert.equal((await api("PATCH", `/v2/sandboxes/${sandbox.name}`, { body: { __previewToken: "" } })).status, 200);
    assert.equal((await fetch(url)).status, 200);
  });

  test("a request wakes a sandbox that wants it, with its server", async (t) => {
    const __startCommand = { command: "python3", args: ["-m", "http.server", "3000"] };
    const sandbox = await newSandbox(t, { ports: [3000], persistent: true, __startCommand, __wakeOnRequest: true });
    await sandbox.writeFiles([{ path: "kept.txt", content: Buffer.from("still here") }]);
    await sandbox.stop();
    const answers = await Promise.all([1, 2, 3].map(() => fetch(`${sandbox.domain(3000)}/kept.txt`)));
    for (const answer of answers) {
      assert.equal(answer.status, 200);
      assert.equal(await answer.text(), "still here");
    }
    const { json } = await api("GET", `/v2/sandboxes/sessions?name=${sandbox.name}`);
    assert.equal(json.sessions.length, 2);
    await api("PATCH", `/v2/sandboxes/${sandbox.name}`, { body: { __wakeOnRequest: false } });
    const woken = (await api("GET", `/v2/sandboxes/${sandbox.name}`)).json.session.id;
    await api("POST", `/v2/sandboxes/sessions/${woken}/stop`, { body: {} });
    assert.equal((await fetch(sandbox.domain(3000))).status, 410);
  });

  test("a stopped sandbox's address says that it is over", async (t) => {
    const sandbox = await newSandbox(t, { ports: [3000] });
    await startWeb(sandbox, 3000);
    const url = sandbox.domain(3000);
    assert.equal((await fetch(url)).status, 200);
    await sandbox.stop();
    assert.equal((await fetch(url)).status, 410);
    await sandbox.delete();
    assert.equal((await fetch(url)).status, 404);
  });

  for (const host of ["127.0.0.1", "::1", "::"]) {
    test(`a server on ${host} is reached`, async (t) => {
      const sandbox = await newSandbox(t, { ports: [3000] });
      await startWeb(sandbox, 3000, host);
      assert.equal((await fetch(sandbox.domain(3000))).status, 200);
    });
  }
});

describe("HTTP", { concurrency: 3 }, () => {
  test("the program sees the public host and where the request came from", async () => {
    const seen = await (await fetch(`${base}/path?q=1`, { method: "PUT", body: "x", headers: { "x-own": "1" } })).json();
    const { host } = new URL(base);
    assert.equal(seen.method, "PUT");
    assert.equal(seen.url, "/path?q=1");
    assert.equal(seen.headers.host, host);
    assert.equal(seen.headers["x-own"], "1");
    assert.equal(seen.headers["x-forwarded-host"], host);
    assert.equal(seen.headers["x-forwarded-proto"], new URL(base).protocol.slice(0, -1));
    assert.match(seen.headers["x-forwarded-for"], /^[\da-f.:]+$/);
    assert.equal(seen.headers.authorization, undefined);
  });

  test("several headers of one name stay several", async () => {
    assert.deepEqual((await plainGet(base)).headers["set-cookie"], ["a=1", "b=2"]);
  });

  test("an answer that is made in pieces arrives in pieces", async () => {
    const answer = await fetch(`${base}/steps`);
    let text = "";
    for await (const chunk of answer.body) {
      text += Buffer.from(chunk).toString();
      await fetch(`${base}/step`);
    }
    assert.equal(text, "0\n1\n2\n");
  });

  test("16 KiB of request headers pass", async () => {
    const answer = await plainGet(base, { "x-long": "h".repeat(16 << 10) });
    assert.ok(answer.status === 431 || JSON.parse(answer.text).headers["x-long"].length === 16 << 10, `status ${answer.status}`);
  });

  test("40 requests at once all get their megabyte", async () => {
    const one = async () => (await (await fetch(`${base}/down?n=${1 << 20}`)).arrayBuffer()).byteLength;
    assert.deepEqual(await Promise.all(Array.from({ length: 40 }, one)), Array(40).fill(1 << 20));
  });

  test("an HTTP/2 client is served", async () => {
    const session = http2Connect(base, { lookup: loopback });
    try {
      const answer = await within(10_000, http2Get(session, "/h2"), "the HTTP/2 answer");
      assert.equal(answer.status, 200);
      assert.equal(JSON.parse(answer.text).url, "/h2");
    } finally {
      session.destroy();
    }
  });
});

const loopback = (_, options, done) => (options.all ? done(null, [{ address: "127.0.0.1", family: 4 }]) : done(null, "127.0.0.1", 4));

function http2Get(session, path) {
  return new Promise((resolve, reject) => {
    session.on("error", reject);
    const stream = session.request({ ":path": path });
    let status;
    let text = "";
    stream.on("response", (headers) => (status = headers[":status"]));
    stream.on("data", (chunk) => (text += chunk));
    stream.on("end", () => resolve({ status, text }));
    stream.on("error", reject);
  });
}

describe("large transfers", () => {
  const SIZE = 300 << 20;
  const piece = noise(1 << 20);

  for (const [what, headers] of [
    ["of a known length", { "content-length": SIZE }],
    ["in chunks", { "transfer-encoding": "chunked" }],
    ["that asks before it sends", { "content-length": SIZE, expect: "100-continue" }],
  ]) {
    test(`300 MiB up ${what} are whole`, async () => {
      const { answer, sum } = await send(`${base}/up`, headers, piece, SIZE);
      assert.deepEqual(answer, { count: SIZE, sha256: sum });
    });
  }

  test("300 MiB down are whole", async () => {
    const answer = await fetch(`${base}/down?n=${SIZE}`);
    const hash = createHash("sha256");
    let count = 0;
    for await (const chunk of answer.body) {
      hash.update(chunk);
      count += chunk.length;
    }
    const expected = createHash("sha256");
    for (let i = 0; i < 300; i++) expected.update(Buffer.alloc(1 << 20, "0123456789abcdef"));
    assert.equal(count, SIZE);
    assert.equal(hash.digest("hex"), expected.digest("hex"));
  });
});

// Posts `size` bytes as repetitions of `piece`.
async function send(url, headers, piece, size) {
  const hash = createHash("sha256");
  const request = httpRequest(url, { method: "POST", headers });
  const answered = new Promise((resolve, reject) => {
    request.on("error", reject);
    request.on("response", async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      if (response.statusCode === 200) resolve(JSON.parse(text));
      else reject(new Error(`status ${response.statusCode}: ${text}`));
    });
  });
  if (headers.expect) {
    request.flushHeaders();
    await within(10_000, new Promise((resolve) => request.once("continue", resolve)), "100 Continue");
  }
  for (let sent = 0; sent < size; sent += piece.length) {
    hash.update(piece);
    if (!request.write(piece)) await Promise.race([new Promise((resolve) => request.once("drain", resolve)), answered]);
  }
  request.end();
  return { answer: await answered, sum: hash.digest("hex") };
}

describe("WebSocket", { concurrency: true }, () => {
  test("the upgrade has the same host, and the subprotocol is kept", async () => {
    const plain = await (await fetch(base)).json();
    const { socket, next, closed } = await openSocket(base, ["vite-hmr"]);
    const headers = JSON.parse((await next()).data);
    assert.equal(socket.protocol, "vite-hmr");
    assert.equal(headers.host, plain.headers.host);
    for (const name of ["x-forwarded-host", "x-forwarded-proto", "x-forwarded-for"]) assert.equal(headers[name], plain.headers[name], name);
    socket.close();
    await closed;
  });

  test("text, a binary megabyte and a ping come back, and the close code arrives", async () => {
    const { socket, next, closed } = await openSocket(base);
    await next();
    socket.send("héllo ☕");
    assert.equal(String((await next()).data), "héllo ☕");
    const megabyte = noise(1 << 20, 7);
    socket.send(megabyte);
    const echo = await next();
    assert.equal(echo.binary, true);
    assert.equal(sha256(echo.data), sha256(megabyte));
    const pong = new Promise((resolve) => socket.once("pong", (data) => resolve(String(data))));
    socket.ping("beat");
    assert.equal(await within(5000, pong, "the pong"), "beat");
    socket.close(4001, "done");
    assert.deepEqual(await within(5000, closed, "the close"), { code: 4001, reason: "done" });
    await within(5000, untilPrinted("closed 4001"), "the close code in the program");
  });

  test("90 silent seconds do not end it", async () => {
    const { socket, next, closed } = await openSocket(base);
    await next();
    await pause(90_000);
    socket.send("still here");
    assert.equal(String((await within(5000, next(), "the echo")).data), "still here");
    socket.close(1000);
    assert.equal((await closed).code, 1000);
  });
});

// Follows the web program's log until it holds the text.
async function untilPrinted(text) {
  for await (const item of web.logs()) if (item.data.includes(text)) return;
}

describe("ports of a running sandbox", () => {
  test("update replaces the list", async (t) => {
    const sandbox = await newSandbox(t, { ports: [3000] });
    await startWeb(sandbox, 3000);
    await startWeb(sandbox, 3005);
    const old = sandbox.domain(3000);
    await sandbox.update({ ports: [3005] });
    assert.equal((await fetch(sandbox.domain(3005))).status, 200);
    assert.throws(() => sandbox.domain(3000));
    assert.equal((await fetch(old)).status, 404);
  });

  test("more than 15 ports, and bad ones, are refused", async () => {
    for (const ports of [Array.from({ length: 16 }, (_, i) => 3000 + i), [0], [65536], [3000, 3000.5], ["x"]]) {
      assertError(await api("POST", "/v3/sandboxes", { body: { ports } }), 400, { message: /port/i });
    }
  });
});
