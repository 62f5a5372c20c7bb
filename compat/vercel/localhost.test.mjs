import assert from "node:assert/strict";
import dns, { lookup as namedLookup } from "node:dns";
import { after, before, test } from "node:test";
import { resolveLocalhostNames } from "./lib/localhost.mjs";
import { startFakeServer } from "./testdata/server.mjs";

let restore;
let server;

before(async () => {
  restore = resolveLocalhostNames();
  server = await startFakeServer();
});
after(() => {
  restore();
  return server.close();
});

const lookup = (...args) =>
  new Promise((resolve, reject) => dns.lookup(...args, (error, ...found) => (error ? reject(error) : resolve(found))));

test("names below .localhost are loopback in every form of the call", async () => {
  assert.deepEqual(await lookup("a.localhost"), ["127.0.0.1", 4]);
  assert.deepEqual(await lookup("A.b.LocalHost.", {}), ["127.0.0.1", 4]);
  assert.deepEqual(await lookup("a.localhost", 6), ["::1", 6]);
  assert.deepEqual(await lookup("a.localhost", { family: "IPv4", all: true }), [[{ address: "127.0.0.1", family: 4 }]]);
  assert.deepEqual(await lookup("a.localhost", { all: true }), [[{ address: "127.0.0.1", family: 4 }]], "one address, so no race of two");
  assert.deepEqual(await dns.promises.lookup("a.localhost"), { address: "127.0.0.1", family: 4 });
  assert.equal((await dns.promises.lookup("a.localhost", { all: true })).length, 1);
  const named = await new Promise((resolve) => namedLookup("a.localhost", (_, address) => resolve(address)));
  assert.equal(named, "127.0.0.1", "named imports see it too");
});

test("other names, and wrong arguments, go to the original", async () => {
  assert.equal((await lookup("127.0.0.1"))[0], "127.0.0.1");
  assert.deepEqual(await dns.promises.lookup("127.0.0.1"), { address: "127.0.0.1", family: 4 });
  assert.throws(() => dns.lookup("a.localhost"), { code: "ERR_INVALID_ARG_TYPE" });
  assert.throws(() => dns.lookup({}, () => {}), { code: "ERR_INVALID_ARG_TYPE" });
});

test("fetch reaches a server under such a name and sends the name as Host", async () => {
  const response = await fetch(`http://sub.localhost:${server.port}/x`);
  assert.deepEqual(await response.json(), { path: "/x", host: `sub.localhost:${server.port}` });
});
