// Drives: disks of their own that sandboxes mount, as the client and the CLI use
// them.

import assert from "node:assert/strict";
import { Drive, Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { api, assertError, newSandbox, rejectsWith, sh, uniqueName } from "./support/client.mjs";

/** Makes a drive that is deleted after the test. */
async function newDrive(t, params = {}) {
  const drive = await Drive.getOrCreate({ name: uniqueName("drive"), ...params });
  t.after(() => drive.delete());
  return drive;
}

async function out(sandbox, script) {
  const result = await sh(sandbox, script);
  assert.equal(result.exitCode, 0, `${script}: ${result.stderr}`);
  return result.stdout;
}

describe("drives", { concurrency: 2 }, () => {
  test("are made once, found, listed and deleted", async (t) => {
    const drive = await newDrive(t, { maxSize: 5 << 20, region: "iad1" });
    assert.match(drive.driveId, /^drv_/);
    assert.equal(drive.maxSize, 5 << 20);
    assert.equal(drive.region, "iad1");
    assert.equal((await Drive.getOrCreate({ name: drive.name })).driveId, drive.driveId);
    await rejectsWith(Drive.getOrCreate({ name: drive.name, maxSize: 6 << 20 }), 409, /maxSizeBytes/);
    await rejectsWith(Drive.getOrCreate({ name: uniqueName("drive"), maxSize: 1 }), 400, /maxSizeBytes/);
    await rejectsWith(Drive.getOrCreate({ name: "no name" }), 400, /name/);
    const found = await Drive.list({ namePrefix: drive.name, sortBy: "name", sortOrder: "asc", limit: 50 });
    assert.deepEqual((await found.toArray()).map((d) => d.driveId), [drive.driveId]);
    const other = await Drive.getOrCreate({ name: uniqueName("drive") });
    const deleted = await api("DELETE", `/v2/sandboxes/drives/${other.name}`);
    assert.equal(deleted.status, 200);
    assertError(await api("GET", `/v2/sandboxes/drives/${other.driveId}`), 404, { code: "not_found" });
    assertError(await api("DELETE", `/v2/sandboxes/drives/${other.name}`), 404, { code: "not_found" });
  });

  test("keep what sandboxes wrote, one writer at a time", async (t) => {
    const drive = await newDrive(t);
    const first = await newSandbox(t, { persistent: false, mounts: { "/data": drive } });
    assert.deepEqual(first.mounts, { "/data": { drive: drive.name, mode: "read-write" } });
    assert.equal((await Drive.getOrCreate({ name: drive.name })).currentSandboxName, first.name);
    await first.writeFiles([{ path: "/data/up.txt", content: "uploaded" }]);
    await out(first, "mkdir /data/dir && echo one > /data/dir/f && chmod 640 /data/dir/f && ln -s dir/f /data/link && echo gone > /tmp/f");
    await rejectsWith(Sandbox.create({ mounts: { "/data": drive } }), 409, new RegExp(`${drive.name}.*${first.name}`));
    await rejectsWith(Sandbox.create({ mounts: { "/data": drive.snapshot() } }), 422, /drive_not_initialized|nothing/);
    await rejectsWith(drive.delete(), 409, new RegExp(first.name));
    await first.stop();

    const second = await newSandbox(t, { persistent: true, mounts: { "/mnt/there": drive, "/view": drive.snapshot() } });
    assert.equal(await out(second, "cat /mnt/there/link /view/up.txt; stat -c %a /view/dir/f; ls /data 2>&1 || true"), "one\nuploaded640\nls: cannot access '/data': No such file or directory\n");
    assert.equal(await out(second, "touch /view/x 2>&1 || sudo touch /view/x 2>&1 || true"), "touch: cannot touch '/view/x': Read-only file system\n".repeat(2));
    await out(second, "echo two > /mnt/there/dir/f; rm /mnt/there/up.txt");
    assert.equal(await out(second, "cat /view/dir/f /view/up.txt"), "one\nuploaded"); // the last state, not what is being written
    await second.stop();
    // Resumed, it has its drives again, as they are by now.
    assert.equal(await out(second, "cat /mnt/there/dir/f /view/dir/f; ls /view"), "two\ntwo\ndir\nlink\n");
    await second.stop();
  });

  test("are bounded by their size", async (t) => {
    const drive = await newDrive(t, { maxSize: 8 << 20 });
    const sandbox = await newSandbox(t, { persistent: false, mounts: { "/data": drive } });
    const full = await sh(sandbox, "head -c 20M /dev/zero > /data/big");
    assert.notEqual(full.exitCode, 0);
    assert.match(full.stderr, /No space left/);
    assert.equal(await out(sandbox, "rm /data/big; head -c 6M /dev/urandom > /data/big; head -c 20M /dev/zero > /tmp/big; stat -c %s /data/big"), `${6 << 20}\n`);
    await sandbox.stop();
    const next = await newSandbox(t, { persistent: false, mounts: { "/data": drive } });
    assert.notEqual((await sh(next, "head -c 6M /dev/zero > /data/more")).exitCode, 0);
    await next.stop();
  });

  test("four at most, at paths that do not overlap", async (t) => {
    const drives = await Promise.all(Array.from({ length: 5 }, () => newDrive(t)));
    const at = (n) => Object.fromEntries(drives.slice(0, n).map((d, i) => [`/d${i}/x`, d]));
    await rejectsWith(Sandbox.create({ mounts: at(5) }), 400, /at most 4/);
    const mounts = (m) => Sandbox.create({ mounts: m });
    await rejectsWith(mounts({ "/a": drives[0], "/a/b": drives[1] }), 400, /overlap/);
    await rejectsWith(mounts({ "a": drives[0] }), 400, /absolute/);
    await rejectsWith(mounts({ "/proc/x": drives[0] }), 400, /kernel/);
    await rejectsWith(mounts({ "/a": drives[0], "/b": drives[0] }), 400, /snapshot/);
    await rejectsWith(mounts({ "/a": { drive: "no-such-drive", mode: "read-write" } }), 404, /no-such-drive/);
    const sandbox = await newSandbox(t, { persistent: false, mounts: at(4) });
    assert.equal(await out(sandbox, "for i in 0 1 2 3; do echo $i > /d$i/x/f; done; cat /d?/x/f"), "0\n1\n2\n3\n");
    await sandbox.stop();
  });

  test("are changed for the next session, and seen by a copy", async (t) => {
    const drive = await newDrive(t);
    const sandbox = await newSandbox(t, { persistent: true, mounts: { "/data": drive } });
    await out(sandbox, "echo one > /data/f; echo kept > /root.txt || sudo sh -c 'echo kept > /root.txt'");
    const fork = await Sandbox.fork({ sourceSandbox: sandbox.name });
    t.after(() => fork.delete());
    assert.equal(await out(fork, "cat /data/f /root.txt"), "one\nkept\n");
    assert.notEqual((await sh(fork, "touch /data/x")).exitCode, 0);
    await out(sandbox, "echo two > /data/f");
    await sandbox.update({ mounts: { "/else": drive } });
    assert.equal(await out(sandbox, "cat /data/f"), "two\n");
    await sandbox.stop();
    assert.equal(await out(sandbox, "cat /else/f; ls /data"), "two\n");
    await sandbox.update({ mounts: {} });
    await sandbox.stop();
    assert.deepEqual((await Sandbox.get({ name: sandbox.name, resume: false })).mounts ?? {}, {});
    assert.equal(await out(sandbox, "cat /root.txt; [ ! -e /else/f ]"), "kept\n");
    await fork.stop();
  });
});
