// Sandboxes whose state lasts, and what undoes that after a test.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { api, uniqueName } from "./client.mjs";

/** A persistent sandbox that goes, with its snapshots, when the test ends. */
export async function persistentSandbox(t, params = {}) {
  const sandbox = await Sandbox.create({ name: uniqueName("state"), persistent: true, ...params });
  t.after(() => forget(sandbox.name));
  return sandbox;
}

/** Deletes a sandbox, if it is there, and its snapshots. */
export async function forget(name) {
  await api("DELETE", `/v2/sandboxes/${name}?deleteOrphanSnapshots=true`);
  for (const snapshot of await snapshotsOf(name)) {
    if (snapshot.status === "created") await api("DELETE", `/v2/sandboxes/snapshots/${snapshot.id}`);
  }
}

/** All snapshots of a sandbox, the oldest first, deleted ones too. */
export async function snapshotsOf(name) {
  const all = [];
  for (let cursor = ""; cursor !== null; ) {
    const { json } = await api("GET", `/v2/sandboxes/snapshots?name=${name}&sortOrder=asc&limit=50${cursor && `&cursor=${cursor}`}`);
    all.push(...json.snapshots);
    cursor = json.pagination.next;
  }
  return all;
}

/** Stops a sandbox and gets it back with a new session. */
export async function cycle(sandbox, onResume = undefined) {
  const before = sandbox.currentSession().sessionId;
  const stopped = await sandbox.stop();
  assert.equal(stopped.status, "stopped");
  const back = await Sandbox.get({ name: sandbox.name, resume: true, onResume });
  assert.notEqual(back.currentSession().sessionId, before);
  assert.equal(back.status, "running");
  return back;
}
