// What ran in a sandbox ends with it, whatever it does against that.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { eventually, newSandbox, sh, within } from "./support/client.mjs";
import { startWeb } from "./support/web.mjs";

const STUBBORN = [
  "setsid nohup sh -c 'while :; do echo x >> /tmp/b; sleep 0.2; done' >/dev/null 2>&1 &",
  "(trap '' TERM HUP INT; while :; do sleep 0.2; done) &",
  "setsid dd if=/dev/zero of=/tmp/big bs=1M count=100000 oflag=sync >/dev/null 2>&1 &",
].join("\n");

/** A sandbox with processes that do not want to end, and a server. */
async function stubborn(t, params = {}) {
  const sandbox = await newSandbox(t, { ports: [3000], resources: { vcpus: 1 }, ...params });
  await startWeb(sandbox, 3000);
  await sh(sandbox, STUBBORN);
  assert.equal((await fetch(sandbox.domain(3000))).status, 200);
  return sandbox;
}

async function assertGone(sandbox) {
  const { sessionId } = sandbox.currentSession();
  const answer = await fetch(sandbox.domain(3000));
  assert.ok([404, 410].includes(answer.status), `the address answers ${answer.status}`);
  await eventually(async () => (await processesNaming(sessionId)).length === 0, { timeout: 10_000, what: "the end of the sandbox's processes on the host" });
}

// Processes of this machine that name the session in their arguments or
// their cgroup; none where the server is elsewhere.
async function processesNaming(id) {
  const found = [];
  for (const pid of (await readdir("/proc")).filter((entry) => /^\d+$/.test(entry))) {
    const texts = await Promise.all(["cmdline", "cgroup"].map((file) => readFile(`/proc/${pid}/${file}`, "utf8").catch(() => "")));
    if (texts.some((text) => text.includes(id))) found.push(pid);
  }
  return found;
}

describe("processes that do not want to end", { concurrency: 3 }, () => {
  test("are gone after stop, which does not wait for them", async (t) => {
    const sandbox = await stubborn(t);
    await within(20_000, sandbox.stop(), "stop");
    await assertGone(sandbox);
  });

  test("are gone after delete", async (t) => {
    const sandbox = await stubborn(t);
    await within(20_000, sandbox.delete(), "delete");
    await assertGone(sandbox);
  });

  test("are gone after the timeout", async (t) => {
    const sandbox = await stubborn(t, { timeout: 10_000 });
    const status = async () => (await Sandbox.get({ name: sandbox.name, resume: false })).status;
    await eventually(async () => (await status()) === "stopped", { timeout: 40_000, what: "the end by timeout" });
    await assertGone(sandbox);
  });
});
