// A sandbox from an image of one's own: its environment, user and directory.
// The image (see the Go test beside this file) sets PATH, FOO, a user and a
// working directory, and has a tool on that PATH.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Sandbox } from "@vercel/sandbox";
import { finish, newSandbox, rejectsWith } from "./support/client.mjs";

const IMAGE = process.env.GLOVEBOX_TEST_IMAGE;

describe("an image", { skip: IMAGE ? false : "set GLOVEBOX_TEST_IMAGE to the test image" }, () => {
  test("gives PATH and variables, and what is nearer to the command is over them", async (t) => {
    const sandbox = await newSandbox(t, { image: IMAGE, env: { FOO: "create" } });
    const run = (cmd, args = [], params = {}) => sandbox.runCommand({ cmd, args, ...params }).then(finish);
    assert.equal((await run("mytool")).stdout, "tool\n");
    assert.equal((await run("sh", ["-c", "echo $FOO"])).stdout, "create\n");
    assert.equal((await run("sh", ["-c", "echo $FOO"], { env: { FOO: "cmd" } })).stdout, "cmd\n");
    assert.equal((await run("mytool", [], { sudo: true })).stdout, "tool\n");
    assert.equal((await run("sh", ["-c", "echo $HOME; id -u"], { sudo: true })).stdout, "/root\n0\n");
  });

  test("gives its own user and directory", async (t) => {
    const sandbox = await newSandbox(t, { image: IMAGE });
    const run = await finish(await sandbox.runCommand("sh", ["-c", "id -u; pwd; echo $FOO"]));
    assert.equal(run.stdout, "1234\n/job\nbar\n");
    assert.equal(sandbox.cwd, "/job");
    await sandbox.writeFiles([{ path: "mine", content: "x" }]);
    assert.equal((await finish(await sandbox.runCommand("sh", ["-c", "cat /job/mine"]))).stdout, "x");
  });

  test("that does not exist is an error which names it", async () => {
    await rejectsWith(Sandbox.create({ image: "127.0.0.1:1/no/such:image" }), 400, /no\/such/);
  });
});
