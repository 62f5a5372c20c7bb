// Every member of the client's Drive, and the mounts of sandboxes.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Drive, Sandbox } from "@vercel/sandbox";
import { WORKFLOW_DESERIALIZE, WORKFLOW_SERIALIZE } from "@workflow/serde";
import { eventually, newSandbox, rejectsWith, sh, uniqueName } from "./support/client.mjs";
import { persistentSandbox } from "./support/state.mjs";

const FIELDS = ["driveId", "name", "projectId", "region", "maxSize", "createdAt", "updatedAt"];
const OPTIONS = ["Sandbox.create({mounts})", "Sandbox.getOrCreate({mounts})", "Sandbox.update({mounts})", "Sandbox.mounts"];

/** A drive that is deleted when the test ends. */
async function newDrive(t, params = {}) {
  const drive = await Drive.getOrCreate({ name: uniqueName("drive"), ...params });
  t.after(() => eventually(() => drive.delete().then(() => true, (error) => error.response?.status === 404), { what: "the end of the drive's use" }));
  return drive;
}

describe("drives", { concurrency: 3 }, () => {
  test(`[Drive.getOrCreate, ${FIELDS.map((field) => `Drive.${field}`).join(", ")}, Drive.getOrCreate({maxSize}), Drive.getOrCreate({region}), Drive.getOrCreate({fetch})] makes it once, and describes it`, async (t) => {
    let calls = 0;
    const name = uniqueName("drive");
    const params = { name, maxSize: 64 * 2 ** 20, region: "iad1", fetch: (...args) => (calls++, globalThis.fetch(...args)) };
    const drive = await newDrive(t, params);
    const again = await Drive.getOrCreate(params);
    assert.equal(again.driveId, drive.driveId);
    assert.equal(calls, 2);
    assert.match(drive.driveId, /^drv_/);
    assert.deepEqual([drive.name, drive.region, drive.maxSize, typeof drive.projectId], [name, "iad1", params.maxSize, "string"]);
    for (const date of [drive.createdAt, drive.updatedAt]) assert.ok(Math.abs(date - Date.now()) < 3_600_000);
    await rejectsWith(Drive.getOrCreate({ ...params, maxSize: 128 * 2 ** 20 }), 409);
  });
  test("[Drive.list, Drive.list({limit}), Drive.list({cursor}), Drive.list({namePrefix}), Drive.list({sortBy}), Drive.list({sortOrder}), Drive.list({fetch})] what is asked for, in order", async (t) => {
    const prefix = uniqueName("drives");
    for (const letter of "abc") await newDrive(t, { name: `${prefix}-${letter}` });
    let calls = 0;
    const query = { namePrefix: prefix, sortBy: "name", sortOrder: "desc", limit: 2, fetch: (...args) => (calls++, globalThis.fetch(...args)) };
    const page = await Drive.list(query);
    assert.deepEqual(page.drives.map(({ name }) => name.at(-1)), ["c", "b"]);
    const next = await Drive.list({ ...query, cursor: page.pagination.next });
    assert.deepEqual(next.drives.map(({ name }) => name.at(-1)), ["a"]);
    assert.equal(calls, 2);
  });
  test(`[${OPTIONS.join(", ")}, Drive.currentSessionId, Drive.currentSandboxName] what one sandbox writes is there for the next`, async (t) => {
    const drive = await newDrive(t);
    const one = await newSandbox(t, { mounts: { "/data": drive } });
    assert.deepEqual(one.mounts, { "/data": { drive: drive.name, mode: "read-write" } });
    assert.equal((await sh(one, "echo kept > /data/f")).exitCode, 0);
    const attached = await Drive.getOrCreate({ name: drive.name });
    assert.equal(attached.currentSandboxName, one.name);
    assert.equal(attached.currentSessionId, one.currentSession().sessionId);
    await rejectsWith(drive.delete(), 409);
    await one.stop();
    const two = await Sandbox.getOrCreate({ name: uniqueName(), persistent: false, mounts: { "/other": drive } });
    t.after(() => two.delete());
    assert.equal((await sh(two, "cat /other/f")).stdout, "kept\n");
    await two.stop();
    const three = await persistentSandbox(t);
    await three.update({ mounts: { "/third": drive } });
    await three.stop();
    assert.equal((await sh(three, "cat /third/f")).stdout, "kept\n");
    await three.stop();
  });
  test("[Drive.snapshot] is a mount that reads the last state", async (t) => {
    const drive = await newDrive(t);
    const writer = await newSandbox(t, { mounts: { "/data": drive } });
    await sh(writer, "echo old > /data/f");
    await writer.stop();
    const reader = await newSandbox(t, { mounts: { "/data": drive.snapshot() } });
    assert.equal((await sh(reader, "cat /data/f")).stdout, "old\n");
    assert.notEqual((await sh(reader, "touch /data/new")).exitCode, 0);
    await reader.stop();
  });
  test("[Drive.[WORKFLOW_SERIALIZE], Drive.[WORKFLOW_DESERIALIZE], Drive.delete] an object from JSON deletes it", async (t) => {
    const drive = await newDrive(t);
    await Drive[WORKFLOW_DESERIALIZE](JSON.parse(JSON.stringify(Drive[WORKFLOW_SERIALIZE](drive)))).delete();
    assert.ok(!(await Drive.list({ namePrefix: drive.name })).drives.length);
  });
});
