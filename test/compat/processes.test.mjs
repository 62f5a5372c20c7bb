// Killing, time limits, background processes, orphans.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { collect, eventually, finish, newSandbox, pause, python, sh, sharedSandbox, within } from "./support/client.mjs";

const box = sharedSandbox();

describe("kill", { concurrency: 3 }, () => {
  test("SIGKILL ends the command and all that it started, daemons too", async () => {
    const script = "sleep 7771 & (sleep 7772 & wait) & setsid sleep 7773 & sleep 7774; echo never";
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-c", script], detached: true });
    await eventually(async () => (await countSleepers(box.sandbox)) === 4, { what: "four running sleeps" });
    await command.kill("SIGKILL");
    const ended = await within(3000, command.wait(), "wait after the kill");
    assert.equal(ended.exitCode, 137);
    await eventually(async () => (await countSleepers(box.sandbox)) === 0, { timeout: 3000, what: "the end of all descendants" });
    assert.doesNotMatch((await collect(command)).stdout, /never/);
  });

  test("SIGTERM is the default and can be handled", async () => {
    const script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.1; done";
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-c", script], detached: true });
    for await (const item of command.logs()) if (item.data.includes("ready")) break;
    await command.kill();
    assert.equal((await within(5000, command.wait())).exitCode, 9);
    assert.equal((await collect(command)).stdout, "ready\ncaught\n");
  });

  test("other signals reach the process group", async () => {
    const script = "sleep 30 & trap 'echo int' INT; wait; wait; echo over";
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-mc", script], detached: true });
    await pause(500);
    await command.kill("SIGTERM");
    assert.equal((await within(5000, command.wait())).exitCode, 143);
  });

  test("a kill after the end changes nothing and hits no other process", async () => {
    const done = await box.sandbox.runCommand({ cmd: "true", detached: true });
    await done.wait();
    const keep = await box.sandbox.runCommand({ cmd: "sleep", args: ["60"], detached: true });
    for (let i = 0; i < 20; i++) await Promise.all(Array.from({ length: 10 }, () => box.sandbox.runCommand("true")));
    for (let i = 0; i < 5; i++) await done.kill("SIGKILL");
    assert.equal((await box.sandbox.getCommand(done.cmdId)).exitCode, 0);
    await pause(2000);
    await keep.kill(0);
    assert.equal((await box.sandbox.getCommand(keep.cmdId)).exitCode, null);
    await keep.kill("SIGKILL");
    assert.equal((await within(3000, keep.wait())).exitCode, 137);
  });
});

// The NUL in the pattern keeps the counting command out of its own count.
async function countSleepers(sandbox) {
  const { stdout } = await sh(sandbox, "grep -laP 'sleep\\x00777' /proc/[0-9]*/cmdline 2>/dev/null | wc -l");
  return Number(stdout);
}

describe("background processes", { concurrency: 3 }, () => {
  test("a command is over when its process exits, though a child holds its output", async () => {
    const first = await within(5000, sh(box.sandbox, "echo hi; sleep 45 & echo $! > /tmp/pid"), "the command");
    assert.deepEqual([first.exitCode, first.stdout], [0, "hi\n"]);
    assert.equal((await sh(box.sandbox, "kill -0 $(cat /tmp/pid) && echo running")).stdout, "running\n");
  });

  test("what a child writes later disturbs no other command", async () => {
    const parent = await within(5000, sh(box.sandbox, "(sleep 1; echo tail) & exit 3"), "the command");
    assert.equal(parent.exitCode, 3);
    const other = await sh(box.sandbox, "sleep 1.5; echo mine");
    assert.equal(other.stdout, "mine\n");
    assert.equal((await collect(await box.sandbox.getCommand(parent.result.cmdId))).stdout.replace("tail\n", ""), "");
  });

  test("a detached command runs on while its log is followed", async () => {
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-c", "for i in 1 2 3; do echo $i; sleep 0.5; done; exit 7"], detached: true });
    assert.equal(command.exitCode, null);
    assert.equal((await collect(command)).stdout, "1\n2\n3\n");
    assert.equal((await command.wait()).exitCode, 7);
  });

  test("orphans are reaped", async () => {
    const spawn = "for i in $(seq 10); do (sleep 0.05 &); done";
    const codes = [];
    for (let i = 0; i < 8; i++) codes.push(...(await Promise.all(Array.from({ length: 5 }, () => sh(box.sandbox, spawn)))).map((run) => run.exitCode));
    assert.deepEqual(codes, Array(40).fill(0));
    const zombies = () => sh(box.sandbox, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l");
    await eventually(async () => (await zombies()).stdout === "0\n", { timeout: 5000, what: "a process table without zombies" });
  });
});

describe("time limits", { concurrency: 3 }, () => {
  test("the limit kills with 137, and what was printed before is kept", async () => {
    const lines = await python(box.sandbox, "import time\nprint('one',flush=True)\nprint('two',flush=True)\ntime.sleep(60)", { timeoutMs: 2000 });
    assert.deepEqual([lines.exitCode, lines.stdout], [137, "one\ntwo\n"]);
    const partial = await sh(box.sandbox, "printf nonewline; sleep 60", { timeoutMs: 2000 });
    assert.deepEqual([partial.exitCode, partial.stdout], [137, "nonewline"]);
  });

  test("the limit of a detached command counts from its start and ends its children", async () => {
    const script = "setsid sleep 8881 & sleep 8882";
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-c", script], detached: true, timeoutMs: 1500 });
    assert.equal((await within(6000, command.wait())).exitCode, 137);
    const left = () => sh(box.sandbox, "grep -laP 'sleep\\x00888' /proc/[0-9]*/cmdline 2>/dev/null | wc -l");
    await eventually(async () => (await left()).stdout === "0\n", { timeout: 3000, what: "the end of the children" });
  });

  test("a limit that is not reached changes nothing", async () => {
    const quick = await finish(await box.sandbox.runCommand({ cmd: "echo", args: ["x"], timeoutMs: 1e12 }));
    assert.deepEqual([quick.exitCode, quick.stdout], [0, "x\n"]);
  });

  test("the sandbox's own timeout ends the session and its commands", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 4000 });
    const start = Date.now();
    const command = await sandbox.runCommand({ cmd: "sleep", args: ["600"], detached: true });
    const ended = await Promise.allSettled([within(30_000, command.wait())]);
    assert.ok(Date.now() - start < 20_000);
    if (ended[0].status === "fulfilled") assert.notEqual(ended[0].value.exitCode, 0);
    await assert.rejects(sandbox.runCommand("true"), (error) => error.response?.status === 410);
  });
});
