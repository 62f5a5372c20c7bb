// Bad requests: refused with the field's name, and nothing is made or changed.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { api, assertError, credentials, newSandbox, rejectsWith, sessionPath, sharedSandbox, uniqueName } from "./support/client.mjs";

const box = sharedSandbox({ timeout: 60_000 });
const DAY = 24 * 3600 * 1000;

/** Asserts that no sandbox of this name came to be. */
async function notMade(name) {
  assert.equal((await api("GET", `/v2/sandboxes/${name}`)).status, 404);
}

describe("create", { concurrency: 3 }, () => {
  const cases = {
    "timeout 0": [{ timeout: 0 }, /timeout/],
    "a negative timeout": [{ timeout: -1 }, /timeout/],
    "a very negative timeout": [{ timeout: -10000 }, /timeout/],
    "a fraction of a millisecond": [{ timeout: 0.5 }, /timeout/],
    "a timeout beyond all numbers": [{ timeout: 1e30 }, /timeout/],
    "a timeout in words": [{ timeout: "5m" }, /timeout/],
    "a timeout that is true": [{ timeout: true }, /timeout/],
    "a timeout below a second": [{ timeout: 999 }, /timeout/],
    "a timeout above the maximum": [{ timeout: DAY + 1 }, /timeout/],
    "an odd number of CPUs": [{ resources: { vcpus: 3 } }, /vcpus/],
    "no CPUs": [{ resources: { vcpus: 0 } }, /vcpus/],
    "more CPUs than there are": [{ resources: { vcpus: 4096 } }, /vcpus/],
    "runtime and image together": [{ runtime: "node24", image: "glovebox/universal" }, /runtime.*image|image.*runtime/s],
    "a runtime with a snapshot": [{ runtime: "node24", source: { type: "snapshot", snapshotId: "snap_00000000000000000000" } }, /runtime|snapshot/],
    "an unknown source": [{ source: { type: "floppy" } }, /source/],
    "an image name that is too long": [{ image: "x".repeat(256) }, /image/],
    "too many tags": [{ tags: Object.fromEntries(Array.from({ length: 6 }, (_, i) => [`k${i}`, "v"])) }, /tags/],
    "a tag that is too long": [{ tags: { k: "v".repeat(257) } }, /tags/],
    "an environment over the limit": [{ env: { BIG: "x".repeat(65 * 1024) } }, /env/],
    "an environment that is a list": [{ env: ["A=B"] }, /env/],
    "a fail-over region that is the region": [{ region: "iad1", failoverRegions: ["iad1"] }, /failoverRegions/],
    "ports that are no list": [{ ports: 3000 }, /ports/],
    "a policy that is none": [{ networkPolicy: { mode: "sometimes" } }, /networkPolicy|mode/],
  };
  for (const [what, [body, message]] of Object.entries(cases)) {
    test(`${what} is refused`, async () => {
      const name = uniqueName("bad");
      const path = body.runtime ? "/v2/sandboxes" : "/v3/sandboxes";
      assertError(await api("POST", path, { body: { name, ...body } }), 400, { message });
      await notMade(name);
    });
  }

  for (const [what, name] of Object.entries({ "a space": "a b", "a slash": "a/b", "too many letters": "n".repeat(129), "a dot": "a.b" })) {
    test(`a name with ${what} is refused`, async () => {
      assertError(await api("POST", "/v3/sandboxes", { body: { name } }), 400, { message: /name/ });
    });
  }

  test("what is no number in the client, and null on the wire, is refused", async () => {
    await rejectsWith(Sandbox.create({ ...credentials(), timeout: Number.NaN }), 400, /timeout/);
  });

  test("the longest timeout is taken as it is", async (t) => {
    assert.equal((await newSandbox(t, { timeout: DAY })).timeout, DAY);
  });

  test("the client shows the message", async () => {
    await rejectsWith(Sandbox.create({ ...credentials(), timeout: -1 }), 400, /timeout/);
  });

  test("a body that is not JSON, or not an object, is refused", async () => {
    for (const body of ["{", "[]", `"x"`, "null"]) assertError(await api("POST", "/v3/sandboxes", { body }), 400);
  });
});

describe("running sandboxes", { concurrency: 3 }, () => {
  test("extensions that extend nothing, or too much, are refused", async () => {
    const before = (await api("GET", sessionPath(box.sandbox))).json.session.timeout;
    for (const duration of [0, -5000, 999, "x", null, 1e30, 2 * DAY]) {
      assertError(await api("POST", sessionPath(box.sandbox, "/extend-timeout"), { body: { duration } }), 400, { message: /duration|timeout/ });
    }
    assertError(await api("POST", sessionPath(box.sandbox, "/extend-timeout"), { body: {} }), 400, { message: /duration/ });
    assert.equal((await api("GET", sessionPath(box.sandbox))).json.session.timeout, before);
  });

  test("limits of commands that are none are refused, and large ones honoured", async () => {
    for (const timeout of [0, -1, 1.5, 99, "x", 1e30]) {
      assertError(await api("POST", sessionPath(box.sandbox, "/cmd"), { body: { command: "true", timeout } }), 400, { message: /timeout/ });
    }
    const run = await box.sandbox.runCommand({ cmd: "true", timeoutMs: 1e12 });
    assert.equal(run.exitCode, 0);
  });

  test("an update with a bad value changes nothing", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 60_000, tags: { a: "1" } });
    const cases = [{ timeout: -1 }, { timeout: "x" }, { ports: Array(16).fill(3000) }, { tags: { a: 1 } }, { resources: { vcpus: 3 } }];
    for (const body of cases) assertError(await api("PATCH", `/v2/sandboxes/${sandbox.name}`, { body: { tags: { changed: "yes" }, ...body } }), 400);
    const now = (await api("GET", `/v2/sandboxes/${sandbox.name}`)).json.sandbox;
    assert.equal(now.timeout, 60_000);
    assert.deepEqual(now.tags, { a: "1" });
    await rejectsWith(sandbox.update({ timeout: -1 }), 400, /timeout/);
  });

  test("a bad policy is refused with its field, and the old one stays", async (t) => {
    const sandbox = await newSandbox(t, { networkPolicy: "deny-all" });
    const cases = [{ mode: "x" }, { allow: "x" }, { allow: [1] }, { subnets: { allow: ["300.0.0.0/8"] } }];
    for (const body of cases) assertError(await api("POST", sessionPath(sandbox, "/network-policy"), { body }), 400);
    assert.equal((await Sandbox.get({ name: sandbox.name })).networkPolicy, "deny-all");
  });

  test("commands with fields of the wrong kind are refused", async () => {
    const cases = [{ args: "x" }, { args: [1] }, { env: { A: 1 } }, { sudo: "yes" }, { cwd: 5 }, { wait: "yes" }, { command: 5 }, { command: "a\0b" }];
    for (const body of cases) assertError(await api("POST", sessionPath(box.sandbox, "/cmd"), { body: { command: "true", ...body } }), 400);
  });

  test("file calls without a path, or with a bad one, are refused", async () => {
    for (const rest of ["/fs/read", "/fs/mkdir"]) {
      for (const body of [{}, { path: "" }, { path: 5 }, { path: "/tmp/a\0b" }]) {
        assertError(await api("POST", sessionPath(box.sandbox, rest), { body }), 400, { message: /path/ });
      }
    }
  });

  test("signals that are none are refused", async () => {
    const command = await box.sandbox.runCommand({ cmd: "sleep", args: ["30"], detached: true });
    for (const signal of [-1, 65, 1.5, "x"]) {
      assertError(await api("POST", sessionPath(box.sandbox, `/cmd/${command.cmdId}/kill`), { body: { signal } }), 400, { message: /signal/ });
    }
    assert.equal((await box.sandbox.getCommand(command.cmdId)).exitCode, null);
    await command.kill("SIGKILL");
  });
});

describe("unknown things", { concurrency: 3 }, () => {
  test("ids and names that do not exist are not found", async () => {
    const calls = [
      ["GET", "/v2/sandboxes/none"],
      ["PATCH", "/v2/sandboxes/none", { timeout: 5000 }],
      ["DELETE", "/v2/sandboxes/none"],
      ["GET", "/v2/sandboxes/sessions/se_00000000000000000000"],
      ["POST", "/v2/sandboxes/sessions/se_00000000000000000000/cmd", { command: "true" }],
      ["POST", "/v2/sandboxes/sessions/se_00000000000000000000/stop"],
    ];
    for (const [method, path, body] of calls) assertError(await api(method, path, { body }), 404, { code: "not_found" });
  });

  test("paths and methods that the API has not are told apart from errors", async () => {
    assert.equal((await api("GET", "/v2/elsewhere")).status, 404);
    assert.ok([404, 405].includes((await api("PUT", "/v2/sandboxes")).status));
  });

  test("the prefix of the client's base address is accepted", async () => {
    assert.equal((await api("GET", "/api/v2/sandboxes")).status, 200);
  });

  test("a repeated create with the same key makes one sandbox", async (t) => {
    const name = uniqueName();
    const headers = { "idempotency-key": name };
    const answers = [];
    for (let i = 0; i < 2; i++) answers.push(await api("POST", "/v3/sandboxes", { body: { name, persistent: false }, headers }));
    t.after(() => api("DELETE", `/v2/sandboxes/${name}`));
    assert.deepEqual(answers.map((answer) => answer.status), [200, 200]);
    assert.equal(answers[0].json.session.id, answers[1].json.session.id);
  });
});
