// Every member of the client's Snapshot, forks, and its lists.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { rejectsWith, sh, sharedSandbox, uniqueName } from "./support/client.mjs";
import { forget, persistentSandbox } from "./support/state.mjs";

const DAY = 86_400_000;

describe("snapshots", { concurrency: 3 }, () => {
  const chain = sharedSandbox({ persistent: true, name: uniqueName("chain") });
  const ids = [];
  before(async () => {
    for (const i of [1, 2, 3]) {
      await sh(chain.sandbox, `echo ${i} > x`);
      ids.push((await chain.sandbox.snapshot()).snapshotId);
    }
  });

  test("[Sandbox.snapshot, Sandbox.snapshot({expiration}), Session.snapshot, Session.snapshot({expiration}), Session.snapshottedAt] keeps the disk and ends the session", async (t) => {
    const one = await persistentSandbox(t);
    const session = one.currentSession();
    const kept = await one.snapshot({ expiration: 2 * DAY });
    const of = Math.round((kept.expiresAt - kept.createdAt) / DAY);
    assert.equal(of, 2);
    assert.equal(session.status, "stopped");
    assert.ok(Math.abs(session.snapshottedAt - Date.now()) < 3_600_000);
    const two = await persistentSandbox(t);
    assert.equal((await two.currentSession().snapshot({ expiration: 0 })).expiresAt, undefined);
  });
  test("[Snapshot.get, Snapshot.get({fetch}), Snapshot.snapshotId, Snapshot.sourceSessionId, Snapshot.regions, Snapshot.status, Snapshot.sizeBytes, Snapshot.createdAt, Snapshot.updatedAt, Snapshot.expiresAt] describe it", async () => {
    let calls = 0;
    const found = await Snapshot.get({ snapshotId: ids[0], fetch: (...args) => (calls++, globalThis.fetch(...args)) });
    assert.equal(calls, 1);
    assert.equal(found.snapshotId, ids[0]);
    assert.match(found.sourceSessionId, /^se_/);
    assert.deepEqual(found.regions, ["iad1"]);
    assert.equal(found.status, "created");
    assert.ok(found.sizeBytes > 0);
    for (const date of [found.createdAt, found.updatedAt]) assert.ok(Math.abs(date - Date.now()) < 3_600_000);
    assert.ok(found.expiresAt > Date.now());
    await rejectsWith(Snapshot.get({ snapshotId: `snap_${"a1".repeat(13)}` }), 404);
  });
  test("[Snapshot.list, Snapshot.list({name}), Snapshot.list({limit}), Snapshot.list({cursor}), Snapshot.list({sortOrder}), Snapshot.list({fetch})] page by page, either way", async () => {
    let calls = 0;
    const query = { name: chain.sandbox.name, limit: 2, fetch: (...args) => (calls++, globalThis.fetch(...args)) };
    const newest = await Snapshot.list(query);
    assert.deepEqual(newest.snapshots.map(({ id }) => id), ids.toReversed().slice(0, 2));
    const rest = await Snapshot.list({ ...query, cursor: newest.pagination.next });
    assert.deepEqual(rest.snapshots.map(({ id }) => id), [ids[0]]);
    const oldest = await Snapshot.list({ ...query, sortOrder: "asc", limit: 1 });
    assert.equal(oldest.snapshots[0].id, ids[0]);
    assert.equal(calls, 3);
  });
  test("[Snapshot.tree, Snapshot.tree({limit}), Snapshot.tree({sortOrder}), Snapshot.tree({fetch})] ancestors and descendants", async () => {
    let calls = 0;
    const query = { snapshotId: ids[1], limit: 1, fetch: (...args) => (calls++, globalThis.fetch(...args)) };
    const up = await Snapshot.tree({ ...query, sortOrder: "desc" });
    const down = await Snapshot.tree({ ...query, sortOrder: "asc" });
    assert.deepEqual([up, down].map(({ snapshots }) => snapshots.map((node) => node.snapshot.id)), [[ids[0]], [ids[2]]]);
    assert.equal(up.anchor.snapshot.id, ids[1]);
    assert.equal(calls, 2);
  });
  test("[Sandbox.listSnapshots, Sandbox.listSnapshots({limit}), Sandbox.listSnapshots({cursor}), Sandbox.listSnapshots({sortOrder})] those of one sandbox", async () => {
    const page = await chain.sandbox.listSnapshots({ limit: 1, sortOrder: "asc" });
    assert.equal(page.snapshots[0].id, ids[0]);
    const next = await chain.sandbox.listSnapshots({ limit: 1, sortOrder: "asc", cursor: page.pagination.next });
    assert.equal(next.snapshots[0].id, ids[1]);
  });
  test("[Sandbox.listSessions, Sandbox.listSessions({limit}), Sandbox.listSessions({cursor}), Sandbox.listSessions({sortOrder})] those of one sandbox", async () => {
    const all = await (await chain.sandbox.listSessions({ limit: 50, sortOrder: "asc" })).toArray();
    const page = await chain.sandbox.listSessions({ limit: 1, sortOrder: "asc" });
    const next = await chain.sandbox.listSessions({ limit: 1, sortOrder: "asc", cursor: page.pagination.next });
    assert.deepEqual([page.sessions[0].id, next.sessions[0].id], all.slice(0, 2).map(({ id }) => id));
    assert.ok(all.length >= 3 && all.every(({ status }) => typeof status === "string"));
  });
  test("[Snapshot.delete] it still reads as deleted, and nothing starts from it", async (t) => {
    const sandbox = await persistentSandbox(t);
    const snapshot = await sandbox.snapshot();
    await snapshot.delete();
    assert.equal(snapshot.status, "deleted");
    assert.equal((await Snapshot.get({ snapshotId: snapshot.snapshotId })).status, "deleted");
    await rejectsWith(Sandbox.create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId } }), 410);
  });
  test("[Sandbox.delete({deleteOrphanSnapshots})] takes the snapshots that nothing else uses", async (t) => {
    const sandbox = await persistentSandbox(t);
    const { snapshotId } = await sandbox.snapshot();
    await sandbox.delete({ deleteOrphanSnapshots: true });
    assert.equal((await Snapshot.get({ snapshotId })).status, "deleted");
  });
});

describe("forks", { concurrency: 2 }, () => {
  const GIVEN = {
    env: { FORKED: "yes" },
    failoverRegions: ["sfo1"],
    keepLastSnapshots: { count: 2, expiration: 0, deleteEvicted: true },
    networkId: "net-9",
    networkPolicy: "deny-all",
    persistent: true,
    ports: [4000],
    region: "fra1",
    snapshotExpiration: DAY,
    tags: { forked: "yes" },
    timeout: 222_000,
  };
  const source = sharedSandbox({ tags: { source: "yes" }, ports: [3000], persistent: true });
  const fork = async (t, params = {}) => {
    const made = await Sandbox.fork({ sourceSandbox: source.sandbox.name, name: uniqueName("fork"), ...params });
    t.after(() => forget(made.name));
    return made;
  };

  test("[Sandbox.fork, Sandbox.fork({name}), Sandbox.fork({fetch})] copies the disk and the settings", async (t) => {
    await sh(source.sandbox, "echo copied > x");
    let calls = 0;
    const name = uniqueName("fork");
    const copy = await fork(t, { name, fetch: (...args) => (calls++, globalThis.fetch(...args)) });
    assert.equal(copy.name, name);
    assert.deepEqual(copy.tags, { source: "yes" });
    assert.equal((await sh(copy, "cat x")).stdout, "copied\n");
    assert.ok(calls >= 2);
  });
  test(`[${Object.keys(GIVEN).map((field) => `Sandbox.fork({${field}})`).join(", ")}, Sandbox.fork({resources}), Sandbox.fork({onResume})] each replaces what would be copied`, async (t) => {
    let resumed = 0;
    const copy = await fork(t, { ...GIVEN, resources: { vcpus: 1 }, onResume: () => resumed++ });
    for (const [field, value] of Object.entries(GIVEN)) {
      if (field !== "env" && field !== "ports") assert.deepEqual(copy[field], value, field);
    }
    assert.deepEqual([copy.vcpus, copy.routes.map(({ port }) => port)], [1, GIVEN.ports]);
    assert.equal((await sh(copy, "echo $FORKED")).stdout, "yes\n");
    await copy.stop();
    await copy.runCommand("true");
    assert.equal(resumed, 1);
  });
  test("[Sandbox.fork({image})] starts from the image, with the settings copied", async (t) => {
    const copy = await fork(t, { image: "glovebox/universal" });
    assert.deepEqual(copy.tags, { source: "yes" });
    assert.equal((await sh(copy, "ls | wc -l")).stdout, "0\n");
  });
  test("[Sandbox.fork({mounts})] differs: the client takes the option and does not send it", async (t) => {
    const copy = await fork(t, { mounts: { "/data": { drive: "none", mode: "snapshot" } } });
    assert.equal(copy.mounts, undefined);
  });
});

describe("lists", () => {
  const prefix = uniqueName("listed");
  const names = ["a", "b", "c"].map((letter) => `${prefix}-${letter}`);
  for (const name of names) sharedSandbox({ name, tags: { in: prefix }, resources: { vcpus: 1 } });

  test("[Sandbox.list, Sandbox.list({limit}), Sandbox.list({cursor}), Sandbox.list({namePrefix}), Sandbox.list({sortBy}), Sandbox.list({sortOrder}), Sandbox.list({tags})] what is asked for, in order", async () => {
    const query = { namePrefix: prefix, sortBy: "name", sortOrder: "desc", limit: 2, tags: { in: prefix } };
    const page = await Sandbox.list(query);
    assert.deepEqual(page.sandboxes.map(({ name }) => name), names.toReversed().slice(0, 2));
    const next = await Sandbox.list({ ...query, cursor: page.pagination.next });
    assert.deepEqual(next.sandboxes.map(({ name }) => name), names.slice(0, 1));
    assert.deepEqual((await Sandbox.list({ ...query, tags: { in: "other" } })).sandboxes, []);
  });
  test("[Paginator.pagination, Paginator.pages, Paginator.toArray, Paginator.[Symbol.asyncIterator]] go through all pages", async () => {
    const first = () => Sandbox.list({ namePrefix: prefix, sortBy: "name", sortOrder: "asc", limit: 2 });
    const sizes = [];
    for await (const page of (await first()).pages()) sizes.push([page.sandboxes.length, page.pagination.count, page.pagination.next === null]);
    assert.deepEqual(sizes, [[2, 2, false], [1, 1, true]]);
    assert.deepEqual((await (await first()).toArray()).map(({ name }) => name), names);
    const seen = [];
    for await (const { name } of await first()) seen.push(name);
    assert.deepEqual(seen, names);
  });
});
