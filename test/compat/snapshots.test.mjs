// Snapshots, what is made of them, and forks.

import assert from "node:assert/strict";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { api, assertError, credentials, eventually, pause, rejectsWith, sessionPath, sh, uniqueName } from "./support/client.mjs";
import { cycle, forget, persistentSandbox, snapshotsOf } from "./support/state.mjs";

/** A sandbox made from a snapshot or another sandbox, removed after the test. */
async function another(t, making) {
  const sandbox = await making;
  t.after(() => forget(sandbox.name));
  return sandbox;
}

const from = (t, snapshotId, params = {}) =>
  another(t, Sandbox.create({ name: uniqueName("state"), source: { type: "snapshot", snapshotId }, ...params }));

const MONTH = 30 * 24 * 3600 * 1000;

describe("a snapshot", { concurrency: 2 }, () => {
  test("stops the session, and the next call resumes from it", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sandbox.writeFiles([{ path: "x", content: "1" }]);
    const path = sessionPath(sandbox);
    const snapshot = await sandbox.snapshot();
    assert.match(snapshot.snapshotId, /^snap_[A-Za-z0-9]{20,}$/);
    assert.equal(snapshot.status, "created");
    assert.equal(snapshot.expiresAt.getTime() - snapshot.createdAt.getTime(), MONTH);
    assert.equal((await Sandbox.get({ name: sandbox.name, resume: false })).status, "stopped");
    assertError(await api("POST", `${path}/snapshot`), 410, { code: "sandbox_stopped" });
    assert.equal((await sh(sandbox, "cat x")).stdout, "1");
    assert.equal(sandbox.sourceSnapshotId, snapshot.snapshotId);
    assert.equal((await Snapshot.get({ snapshotId: snapshot.snapshotId })).sourceSessionId, path.split("/").at(-1));
  });

  test("calls while it is taken are refused with a code of their own", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "head -c 100000000 /dev/urandom > big");
    const path = sessionPath(sandbox);
    const taken = api("POST", `${path}/snapshot`, { body: { expiration: 0 } });
    const codes = new Set();
    let done = false;
    taken.then(() => (done = true));
    while (!done) {
      const [run, again] = await Promise.all([api("POST", `${path}/cmd`, { body: { command: "true" } }), api("GET", `/v2/sandboxes/${sandbox.name}`)]);
      if (run.status !== 200) codes.add(`${run.status} ${run.json.error.code}`);
      assert.ok(["running", "snapshotting", "stopped"].includes(again.json.sandbox.status), again.json.sandbox.status);
    }
    assert.equal((await taken).status, 201);
    assert.ok(codes.has("422 sandbox_snapshotting"), [...codes].join());
    const { snapshot, session } = (await taken).json;
    assert.equal(session.status, "stopped");
    assert.equal(typeof session.snapshottedAt, "number");
    assert.equal(snapshot.expiresAt, undefined);
    assert.ok(snapshot.sizeBytes >= 1e8 && snapshot.sizeBytes < 1.1e8, `${snapshot.sizeBytes}`);
  });

  test("of a sandbox that is not persistent ends it for good", async (t) => {
    const sandbox = await persistentSandbox(t, { persistent: false });
    await sh(sandbox, "echo 1 > x");
    const snapshot = await sandbox.snapshot();
    await rejectsWith(sandbox.runCommand("true"), 410, /persist/);
    assert.equal((await sh(await from(t, snapshot.snapshotId), "cat x")).stdout, "1\n");
  });

  test("gives many sandboxes at once, with resources and settings of their own", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "rm -rf /usr/share/doc; mkdir /usr/share/doc; echo m > /usr/share/doc/marker", { sudo: true });
    const first = await sandbox.snapshot();
    const copies = await Promise.all(Array.from({ length: 4 }, (_, i) => from(t, first.snapshotId, { resources: { vcpus: 1 }, env: { I: `${i}` }, ports: [8000 + i] })));
    const seen = await Promise.all(copies.map((copy) => sh(copy, "ls -A /usr/share/doc; find /usr/share/doc | wc -l; nproc; echo $I; echo $I > mine")));
    seen.forEach(({ stdout }, i) => assert.equal(stdout, `marker\n2\n1\n${i}\n`));
    assert.deepEqual(copies[3].routes.map((route) => route.port), [8003]);
    // A snapshot of a copy is a second generation.
    const second = await copies[1].snapshot();
    const grandchild = await from(t, second.snapshotId);
    assert.equal((await sh(grandchild, "ls -A /usr/share/doc; cat mine")).stdout, "marker\n1\n");
    assert.equal((await sh(sandbox, "cat mine 2>&1 | wc -l")).stdout, "1\n");
  });

  test("that is deleted says so, and nothing starts from it any more", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "echo 1 > x");
    const snapshot = await sandbox.snapshot();
    const copy = await from(t, snapshot.snapshotId);
    await snapshot.delete();
    assert.equal(snapshot.status, "deleted");
    assert.equal((await Snapshot.get({ snapshotId: snapshot.snapshotId })).status, "deleted");
    await rejectsWith(Sandbox.create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId } }), 410, /snapshot/);
    await rejectsWith(Sandbox.create({ source: { type: "snapshot", snapshotId: `snap_${"a1".repeat(13)}` } }), 404);
    await rejectsWith(Snapshot.get({ snapshotId: `snap_${"a1".repeat(13)}` }), 404);
    const withRuntime = { source: { type: "snapshot", snapshotId: snapshot.snapshotId }, runtime: "node24" };
    assertError(await api("POST", "/v2/sandboxes", { body: withRuntime }), 400, { message: /source|runtime/ });
    // What runs from it goes on and keeps its disk.
    assert.equal((await sh(await cycle(copy), "cat x")).stdout, "1\n");
  });

  test("expires some time after its last use", async (t) => {
    const sandbox = await persistentSandbox(t, { snapshotExpiration: 4000 });
    await sh(sandbox, "echo 1 > x");
    const { snapshot } = await sandbox.stop();
    assert.equal(snapshot.expiresAt - snapshot.createdAt, 4000);
    await pause(2500);
    const back = await Sandbox.get({ name: sandbox.name, resume: true }); // a use
    await pause(2500);
    assert.equal((await Snapshot.get({ snapshotId: snapshot.id })).status, "created");
    await back.stop();
    await eventually(async () => (await Snapshot.get({ snapshotId: snapshot.id })).status === "deleted", { what: "the expiry" });
    await rejectsWith(Sandbox.create({ source: { type: "snapshot", snapshotId: snapshot.id } }), 410);
  });
});

describe("many snapshots", { concurrency: 2 }, () => {
  /** Stops and resumes so often, and returns the snapshots' ids. */
  async function history(sandbox, length) {
    const ids = [];
    for (let i = 1; i <= length; i++) {
      await sh(sandbox, `echo ${i} > x`);
      ids.push((await sandbox.stop()).snapshot.id);
      await sandbox.resume();
    }
    return ids;
  }

  test("of one sandbox are listed page by page", async (t) => {
    const sandbox = await persistentSandbox(t);
    const ids = await history(sandbox, 5);
    const paged = await sandbox.listSnapshots({ limit: 2, sortOrder: "asc" });
    assert.equal(paged.snapshots.length, 2);
    assert.deepEqual((await paged.toArray()).map((s) => s.id), ids);
    const latest = await Snapshot.list({ name: sandbox.name, limit: 50 });
    assert.deepEqual(latest.snapshots.map((s) => s.id), ids.toReversed());
    assert.ok(latest.snapshots.every((s) => s.status === "created" && s.creationMethod === "automatic"));
    assertError(await api("GET", "/v2/sandboxes/snapshots?limit=0"), 400, { message: /limit/ });
    assertError(await api("GET", "/v2/sandboxes/snapshots?cursor=x"), 400, { message: /cursor/ });
  });

  test("make a tree that is walked both ways", async (t) => {
    const sandbox = await persistentSandbox(t);
    const ids = await history(sandbox, 4);
    const side = await from(t, ids[0]);
    await sh(side, "echo side > y");
    const branch = (await side.stop()).snapshot.id;
    const up = await Snapshot.tree({ snapshotId: ids[3], sortOrder: "desc", limit: 2 });
    assert.equal(up.anchor.snapshot.id, ids[3]);
    assert.deepEqual((await up.toArray()).map((n) => n.snapshot.id), ids.slice(0, 3).toReversed());
    const second = up.snapshots.at(-1);
    assert.deepEqual([second.count, second.siblings.map((s) => s.id)], ["2", [branch]]);
    const down = await Snapshot.tree({ snapshotId: ids[1], sortOrder: "asc" });
    assert.deepEqual(down.snapshots.map((n) => [n.snapshot.id, n.count]), ids.slice(2).map((id) => [id, "1"]));
  });

  test("are reduced to the last ones where that is asked for", async (t) => {
    const sandbox = await persistentSandbox(t, { keepLastSnapshots: { count: 2, expiration: 0 } });
    const ids = await history(sandbox, 4);
    const kept = await snapshotsOf(sandbox.name);
    assert.deepEqual(kept.map((s) => [s.id, s.status]), ids.map((id, i) => [id, i < 2 ? "deleted" : "created"]));
    assert.equal(kept[3].expiresAt, undefined);
    assert.equal((await sh(sandbox, "cat x")).stdout, "4\n");
    await sandbox.update({ keepLastSnapshots: null });
    assert.equal(sandbox.keepLastSnapshots, undefined);
  });

  test("lead back to any of them", async (t) => {
    const sandbox = await persistentSandbox(t);
    const ids = await history(sandbox, 3);
    await sandbox.stop();
    await sandbox.update({ currentSnapshotId: ids[0] });
    assert.equal(sandbox.currentSnapshotId, ids[0]);
    assert.equal((await sh(sandbox, "cat x")).stdout, "1\n");
    // While it runs the choice is for the next session.
    await sh(sandbox, "echo lost > x");
    await sandbox.update({ currentSnapshotId: ids[1] });
    assert.equal((await sh(sandbox, "cat x")).stdout, "lost\n");
    await sandbox.stop();
    assert.equal((await sh(sandbox, "cat x")).stdout, "2\n");
    await rejectsWith(sandbox.update({ currentSnapshotId: `snap_${"a1".repeat(13)}` }), 404);
  });

  test("go with their sandbox only where that is asked for", async (t) => {
    const sandbox = await persistentSandbox(t);
    const [kept] = await history(sandbox, 1);
    await sandbox.delete();
    const status = async (id) => (await Snapshot.get({ snapshotId: id })).status;
    assert.equal(await status(kept), "created");
    const other = await from(t, kept);
    await sh(other, "echo 2 > x");
    const own = (await other.stop()).snapshot.id;
    const user = await from(t, own);
    await other.delete({ deleteOrphanSnapshots: true });
    assert.deepEqual([await status(kept), await status(own)], ["created", "created"]); // another's, and in use
    await user.delete({ deleteOrphanSnapshots: true });
    await rejectsWith(Sandbox.get({ name: other.name }), 404);
  });

  test("are another project's secret", async (t) => {
    const sandbox = await persistentSandbox(t);
    const [id] = await history(sandbox, 1);
    const elsewhere = uniqueName("p");
    for (const [method, path] of [["GET", `/v2/sandboxes/snapshots/${id}`], ["DELETE", `/v2/sandboxes/snapshots/${id}`], ["GET", `/v2/sandboxes/snapshots/tree?snapshotId=${id}`]]) {
      assertError(await api(method, `${path}${path.includes("?") ? "&" : "?"}projectId=${elsewhere}`), 404, { code: "not_found" });
    }
    await rejectsWith(Sandbox.create({ source: { type: "snapshot", snapshotId: id }, ...credentials(elsewhere) }), 404);
    assert.equal((await Snapshot.get({ snapshotId: id })).status, "created");
  });
});

describe("a fork", { concurrency: 2 }, () => {
  const settings = { env: { K: "v" }, ports: [3000], tags: { team: "a" }, timeout: 200_000, networkPolicy: "deny-all", resources: { vcpus: 1 } };

  test("of a stopped sandbox has its disk and its settings", async (t) => {
    const source = await persistentSandbox(t, settings);
    await sh(source, "echo 1 > x");
    const { snapshot } = await source.stop();
    const fork = await another(t, Sandbox.fork({ sourceSandbox: source.name }));
    assert.equal((await sh(fork, "cat x; echo $K")).stdout, "1\nv\n");
    assert.equal(fork.sourceSnapshotId, snapshot.id);
    const shown = (s) => [s.vcpus, s.timeout, s.tags, s.networkPolicy, s.persistent, s.image, s.routes.map((r) => r.port)];
    assert.deepEqual(shown(fork), shown(source));
    assert.notEqual(fork.domain(3000), source.domain(3000));
    assert.equal((await Sandbox.get({ name: source.name, resume: false })).status, "stopped");
  });

  test("of a running sandbox is a copy of its disk now, and the source goes on", async (t) => {
    const source = await persistentSandbox(t, settings);
    const counter = await source.runCommand({ cmd: "sh", args: ["-c", "while :; do echo x >> beat; sleep 0.1; done"], detached: true });
    await sh(source, "rm -rf /usr/share/doc; echo 1 > x; sleep 1", { sudo: true });
    const forks = await Promise.all(Array.from({ length: 3 }, (_, i) => another(t, Sandbox.fork({ sourceSandbox: source.name, name: uniqueName(`fork${i}`) }))));
    for (const fork of forks) {
      const { stdout } = await sh(fork, "cat x; ls /usr/share/doc 2>&1 | wc -l; test -s beat && echo beat; sleep 0.5; wc -l < beat");
      const [x, , beat, count] = stdout.split("\n");
      assert.deepEqual([x, beat], ["1", "beat"]);
      assert.equal(count, (await sh(fork, "wc -l < beat")).stdout.trim(), "nothing runs in the fork");
    }
    const before = Number((await sh(source, "wc -l < beat")).stdout);
    await eventually(async () => Number((await sh(source, "wc -l < beat")).stdout) > before, { what: "the source's next beat" });
    assert.equal((await source.getCommand(counter.cmdId)).exitCode, null);
    await sh(forks[0], "echo fork > x", { sudo: true });
    assert.equal((await sh(await cycle(forks[0]), "cat x")).stdout, "fork\n");
    assert.equal((await sh(await cycle(source), "cat x")).stdout, "1\n");
  });

  test("has what is given in place of what it would copy", async (t) => {
    const source = await persistentSandbox(t, settings);
    await sh(source, "echo 1 > x");
    await source.stop();
    const given = { name: uniqueName("fork"), env: { Q: "w" }, ports: [], tags: {}, timeout: 100_000, networkPolicy: "allow-all", resources: { vcpus: 2 }, persistent: false };
    const fork = await another(t, Sandbox.fork({ sourceSandbox: source.name, ...given }));
    assert.deepEqual([fork.name, fork.vcpus, fork.timeout, fork.networkPolicy, fork.persistent, fork.routes], [given.name, 2, 100_000, "allow-all", false, []]);
    assert.equal((await sh(fork, "cat x; echo $K$Q")).stdout, "1\nw\n");
    const fresh = await another(t, Sandbox.fork({ sourceSandbox: source.name, image: "glovebox/universal" }));
    assert.notEqual((await sh(fresh, "cat x")).exitCode, 0);
    await rejectsWith(Sandbox.fork({ sourceSandbox: uniqueName("none") }), 404);
    await rejectsWith(Sandbox.fork({ sourceSandbox: source.name, name: given.name }), 400, /already exists/);
  });
});
