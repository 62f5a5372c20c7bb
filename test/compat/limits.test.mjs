// A sandbox that takes all it can get harms neither itself for good nor
// another one. These run one after the other: each uses a limit up.

import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { SMALL_DISK, api, eventually, finish, newSandbox, pause, python, sessionPath, sh, sharedSandbox, within } from "./support/client.mjs";

const witness = sharedSandbox({ resources: { vcpus: 1 } });

/**
 * Runs echo in the witness once a second for as long as the test runs, and
 * returns a function that ends this and tells what was slow or failed.
 */
function beats(t) {
  const problems = [];
  let on = true;
  const done = (async () => {
    while (on) {
      const start = Date.now();
      await within(5000, sh(witness.sandbox, "echo beat"), "the witness").catch((error) => problems.push(error.message));
      await pause(Math.max(0, 1000 - (Date.now() - start)));
    }
  })();
  t.after(() => {
    on = false;
  });
  return async () => {
    on = false;
    await done;
    assert.deepEqual(problems, []);
  };
}

describe("memory", () => {
  const hog = "b=[]\nwhile 1: b.append(bytearray(50000000)); b[-1][::4096]=b'x'*len(b[-1][::4096])";
  const hogs = "for i in $(seq 50); do python3 -c \"import time; b=bytearray(200000000); b[::4096]=b'x'*len(b[::4096]); time.sleep(5)\" & done; wait; echo over";
  const programs = { "one process that takes all memory": ["python3", ["-c", hog]], "fifty processes that take too much together": ["bash", ["-c", hogs]] };

  for (const [what, [cmd, args]] of Object.entries(programs)) {
    test(`${what} is ended, and the reason can be seen`, async (t) => {
      const sandbox = await newSandbox(t, { resources: { vcpus: 1 } });
      const stopBeats = beats(t);
      const outcome = await within(60_000, sandbox.runCommand({ cmd, args }).then(finish, (error) => ({ error })), "the command");
      await usableOrTold(sandbox, outcome, cmd === "python3");
      await stopBeats();
    });
  }
});

// The sandbox either works on, or its end is told as what it was.
async function usableOrTold(sandbox, outcome, mustFail) {
  if (!outcome.error && mustFail) assert.ok([137, 1].includes(outcome.exitCode), `exit code ${outcome.exitCode}`);
  if (outcome.exitCode === 1) assert.match(outcome.stderr, /MemoryError/);
  const next = await within(10_000, sh(sandbox, "echo ok").catch((error) => ({ error })));
  if (next.stdout === "ok\n") return;
  const gone = await eventually(async () => {
    const { json } = await api("GET", sessionPath(sandbox));
    return ["failed", "stopped", "aborted"].includes(json.session.status) && json.session;
  }, { timeout: 10_000, what: "the end of the session" });
  assert.match(JSON.stringify(gone), /memory/i);
}

describe("disk", () => {
  const skip = SMALL_DISK;

  test("a full directory says so, and takes writes again when it is emptied", { skip }, async (t) => {
    const sandbox = await newSandbox(t);
    for (const dir of ["/tmp", "/var/tmp", "/vercel/sandbox", "/dev/shm", "/run"]) {
      const fill = await sh(sandbox, `dd if=/dev/zero of=${dir}/fill bs=1M`, { sudo: true, timeoutMs: 120_000 });
      assert.notEqual(fill.exitCode, 0, dir);
      if (fill.exitCode === 1) assert.match(fill.stderr, /No space left on device/, dir);
      assert.equal((await sh(sandbox, "echo ok")).stdout, "ok\n", dir);
      const again = await sh(sandbox, `rm ${dir}/fill && echo x > ${dir}/y && cat ${dir}/y`, { sudo: true });
      assert.equal(again.stdout, "x\n", `${dir}: ${again.stderr}`);
    }
  });

  test("an upload that does not fit is an error, and no part of it is there", { skip }, async (t) => {
    const sandbox = await newSandbox(t);
    await sh(sandbox, "dd if=/dev/zero of=/tmp/fill bs=1M; dd if=/dev/zero of=/tmp/rest bs=4k", { timeoutMs: 120_000 });
    await assert.rejects(sandbox.writeFiles([{ path: "late", content: Buffer.alloc(20 << 20, "x") }]), (error) => {
      assert.equal(error.response?.status, 400);
      assert.match(error.message, /space|disk/i);
      return true;
    });
    assert.equal(await sandbox.readFileToBuffer({ path: "late" }), null);
    await sh(sandbox, "rm /tmp/fill /tmp/rest");
    await sandbox.writeFiles([{ path: "late", content: "fits" }]);
    assert.equal((await sandbox.readFileToBuffer({ path: "late" })).toString(), "fits");
  });
});

describe("open files and processes", () => {
  const openAll = [
    "import errno,sys",
    "fs=[]",
    "try:",
    "  while len(fs)<2000000: fs.append(open('/dev/null'))",
    "except OSError as e:",
    "  n=len(fs); del fs[:8]; print(n, errno.errorcode[e.errno])",
  ].join("\n");

  test("a process is refused more files at a limit, and 200 of them harm nobody", async (t) => {
    const sandbox = await newSandbox(t, { resources: { vcpus: 1 } });
    const stopBeats = beats(t);
    const [count, code] = (await python(sandbox, openAll)).stdout.trim().split(" ");
    assert.match(code, /^E[MN]FILE$/);
    assert.ok(Number(count) >= 1000, `only ${count} files`);
    await sandbox.writeFiles([{ path: "open.py", content: `${openAll}\nimport time; time.sleep(3)` }]);
    await sh(sandbox, "for i in $(seq 200); do python3 open.py >/dev/null 2>&1 & done; wait", { timeoutMs: 20_000 });
    const sockets = "import socket\ns=[]\ntry:\n  for i in range(20000): s.append(socket.socket())\nexcept OSError: pass\nn=len(s); s=0; print(n>500)";
    assert.equal((await python(sandbox, sockets)).stdout, "True\n");
    await stopBeats();
    assert.equal((await sh(sandbox, "echo ok")).stdout, "ok\n");
    assert.equal((await api("GET", "/v2/sandboxes")).status, 200);
  });

  test("a fork bomb meets a limit and can be killed, or ends its sandbox alone", async (t) => {
    const sandbox = await newSandbox(t, { resources: { vcpus: 1 } });
    const stopBeats = beats(t);
    const bomb = "import os,time\nn=0\nwhile True:\n  try: pid=os.fork()\n  except OSError as e: print(n,e.errno,flush=True); break\n  if pid==0: time.sleep(600)\n  n+=1\ntime.sleep(600)";
    const command = await sandbox.runCommand({ cmd: "python3", args: ["-c", bomb], detached: true });
    const outcome = await within(60_000, limitOrEnd(command), "the limit");
    if (outcome === "limit") {
      await command.kill("SIGKILL");
      assert.equal((await within(20_000, command.wait())).exitCode, 137);
    }
    await usableOrTold(sandbox, {}, false);
    await stopBeats();
  });
});

// Waits until the bomb tells of EAGAIN, or until the log ends without.
async function limitOrEnd(command) {
  try {
    for await (const item of command.logs()) if (/^\d+ 11/.test(item.data)) return "limit";
  } catch {
    // the session ended under the reader
  }
  return "end";
}

describe("CPU", () => {
  test("with all CPU in use, calls are answered and neighbours hardly notice", async (t) => {
    const sandbox = await newSandbox(t, { resources: { vcpus: 1 } });
    const measure = async () => {
      const start = Date.now();
      await sh(witness.sandbox, "head -c 200000000 /dev/zero | sha256sum");
      return Date.now() - start;
    };
    const before = await measure();
    const busy = await sandbox.runCommand({ cmd: "bash", args: ["-c", "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait"], detached: true });
    const during = measure();
    for (let i = 0; i < 20; i++) {
      await within(5000, sh(sandbox, "echo ok"), "a command");
      await within(5000, sandbox.writeFiles([{ path: "small", content: Buffer.alloc(1024) }]), "a write");
      await within(5000, sandbox.readFileToBuffer({ path: "small" }), "a read");
      await within(5000, sandbox.getCommand(busy.cmdId), "a look-up");
    }
    const factor = (await during) / before;
    // Only where cores are left for the witness does its time say something.
    if (availableParallelism() >= 4) assert.ok(factor < 1.5, `the witness was ${factor.toFixed(2)} times slower`);
    await busy.kill("SIGKILL");
    assert.equal((await within(5000, busy.wait())).exitCode, 137);
  });

  test("the list still answers", async () => {
    assert.ok((await Sandbox.list()).sandboxes.length >= 1);
  });
});
