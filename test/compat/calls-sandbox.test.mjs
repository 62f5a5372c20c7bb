// Every member of the client's Sandbox and its Session; the names in brackets
// are rows of docs/compatibility/vercel.md.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { describe, test } from "node:test";
import { DEFAULT_SANDBOX_REGION, Sandbox, Session } from "@vercel/sandbox";
import { finish, newSandbox, rejectsWith, sh, sharedSandbox, uniqueName } from "./support/client.mjs";
import { forget, persistentSandbox } from "./support/state.mjs";

const PORT = 3000;
const ASKED = {
  env: { FROM_CREATE: "yes" },
  tags: { suite: "calls" },
  ports: [PORT],
  region: "fra1",
  failoverRegions: ["iad1"],
  networkId: "net-1",
  timeout: 240_000,
  resources: { vcpus: 1 },
  networkPolicy: "deny-all",
  snapshotExpiration: 86_400_000,
  keepLastSnapshots: { count: 3, expiration: 0, deleteEvicted: false },
};
const box = sharedSandbox(ASKED);

/** Collects what the client writes to a stream of the caller. */
function sink() {
  const chunks = [];
  const stream = new Writable({ write: (chunk, _, done) => (chunks.push(chunk), done()) });
  return { stream, text: () => Buffer.concat(chunks).toString() };
}

/** Asserts that a Date is within the life of this test run. */
function assertRecent(date) {
  assert.ok(date instanceof Date && Math.abs(date - Date.now()) < 3_600_000, String(date));
}

describe("what a sandbox is made with", { concurrency: 4 }, () => {
  test("[Sandbox.create, Sandbox.create({name}), Sandbox.name] answers a sandbox of that name, which can run commands", async () => {
    assert.match(box.sandbox.name, /^compat-/);
    assert.equal((await box.sandbox.runCommand("true")).exitCode, 0);
  });
  test("[Sandbox.create({env})] variables are in every command", async () => {
    assert.equal((await sh(box.sandbox, "echo $FROM_CREATE")).stdout, "yes\n");
  });
  test("[Sandbox.create({tags}), Sandbox.tags] tags come back", () => assert.deepEqual(box.sandbox.tags, ASKED.tags));
  test("[Sandbox.create({ports}), Sandbox.routes, Session.routes] each port has a route", () => {
    assert.deepEqual(box.sandbox.routes.map(({ port }) => port), [PORT]);
    assert.deepEqual(box.sandbox.currentSession().routes, box.sandbox.routes);
  });
  test("[Sandbox.create({region}), Sandbox.region, Session.region] differs: any region is taken and echoed; the sandbox runs where the server is", () => {
    assert.equal(box.sandbox.region, "fra1");
    assert.equal(box.sandbox.currentSession().region, "fra1");
  });
  test("[Sandbox.create({failoverRegions}), Sandbox.failoverRegions] differs: echoed, checked against the region, and without effect", async () => {
    assert.deepEqual(box.sandbox.failoverRegions, ["iad1"]);
    await rejectsWith(Sandbox.create({ region: "iad1", failoverRegions: ["iad1"] }), 400, /failoverRegions/);
  });
  test("[Sandbox.create({networkId}), Sandbox.networkId] differs: echoed and without effect, there are no private networks of a platform", () => {
    assert.equal(box.sandbox.networkId, "net-1");
  });
  test("[DEFAULT_SANDBOX_REGION] is the region where none is given", async (t) => {
    assert.equal((await newSandbox(t)).region, DEFAULT_SANDBOX_REGION);
  });
  test("[Sandbox.create({timeout}), Sandbox.timeout, Session.timeout, Sandbox.expiresAt] sets when the session ends", () => {
    assert.equal(box.sandbox.timeout, ASKED.timeout);
    assert.equal(box.sandbox.currentSession().timeout, ASKED.timeout);
    const left = box.sandbox.expiresAt - Date.now();
    assert.ok(left > 0 && left <= ASKED.timeout, `${left} ms`);
  });
  test("[Sandbox.create({resources}), Sandbox.vcpus, Sandbox.memory, Session.vcpus, Session.memory] are what the sandbox sees", async () => {
    const session = box.sandbox.currentSession();
    assert.deepEqual([box.sandbox.vcpus, box.sandbox.memory, session.vcpus, session.memory], [1, 2048, 1, 2048]);
    assert.equal((await sh(box.sandbox, "nproc")).stdout, "1\n");
  });
  test("[Sandbox.create({networkPolicy}), Sandbox.networkPolicy, Session.networkPolicy] is in force from the start", async () => {
    assert.equal(box.sandbox.networkPolicy, "deny-all");
    assert.equal(box.sandbox.currentSession().networkPolicy, "deny-all");
    assert.notEqual((await sh(box.sandbox, "getent hosts example.com")).exitCode, 0);
  });
  test("[Sandbox.create({snapshotExpiration}), Sandbox.snapshotExpiration, Sandbox.create({keepLastSnapshots}), Sandbox.keepLastSnapshots] come back", () => {
    assert.equal(box.sandbox.snapshotExpiration, ASKED.snapshotExpiration);
    assert.deepEqual(box.sandbox.keepLastSnapshots, ASKED.keepLastSnapshots);
  });
  test("[Sandbox.create({persistent}), Sandbox.persistent] false means that nothing is kept", () => assert.equal(box.sandbox.persistent, false));
  test("[Sandbox.create({runtime}), Sandbox.runtime, Session.runtime] differs: any known runtime is the default image, which has Node.js and Python", async (t) => {
    const sandbox = await newSandbox(t, { runtime: "node24" });
    assert.equal(sandbox.runtime, "node24");
    assert.equal(sandbox.currentSession().runtime, "node24");
    assert.equal((await sh(sandbox, "node --version && python3 --version")).exitCode, 0);
  });
  test("[Sandbox.create({image}), Sandbox.image] differs: an image of any registry or of the server, pinned by its digest", async (t) => {
    for (const image of ["glovebox/universal", "vercel/sandbox/universal"]) {
      const sandbox = await newSandbox(t, { image });
      assert.equal(sandbox.image, box.sandbox.image);
      assert.match(sandbox.image, /@sha256:[0-9a-f]{64}$/);
    }
    await rejectsWith(Sandbox.create({ image: "glovebox/none" }), 400, /glovebox\/none/);
  });
  test("[Sandbox.create({fetch}), Sandbox.get({fetch}), Sandbox.list({fetch}), Sandbox.getOrCreate({fetch})] sends every request of the object", async (t) => {
    const seen = [];
    const fetch = (...args) => (seen.push(String(args[0])), globalThis.fetch(...args));
    const sandbox = await newSandbox(t, { fetch });
    await sandbox.runCommand("true");
    await Sandbox.get({ name: sandbox.name, fetch });
    await Sandbox.getOrCreate({ name: sandbox.name, fetch });
    await Sandbox.list({ limit: 1, fetch });
    assert.ok(seen.length >= 5, seen.join("\n"));
  });
  test("[Sandbox.create({onResume}), Sandbox.get({onResume}), Sandbox.get({resume}), Sandbox.get] a stopped sandbox is resumed, and the caller is told", async (t) => {
    const told = [];
    const sandbox = await persistentSandbox(t, { onResume: (resumed) => told.push(["create", resumed.status]) });
    await sandbox.stop();
    assert.equal((await Sandbox.get({ name: sandbox.name, resume: false })).status, "stopped");
    const again = await Sandbox.get({ name: sandbox.name, resume: true, onResume: (resumed) => told.push(["get", resumed.status]) });
    await again.stop();
    await sandbox.runCommand("true");
    assert.deepEqual(told, [["get", "running"], ["create", "running"]]);
  });
});

const GET_OR_CREATE = ["env", "failoverRegions", "keepLastSnapshots", "name", "networkId", "networkPolicy", "onCreate", "onResume", "persistent", "ports", "region", "resources", "resume", "runtime", "snapshotExpiration", "tags", "timeout"];

describe("getting and changing", { concurrency: 3 }, () => {
  test(`[Sandbox.getOrCreate, ${GET_OR_CREATE.map((option) => `Sandbox.getOrCreate({${option}})`).join(", ")}] makes it as asked the first time, finds and resumes it after`, async (t) => {
    const name = uniqueName("getorcreate");
    t.after(() => forget(name));
    const told = [];
    const params = { ...ASKED, name, runtime: "node24", persistent: true, resume: true, onCreate: () => told.push("create"), onResume: () => told.push("resume") };
    const made = await Sandbox.getOrCreate(params);
    const { env, resources, ...echoed } = ASKED;
    for (const [field, value] of Object.entries({ ...echoed, runtime: "node24", persistent: true, vcpus: resources.vcpus })) {
      if (field !== "ports") assert.deepEqual(made[field], value, field);
    }
    assert.equal((await sh(made, "echo $FROM_CREATE")).stdout, `${env.FROM_CREATE}\n`);
    await made.stop();
    const found = await Sandbox.getOrCreate(params);
    assert.equal(found.status, "running");
    assert.deepEqual(told, ["create", "resume"]);
  });
  test("[Sandbox.getOrCreate({image})] is for the sandbox that is made", async (t) => {
    const sandbox = await Sandbox.getOrCreate({ image: box.sandbox.image, persistent: false });
    t.after(() => sandbox.delete());
    assert.equal(sandbox.image, box.sandbox.image);
  });
  test("[Sandbox.create({source}), Sandbox.getOrCreate({source})] a snapshot is started from", async (t) => {
    const from = await persistentSandbox(t);
    await sh(from, "echo kept > kept");
    const { snapshotId } = await from.snapshot();
    const source = { type: "snapshot", snapshotId };
    const one = await newSandbox(t, { source });
    const two = await Sandbox.getOrCreate({ name: uniqueName(), source, persistent: false });
    t.after(() => two.delete());
    for (const sandbox of [one, two]) {
      assert.equal((await sh(sandbox, "cat kept")).stdout, "kept\n");
      assert.equal(sandbox.sourceSnapshotId, snapshotId);
    }
  });

  const UPDATED = ["failoverRegions", "keepLastSnapshots", "networkId", "networkPolicy", "persistent", "ports", "region", "resources", "snapshotExpiration", "tags", "timeout"];
  test(`[Sandbox.update, ${UPDATED.map((option) => `Sandbox.update({${option}})`).join(", ")}] changes what is given`, async (t) => {
    const sandbox = await persistentSandbox(t, { ...ASKED });
    const change = {
      failoverRegions: ["sfo1"],
      keepLastSnapshots: { count: 1 },
      networkId: "net-2",
      networkPolicy: "allow-all",
      ports: [4000, 4001],
      region: "cdg1",
      snapshotExpiration: 3_600_000,
      tags: { other: "tag" },
      timeout: 250_000,
    };
    await sandbox.update({ ...change, resources: { vcpus: 2 } });
    const now = await Sandbox.get({ name: sandbox.name });
    for (const seen of [sandbox, now]) {
      assert.deepEqual(seen.routes.map(({ port }) => port), change.ports);
      assert.equal(seen.keepLastSnapshots.count, 1);
      for (const field of ["failoverRegions", "networkId", "networkPolicy", "region", "snapshotExpiration", "tags", "timeout"]) assert.deepEqual(seen[field], change[field], field);
    }
    await sandbox.stop();
    assert.equal((await sh(sandbox, "nproc")).stdout, "2\n");
    await sandbox.update({ persistent: false, networkId: null, keepLastSnapshots: null });
    assert.equal(sandbox.persistent, false);
    assert.equal(sandbox.networkId, undefined);
    assert.equal(sandbox.keepLastSnapshots, undefined);
  });
  test("[Sandbox.update({currentSnapshotId}), Sandbox.currentSnapshotId, Sandbox.sourceSnapshotId, Session.sourceSnapshotId] the next session starts from it", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "echo first > f");
    const first = (await sandbox.stop()).snapshot.id;
    await sh(sandbox, "echo second > f");
    await sandbox.stop();
    await sandbox.update({ currentSnapshotId: first });
    assert.equal(sandbox.currentSnapshotId, first);
    assert.equal((await sh(sandbox, "cat f")).stdout, "first\n");
    assert.equal(sandbox.sourceSnapshotId, first);
    assert.equal(sandbox.currentSession().sourceSnapshotId, first);
  });
  test("[Sandbox.delete] it is gone", async (t) => {
    const sandbox = await newSandbox(t);
    await sandbox.delete();
    await rejectsWith(Sandbox.get({ name: sandbox.name }), 404);
  });
});

describe("a session", { concurrency: 4 }, () => {
  test("[Sandbox.currentSession, Session.sessionId, Session.status, Sandbox.status, Session.cwd, Sandbox.cwd, Session._sessionSnapshot] is the running one", () => {
    const session = box.sandbox.currentSession();
    assert.ok(session instanceof Session);
    assert.match(session.sessionId, /^se_/);
    assert.equal(session._sessionSnapshot.id, session.sessionId);
    assert.deepEqual([session.status, box.sandbox.status], ["running", "running"]);
    assert.deepEqual([session.cwd, box.sandbox.cwd], ["/vercel/sandbox", "/vercel/sandbox"]);
  });
  test("[Sandbox.createdAt, Sandbox.updatedAt, Sandbox.statusUpdatedAt, Session.createdAt, Session.updatedAt, Session.requestedAt, Session.startedAt] are dates", () => {
    const session = box.sandbox.currentSession();
    for (const date of [box.sandbox.createdAt, box.sandbox.updatedAt, box.sandbox.statusUpdatedAt, session.createdAt, session.updatedAt, session.requestedAt, session.startedAt]) assertRecent(date);
  });
  test("[Sandbox.stop, Session.requestedStopAt, Session.stoppedAt, Session.duration, Session.abortedAt, Sandbox.activeCpuUsageMs, Session.activeCpuUsageMs, Sandbox.networkTransfer, Session.networkTransfer] tells when it ended and what it used", async (t) => {
    const sandbox = await newSandbox(t);
    await sh(sandbox, "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done");
    assert.equal((await sandbox.stop()).status, "stopped");
    const session = sandbox.currentSession();
    assertRecent(session.requestedStopAt);
    assertRecent(session.stoppedAt);
    assert.ok(session.duration > 0);
    assert.equal(session.abortedAt, undefined);
    for (const used of [sandbox.activeCpuUsageMs, session.activeCpuUsageMs]) assert.ok(used > 0);
    for (const moved of [sandbox.networkTransfer, session.networkTransfer]) assert.deepEqual(Object.keys(moved).sort(), ["egress", "ingress"]);
  });
  test("[Sandbox.totalActiveCpuDurationMs, Sandbox.totalDurationMs, Sandbox.totalEgressBytes, Sandbox.totalIngressBytes] add up over sessions", async (t) => {
    const sandbox = await newSandbox(t);
    await sandbox.stop();
    const { totalActiveCpuDurationMs, totalDurationMs, totalEgressBytes, totalIngressBytes } = await Sandbox.get({ name: sandbox.name, resume: false });
    assert.ok(totalActiveCpuDurationMs > 0 && totalDurationMs > 0);
    assert.ok(totalEgressBytes >= 0 && totalIngressBytes >= 0);
  });
  test("[Session.stop] ends it", async (t) => {
    const sandbox = await newSandbox(t);
    const { session, sandbox: after } = await sandbox.currentSession().stop();
    assert.equal(session.status, "stopped");
    assert.equal(after.status, "stopped");
  });
  test("[Session.update, Session.update({networkPolicy}), Sandbox.updateNetworkPolicy] a policy is in force at once", async (t) => {
    const sandbox = await newSandbox(t);
    assert.equal(await sandbox.updateNetworkPolicy("deny-all"), "deny-all");
    assert.equal(sandbox.currentSession().networkPolicy, "deny-all");
    const custom = { allow: ["example.com"], subnets: { deny: ["8.8.8.0/24"] } };
    await sandbox.currentSession().update({ networkPolicy: custom });
    assert.deepEqual(sandbox.currentSession().networkPolicy, custom);
  });
  test("[Sandbox.extendTimeout, Session.extendTimeout] adds to the running session", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 60_000 });
    await sandbox.extendTimeout(10_000);
    await sandbox.currentSession().extendTimeout(5_000);
    assert.equal(sandbox.currentSession().timeout, 75_000);
  });
  test("[Sandbox.domain, Session.domain] differs: the address that the server gave (the client alone would name the platform's host; the shim corrects it)", () => {
    const session = box.sandbox.currentSession();
    assert.equal(box.sandbox.domain(PORT), box.sandbox.routes[0].url);
    assert.equal(session.domain(PORT), box.sandbox.routes[0].url);
    assert.throws(() => box.sandbox.domain(9999), /9999/);
  });
  test("[Session.updateRoutes] is local to the client", () => {
    const session = box.sandbox.currentSession();
    session.updateRoutes(session.routes.slice());
    assert.equal(session.domain(PORT), box.sandbox.routes[0].url);
  });
  test("[Sandbox.openInteractive, Session.openInteractive] answers where to connect a terminal, and a token", async () => {
    for (const holder of [box.sandbox, box.sandbox.currentSession()]) {
      const { url, token } = await holder.openInteractive();
      assert.match(url, /^wss?:\/\//);
      assert.ok(token.length > 20);
    }
  });
  test("[Sandbox.interactivePort, Session.interactivePort, behaviour: private parameters] `__interactive` is passed on, and gives a port", async (t) => {
    assert.equal(box.sandbox.interactivePort, undefined);
    const sandbox = await newSandbox(t, { __interactive: true, __unknown: "ignored" });
    assert.ok(sandbox.interactivePort > 0);
    assert.equal(sandbox.currentSession().interactivePort, sandbox.interactivePort);
  });
});

const HOLDERS = [["Sandbox", () => box.sandbox], ["Session", () => box.sandbox.currentSession()]];

describe("commands and files", { concurrency: 4 }, () => {
  for (const [holder, get] of HOLDERS) {
    test(`[${holder}.runCommand, ${holder}.runCommand({args}), ${holder}.runCommand({cwd}), ${holder}.runCommand({env})] runs with them`, async () => {
      assert.equal(await (await get().runCommand("echo", ["short", "form"])).stdout(), "short form\n");
      const run = await get().runCommand({ cmd: "sh", args: ["-c", 'echo "$A $PWD"'], cwd: "/tmp", env: { A: "b" } });
      assert.equal(await run.stdout(), "b /tmp\n");
    });
    test(`[${holder}.runCommand({stdout}), ${holder}.runCommand({stderr})] streams of the caller get the output`, async () => {
      const [out, err] = [sink(), sink()];
      await get().runCommand({ cmd: "sh", args: ["-c", "echo out; echo err >&2"], stdout: out.stream, stderr: err.stream });
      assert.deepEqual([out.text(), err.text()], ["out\n", "err\n"]);
    });
    test(`[${holder}.runCommand({sudo})] runs as root`, async () => {
      assert.equal(await (await get().runCommand({ cmd: "id", args: ["-u"], sudo: true })).stdout(), "0\n");
    });
    test(`[${holder}.runCommand({detached}), ${holder}.getCommand] answers at once, and the command is found by its id`, async () => {
      const command = await get().runCommand({ cmd: "sh", args: ["-c", "sleep 0.2; exit 3"], detached: true });
      assert.equal(command.exitCode, null);
      assert.equal((await (await get().getCommand(command.cmdId)).wait()).exitCode, 3);
    });
    test(`[${holder}.runCommand({timeoutMs})] kills it with 137`, async () => {
      assert.equal((await get().runCommand({ cmd: "sleep", args: ["60"], timeoutMs: 300 })).exitCode, 137);
    });
    test(`[${holder}.mkDir, ${holder}.writeFiles, ${holder}.readFile, ${holder}.readFile({cwd}), ${holder}.readFileToBuffer, ${holder}.readFileToBuffer({cwd})] what is written is read`, async () => {
      const dir = `of-${holder}`;
      await get().mkDir(dir);
      await get().writeFiles([{ path: `${dir}/f`, content: "text", mode: 0o600 }]);
      const chunks = [];
      for await (const chunk of await get().readFile({ path: "f", cwd: `/vercel/sandbox/${dir}` })) chunks.push(chunk);
      assert.equal(Buffer.concat(chunks).toString(), "text");
      assert.equal((await get().readFileToBuffer({ path: "f", cwd: `/vercel/sandbox/${dir}` })).toString(), "text");
      assert.equal(await get().readFileToBuffer({ path: "missing" }), null);
      assert.equal((await sh(box.sandbox, `stat -c %a ${dir}/f`)).stdout, "600\n");
    });
    test(`[${holder}.downloadFile, ${holder}.downloadFile({cwd}), ${holder}.downloadFile({mkdirRecursive})] a file comes to this side`, async (t) => {
      const here = await mkdtemp(join(tmpdir(), "download-"));
      t.after(() => rm(here, { recursive: true }));
      await sh(box.sandbox, `mkdir -p /tmp/down-${holder} && printf downloaded > /tmp/down-${holder}/f`);
      const path = await get().downloadFile({ path: "f", cwd: `/tmp/down-${holder}` }, { path: "a/b/f", cwd: here }, { mkdirRecursive: true });
      assert.equal(path, join(here, "a/b/f"));
      assert.equal(await readFile(path, "utf8"), "downloaded");
      assert.equal(await get().downloadFile({ path: "missing" }, { path: join(here, "x") }), null);
    });
  }
  test("[Sandbox.fs] node's file functions, for the sandbox", async () => {
    await box.sandbox.fs.writeFile("via-fs", "1");
    assert.equal((await finish(await box.sandbox.runCommand("cat", ["via-fs"]))).stdout, "1");
  });
});
