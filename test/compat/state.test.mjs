// State that lasts: a persistent sandbox is stopped and resumed, and everything
// that is a file is as it was.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { SLOW, api, assertError, eventually, rejectsWith, sessionPath, sh, uniqueName, within } from "./support/client.mjs";
import { cycle, persistentSandbox } from "./support/state.mjs";

describe("stop and resume", { concurrency: 2 }, () => {
  test("ten cycles keep what each of them did", async (t) => {
    const params = { env: { K: "kept" }, ports: [3000], networkPolicy: "deny-all", timeout: 120_000 };
    let sandbox = await persistentSandbox(t, params);
    const url = sandbox.domain(3000);
    const sessions = new Set([sandbox.currentSession().sessionId]);
    for (let k = 1; k <= 10; k++) {
      const work = `echo cycle ${k} >> log.txt; touch ${k}.txt; rm -f ${k - 1}.txt; rm -rf dir; mkdir dir; touch dir/of-${k}`;
      assert.equal((await sh(sandbox, work)).exitCode, 0);
      const resumed = [];
      sandbox = await cycle(sandbox, () => resumed.push(k));
      assert.deepEqual(resumed, [k]);
      sessions.add(sandbox.currentSession().sessionId);
      assert.equal(sessions.size, k + 1);
      const { stdout } = await sh(sandbox, "cat log.txt; ls *.txt dir; echo $K");
      const log = Array.from({ length: k }, (_, i) => `cycle ${i + 1}\n`).join("");
      assert.equal(stdout, `${log}${[`${k}.txt`, "log.txt"].sort().join("\n")}\n\ndir:\nof-${k}\nkept\n`);
      assert.equal(sandbox.domain(3000), url);
      assert.equal(sandbox.networkPolicy, "deny-all");
      assert.equal(sandbox.timeout, 120_000);
    }
    assert.notEqual((await sh(sandbox, "curl -sm3 http://example.com")).exitCode, 0);
  });

  test("a call of the client resumes, and is repeated", async (t) => {
    let hooks = 0;
    const sandbox = await persistentSandbox(t, { onResume: () => hooks++ });
    await sandbox.writeFiles([{ path: "x", content: "1" }]);
    const before = sandbox.currentSession().sessionId;
    const stopped = await sandbox.stop();
    assert.equal(stopped.status, "stopped");
    assert.equal(stopped.snapshot.status, "created");
    assert.equal(sandbox.currentSnapshotId, stopped.snapshot.id);
    assert.equal((await sandbox.readFileToBuffer({ path: "x" })).toString(), "1");
    assert.notEqual(sandbox.currentSession().sessionId, before);
    assert.equal(sandbox.sourceSnapshotId, stopped.snapshot.id);
    assert.equal(hooks, 1);
    const old = await api("POST", `/v2/sandboxes/sessions/${before}/cmd`, { body: { command: "true" } });
    assertError(old, 410, { code: "sandbox_stopped" });
  });

  test("ten clients at once get one session, also while it stops", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "echo 1 > x");
    const stop = sandbox.stop();
    const found = await Promise.all(Array.from({ length: 10 }, () => Sandbox.get({ name: sandbox.name, resume: true })));
    await stop;
    const sessions = new Set(found.map((s) => s.currentSession().sessionId));
    assert.ok(sessions.size <= 2, `${sessions.size} sessions`); // some may have come before the stop
    const again = await Promise.all(Array.from({ length: 10 }, () => Sandbox.get({ name: sandbox.name, resume: true })));
    assert.equal(new Set(again.map((s) => s.currentSession().sessionId)).size, 1);
    assert.deepEqual(await Promise.all(again.map(async (s) => (await sh(s, "cat x")).stdout)), Array(10).fill("1\n"));
  });

  test("the time-out keeps the disk too, but no processes", async (t) => {
    const sandbox = await persistentSandbox(t, { ports: [3000], timeout: 20_000 });
    await sh(sandbox, `python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("left.sock")'`);
    const server = await sandbox.runCommand({ cmd: "sh", args: ["-c", "echo $$ > pid; exec python3 -m http.server 3000"], detached: true });
    const [url, session] = [sandbox.domain(3000), sandbox.currentSession().sessionId];
    await eventually(async () => (await fetch(url)).status === 200, { what: "the server" });
    await eventually(async () => (await Sandbox.get({ name: sandbox.name, resume: false })).status === "stopped", { timeout: 40_000, what: "the time-out" });
    const back = await Sandbox.get({ name: sandbox.name, resume: true });
    assert.equal((await sh(back, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'http[.]server'")).stdout, "0\n");
    assert.equal((await sh(back, "test -s pid && test -S left.sock && echo left")).stdout, "left\n");
    const old = await api("GET", `/v2/sandboxes/sessions/${session}/cmd/${server.cmdId}`);
    assert.equal(typeof old.json.command.exitCode, "number");
    await back.runCommand({ cmd: "python3", args: ["-m", "http.server", "3000"], detached: true });
    assert.equal(back.domain(3000), url);
    await eventually(async () => (await fetch(url)).status === 200, { what: "the new server" });
    const drift = Number((await sh(back, "date +%s")).stdout) - Date.now() / 1000;
    assert.ok(Math.abs(drift) < 3, `the clock is ${drift} s off`);
  });

  test("an untouched sandbox resumes as well", async (t) => {
    const sandbox = await persistentSandbox(t);
    const back = await cycle(await cycle(sandbox));
    assert.equal((await sh(back, "echo ok")).stdout, "ok\n");
  });

  test("one that is not persistent keeps nothing", async (t) => {
    const sandbox = await persistentSandbox(t, { persistent: false });
    const stopped = await sandbox.stop();
    assert.equal(stopped.snapshot, undefined);
    await rejectsWith(Sandbox.get({ name: sandbox.name, resume: true }), 410, /persist/i);
  });
});

describe("what a disk holds", { concurrency: 2 }, () => {
  const twice = async (t, work, check) => {
    let sandbox = await persistentSandbox(t, { timeout: 300_000 });
    const made = await sh(sandbox, `set -e\n${work}`, { sudo: true });
    assert.equal(made.exitCode, 0, made.stderr);
    const before = await sh(sandbox, check, { sudo: true });
    assert.equal(before.exitCode, 0, before.stderr);
    for (const round of ["first", "second"]) {
      sandbox = await cycle(sandbox);
      const now = await sh(sandbox, check, { sudo: true });
      assert.equal(now.stdout + now.stderr, before.stdout + before.stderr, `${round} resume`);
      if (round === "first") await sh(sandbox, "date +%N > touched");
    }
    return before.stdout;
  };

  test("a directory of the image that was made anew holds only what is new", async (t) => {
    const out = await twice(t, "rm -rf /usr/share/doc; mkdir /usr/share/doc; echo m > /usr/share/doc/marker", "ls -A /usr/share/doc; find /usr/share/doc | wc -l");
    assert.equal(out, "marker\n2\n");
  });

  test("files of the image that are gone, changed or replaced by another kind", async (t) => {
    const work = `rm /etc/hostname; echo more >> /etc/profile; rm -rf /usr/share/man; ln -s /nowhere /usr/share/man
      rm -rf /usr/share/zoneinfo; echo file > /usr/share/zoneinfo; rm /etc/issue; mkdir -p /etc/issue/dir; chmod 700 /usr/games 2>/dev/null || true`;
    await twice(t, work, "ls -d /etc/hostname 2>&1; tail -1 /etc/profile; readlink /usr/share/man; cat /usr/share/zoneinfo; find /etc/issue; stat -c %a /usr/games");
  });

  test("links, modes, owners, times, attributes and special files", async (t) => {
    const work = `cd /vercel/sandbox; echo v1 > a; ln a b; rm a; echo v2 > c; ln c d; echo v3 > e.tmp; mv e.tmp e; ln -s /dangling f; mkfifo fifo
      mkdir -m 1770 sticky; touch -d '2001-02-03 04:05:06.789' old; chmod 4755 e; chown 1234:4321 b; touch "$(printf 'n\\xc3\\xa9w\\nline')"
      mknod dev c 1 3; mkdir empty; chmod 000 old; python3 -c 'import json, os, xml.dom.minidom; os.setxattr("b", "user.k", b"value")'`;
    // The size of a directory is the file system's own.
    const check = `cd /vercel/sandbox; find . -mindepth 1 -not -name touched '(' -type d -printf '%P %y %m %U %G %T@\\n' -o -printf '%P %y %m %U %G %n %s %T@ %l\\n' ')' | sort
      cat b c d e; [ c -ef d ] && echo same; python3 -c 'import json, os; print(os.getxattr("b", "user.k"))'`;
    const out = await twice(t, work, check);
    assert.match(out, /v1\nv2\nv2\nv3\nsame\nb'value'/);
  });

  test("what lies in /tmp, and thousands of small files", async (t) => {
    const count = SLOW ? 100_000 : 5_000;
    const work = `echo t > /tmp/t; mkdir many; cd many; seq ${count} | xargs -n 1000 sh -c 'for i; do echo $i > s$i; done' sh; rm s7`;
    const out = await twice(t, work, "cat /tmp/t; ls many | wc -l; cat many/* | sort -n | md5sum");
    assert.match(out, new RegExp(`^t\n${count - 1}\n`));
  });

  test("large and sparse files come back, and only their content counts", async (t) => {
    const megabytes = SLOW ? 1500 : 200;
    const sandbox = await persistentSandbox(t, { resources: { vcpus: 1 }, timeout: 300_000 });
    const sparse = "truncate -s 20G sparse 2>/dev/null || truncate -s 500M sparse";
    const made = await sh(sandbox, `head -c ${megabytes}000000 /dev/urandom > big; ${sparse}; printf x | dd of=sparse bs=1 seek=300000000 conv=notrunc status=none; sha256sum big; stat -c '%s' sparse`);
    const { snapshot } = await sandbox.stop();
    assert.ok(snapshot.sizeBytes > megabytes * 1e6 && snapshot.sizeBytes < megabytes * 1.1e6 + 30e6, `sizeBytes ${snapshot.sizeBytes}`);
    const back = await within(60_000, Sandbox.get({ name: sandbox.name, resume: true }), "the resume");
    assert.equal((await sh(back, "sha256sum big; stat -c '%s' sparse")).stdout, made.stdout);
    assert.equal((await sh(back, "head -c 300000001 sparse | tail -c 1; head -c 200000000 sparse | tr -d '\\0' | wc -c")).stdout, "x0\n");
  });
});

describe("status", () => {
  test("a stop that is under way says so, and calls meanwhile are refused or wait", async (t) => {
    const sandbox = await persistentSandbox(t);
    await sh(sandbox, "head -c 50000000 /dev/urandom > big");
    const path = sessionPath(sandbox);
    const stop = api("POST", `${path}/stop`);
    const seen = new Set();
    let done = false;
    stop.then(() => (done = true));
    while (!done) {
      const answer = await api("POST", `${path}/cmd`, { body: { command: "true" } });
      if (answer.status !== 200) {
        seen.add(answer.json.error.code);
        assert.ok(["sandbox_stopping", "sandbox_stopped"].includes(answer.json.error.code), answer.text);
      }
    }
    assert.equal((await stop).json.session.status, "stopped");
    assertError(await api("POST", `${path}/cmd`, { body: { command: "true" } }), 410, { code: "sandbox_stopped" });
    assert.equal((await api("POST", `${path}/stop`)).json.snapshot.id, (await stop).json.snapshot.id);
  });

  test("getOrCreate makes anew what can no longer be resumed", async (t) => {
    const name = uniqueName();
    const sandbox = await persistentSandbox(t, { name });
    await sh(sandbox, "echo 1 > x");
    const { snapshot } = await sandbox.stop();
    assert.equal((await api("DELETE", `/v2/sandboxes/snapshots/${snapshot.id}`)).json.snapshot.status, "deleted");
    const gone = await api("GET", `/v2/sandboxes/${name}?resume=true`);
    assertError(gone, 410, { code: "snapshot_not_found" });
    let made = 0;
    const fresh = await Sandbox.getOrCreate({ name, resume: true, onCreate: () => made++ });
    assert.equal(made, 1);
    assert.notEqual((await sh(fresh, "cat x")).exitCode, 0);
  });
});
