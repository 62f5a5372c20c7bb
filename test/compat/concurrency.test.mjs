// Many calls at once on one sandbox, and under full load.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually, newSandbox, noise, sh, sha256, sharedSandbox, within } from "./support/client.mjs";
import { openShell } from "./support/shell.mjs";

const box = sharedSandbox();

describe("at the same time", () => {
  test("60 commands, 20 files and 5 terminals each get their own", async () => {
    const { sandbox } = box;
    await sh(sandbox, "mkdir $(seq -f /tmp/%.0f 0 59)");
    const commands = Array.from({ length: 60 }, async (_, k) => {
      const script = `for i in $(seq 200); do echo cmd-${k}-$i; done; echo "$K $PWD" >&2; exit ${k}`;
      const run = await sh(sandbox, script, { env: { K: String(k) }, cwd: `/tmp/${k}` });
      assert.equal(run.exitCode, k);
      assert.equal(run.stdout, Array.from({ length: 200 }, (_, i) => `cmd-${k}-${i + 1}\n`).join(""));
      assert.equal(run.stderr, `${k} /tmp/${k}\n`);
    });
    const files = Array.from({ length: 20 }, async (_, k) => {
      const content = noise(50_000 + k, k + 1);
      await sandbox.writeFiles([{ path: `par-${k}`, content }]);
      assert.equal(sha256(await sandbox.readFileToBuffer({ path: `par-${k}` })), sha256(content));
    });
    const shells = Array.from({ length: 5 }, async (_, k) => {
      const shell = await openShell(sandbox);
      shell.type(`echo term-$((${k}*111))\nexit ${k + 10}\n`);
      await shell.until(new RegExp(`term-${k * 111}\r?\n`), 30_000);
      await eventually(() => shell.exit, { timeout: 30_000, what: "the exit message" });
      assert.deepEqual(shell.exit, { type: "exit", code: k + 10 });
      shell.socket.close();
    });
    await Promise.all([...commands, ...files, ...shells]);
  });

  test("a long command does not hold up a short one", async () => {
    const long = await box.sandbox.runCommand({ cmd: "sleep", args: ["20"], detached: true });
    const waiting = long.wait();
    assert.equal((await within(5000, sh(box.sandbox, "echo quick"))).stdout, "quick\n");
    await long.kill("SIGKILL");
    assert.equal((await waiting).exitCode, 137);
  });

  test("ten sandboxes are made at once and work", async (t) => {
    const sandboxes = await Promise.all(Array.from({ length: 10 }, () => newSandbox(t, { resources: { vcpus: 1 } })));
    const outputs = await Promise.all(sandboxes.map((sandbox, k) => sh(sandbox, `echo ${k}`)));
    assert.deepEqual(outputs.map((run) => run.stdout), sandboxes.map((_, k) => `${k}\n`));
    assert.equal(new Set(sandboxes.map((sandbox) => sandbox.name)).size, 10);
  });
});
