// A sandbox from its creation to its end.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { api, assertError, credentials, eventually, newSandbox, rejectsWith, sessionPath, sh, uniqueName } from "./support/client.mjs";

describe("create", { concurrency: 3 }, () => {
  test("without arguments gives a running sandbox with the defaults", async (t) => {
    const sandbox = await Sandbox.create();
    t.after(() => sandbox.delete());
    assert.match(sandbox.name, /^[A-Za-z0-9_-]{1,128}$/);
    assert.equal(sandbox.status, "running");
    assert.equal(sandbox.persistent, true);
    assert.equal(sandbox.timeout, 300_000);
    assert.equal(sandbox.vcpus, 2);
    assert.equal(sandbox.memory, 4096);
    assert.equal(sandbox.region, "iad1");
    assert.equal(sandbox.cwd, "/vercel/sandbox");
    assert.match(sandbox.image, /@sha256:[0-9a-f]{64}$/);
    assert.deepEqual(sandbox.routes, []);
    assert.match(sandbox.currentSession().sessionId, /^se_[A-Za-z0-9]{20,}$/);
    assert.equal(sandbox.networkPolicy, "allow-all");
    const left = sandbox.expiresAt.getTime() - Date.now();
    assert.ok(left > 200_000 && left <= 300_000, `expires in ${left} ms`);
    assert.equal((await sh(sandbox, "echo hello")).stdout, "hello\n");
  });

  test("takes what is asked for, and shows it", async (t) => {
    const params = { resources: { vcpus: 1 }, timeout: 120_000, tags: { team: "a", k: "v" }, ports: [3000], region: "fra1", persistent: false };
    const sandbox = await newSandbox(t, params);
    assert.equal(sandbox.vcpus, 1);
    assert.equal(sandbox.memory, 2048);
    assert.equal(sandbox.timeout, 120_000);
    assert.deepEqual(sandbox.tags, params.tags);
    assert.equal(sandbox.region, "fra1");
    assert.equal(sandbox.persistent, false);
    assert.deepEqual(sandbox.routes.map((route) => route.port), [3000]);
    const inside = await sh(sandbox, "nproc; awk '/MemTotal/{print int($2/1024)}' /proc/meminfo");
    const [cpus, megabytes] = inside.stdout.trim().split("\n").map(Number);
    assert.equal(cpus, 1);
    assert.ok(Math.abs(megabytes - 2048) < 100, `MemTotal ${megabytes} MB`);
  });

  test("two sandboxes see nothing of each other", async (t) => {
    const [one, two] = await Promise.all([newSandbox(t), newSandbox(t)]);
    await sh(one, "echo secret > /tmp/secret; hostname changed 2>/dev/null; sleep 300 &");
    assert.notEqual((await sh(two, "cat /tmp/secret")).exitCode, 0);
    assert.equal((await sh(two, "pgrep -c sleep")).stdout, "0\n");
  });

  test("a name can be used once", async (t) => {
    const sandbox = await newSandbox(t);
    await rejectsWith(Sandbox.create({ name: sandbox.name }), 400, /already exists/);
  });

  test("getOrCreate finds what is there and makes what is not", async (t) => {
    const name = uniqueName();
    let made = 0;
    const params = { name, persistent: false, onCreate: () => made++ };
    const first = await Sandbox.getOrCreate(params);
    t.after(() => first.delete());
    const second = await Sandbox.getOrCreate(params);
    assert.equal(made, 1);
    assert.equal(second.currentSession().sessionId, first.currentSession().sessionId);
  });

  test("the client's disposal stops it", async (t) => {
    let name;
    {
      const sandbox = await newSandbox(t);
      name = sandbox.name;
      await sandbox[Symbol.asyncDispose]();
    }
    assert.equal((await Sandbox.get({ name, resume: false })).status, "stopped");
  });
});

describe("get and list", { concurrency: 3 }, () => {
  test("get answers the same sandbox, and changes nothing", async (t) => {
    const sandbox = await newSandbox(t, { ports: [3000] });
    const again = await Sandbox.get({ name: sandbox.name });
    assert.equal(again.currentSession().sessionId, sandbox.currentSession().sessionId);
    assert.equal(again.domain(3000), sandbox.domain(3000));
    assert.equal((await sh(again, "echo x")).stdout, "x\n");
  });

  test("pages hold every sandbox once, also while new ones are made", async (t) => {
    const prefix = uniqueName("page");
    const names = Array.from({ length: 5 }, (_, i) => `${prefix}-${i}`);
    for (const name of names) await newSandbox(t, { name });
    const page = await Sandbox.list({ ...credentials(), namePrefix: prefix, limit: 2, sortBy: "name", sortOrder: "asc" });
    assert.deepEqual(page.sandboxes.map((entry) => entry.name), names.slice(0, 2));
    assert.equal(page.pagination.count, 2);
    assert.equal(typeof page.pagination.next, "string");
    await newSandbox(t, { name: `${prefix}-0a` });
    const all = await page.toArray();
    assert.deepEqual(all.map((entry) => entry.name), names);
  });

  test("by age, newest first, and the other way round", async (t) => {
    const prefix = uniqueName("age");
    for (const i of [0, 1, 2]) await newSandbox(t, { name: `${prefix}-${i}` });
    const query = (order) => Sandbox.list({ ...credentials(), namePrefix: prefix, sortBy: "createdAt", sortOrder: order });
    const names = (page) => page.sandboxes.map((entry) => entry.name.at(-1)).join("");
    assert.equal(names(await query("desc")), "210");
    assert.equal(names(await query("asc")), "012");
  });

  test("tags and status narrow the list", async (t) => {
    const prefix = uniqueName("tag");
    await newSandbox(t, { name: `${prefix}-a`, tags: { colour: prefix } });
    const stopped = await newSandbox(t, { name: `${prefix}-b` });
    await stopped.stop();
    const tagged = await Sandbox.list({ ...credentials(), tags: { colour: prefix } });
    assert.deepEqual(tagged.sandboxes.map((entry) => entry.name), [`${prefix}-a`]);
    const answer = await api("GET", `/v2/sandboxes?namePrefix=${prefix}&status=stopped`);
    assert.deepEqual(answer.json.sandboxes.map((entry) => entry.name), [`${prefix}-b`]);
  });

  test("bad queries are refused", async () => {
    for (const query of ["limit=0", "limit=51", "limit=x", "cursor=nonsense", "sortBy=colour", "sortOrder=up", "status=asleep"]) {
      assertError(await api("GET", `/v2/sandboxes?${query}`), 400, { message: new RegExp(query.split("=")[0]) });
    }
  });

  test("sessions of a sandbox are listed", async (t) => {
    const sandbox = await newSandbox(t);
    const { sessions } = await sandbox.listSessions();
    assert.deepEqual(sessions.map((session) => session.id), [sandbox.currentSession().sessionId]);
  });
});

describe("time, updates and the end", { concurrency: 3 }, () => {
  test("extendTimeout adds to the running session", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 60_000 });
    const before = sandbox.expiresAt.getTime();
    await sandbox.extendTimeout(30_000);
    assert.equal(sandbox.currentSession().timeout, 90_000);
    assert.equal(sandbox.expiresAt.getTime() - before, 30_000);
  });

  test("update changes timeout, tags and policy, and what is not given stays", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 60_000, tags: { a: "1" } });
    await sandbox.update({ timeout: 90_000 });
    assert.equal(sandbox.timeout, 90_000);
    assert.equal(sandbox.currentSession().timeout, 90_000);
    assert.deepEqual(sandbox.tags, { a: "1" });
    await sandbox.update({ tags: { b: "2" } });
    assert.deepEqual(sandbox.tags, { b: "2" });
    await sandbox.update({ networkPolicy: "deny-all" });
    assert.equal(sandbox.networkPolicy, "deny-all");
    assert.equal((await Sandbox.get({ name: sandbox.name })).networkPolicy, "deny-all");
  });

  test("stop ends the session, tells what it used, and may be repeated", async (t) => {
    const sandbox = await newSandbox(t, { ports: [3000] });
    await sh(sandbox, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    const session = await sandbox.stop();
    assert.equal(session.status, "stopped");
    assert.ok(session.activeCpuDurationMs > 0);
    assert.ok(session.networkTransfer.ingress >= 0 && session.networkTransfer.egress >= 0);
    assert.ok(session.duration > 0);
    assert.equal((await sandbox.stop()).status, "stopped");
    const found = await Sandbox.get({ name: sandbox.name, resume: false });
    assert.equal(found.status, "stopped");
    assert.ok(found.currentSession().stoppedAt instanceof Date);
  });

  test("a stopped session refuses work and stays readable", async (t) => {
    const sandbox = await newSandbox(t);
    const path = (rest) => sessionPath(sandbox, rest);
    await sandbox.stop();
    const calls = [
      ["/cmd", { command: "true" }],
      ["/fs/read", { path: "/etc/passwd" }],
      ["/fs/mkdir", { path: "/tmp/x" }],
      ["/extend-timeout", { duration: 5000 }],
      ["/network-policy", { mode: "deny-all" }],
      ["/interactive", {}],
    ];
    for (const [rest, body] of calls) assertError(await api("POST", path(rest), { body }), 410, { code: "sandbox_stopped" });
    assert.equal((await api("GET", path(""))).json.session.status, "stopped");
  });

  test("a sandbox that is not persistent cannot be resumed", async (t) => {
    const sandbox = await newSandbox(t);
    await sandbox.stop();
    await rejectsWith(sandbox.runCommand("true"), 410, /persist/i);
    await rejectsWith(Sandbox.get({ name: sandbox.name, resume: true }), 410, /persist/i);
  });

  test("delete removes it, running or stopped, and frees its name", async (t) => {
    const name = uniqueName();
    const running = await Sandbox.create({ name, persistent: false });
    await running.delete();
    await rejectsWith(Sandbox.get({ name }), 404);
    await rejectsWith(running.delete(), 404);
    const again = await newSandbox(t, { name });
    assert.equal(again.name, name);
    await again.stop();
    await again.delete();
    await rejectsWith(Sandbox.get({ name, resume: false }), 404);
  });

  test("after the timeout the sandbox is stopped, in the list too", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 1500 });
    const status = async () => (await Sandbox.get({ name: sandbox.name, resume: false })).status;
    await eventually(async () => (await status()) === "stopped", { timeout: 20_000, what: "the end by timeout" });
    const { sandboxes } = await Sandbox.list({ ...credentials(), namePrefix: sandbox.name });
    assert.equal(sandboxes[0].status, "stopped");
    assert.equal(sandboxes[0].expiresAt, undefined);
  });
});
