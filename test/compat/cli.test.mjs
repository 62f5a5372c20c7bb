// The published CLI, as its users start it.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { cliHome } from "./support/cli.mjs";
import { TOKEN, uniqueName } from "./support/client.mjs";

const EXPLICIT = ["--token", TOKEN, "--scope", "any", "--project", "default"];
const home = cliHome();
const { run: cli, ok } = home;

describe("sandbox", { concurrency: 2 }, () => {
  test("drives are made, mounted, listed and deleted", async () => {
    const [drive, name] = [uniqueName("cli-drive"), uniqueName("cli")];
    assert.match((await ok(["drives", "get-or-create", drive, "--max-size", String(8 << 20), ...EXPLICIT])).stderr, new RegExp(`${drive} ready`));
    await ok(["create", "--name", name, "--non-persistent", "--timeout", "10m", "--mount", `${drive}:/data`, ...EXPLICIT]);
    assert.match((await ok(["drives", "list", "--name-prefix", drive, ...EXPLICIT])).stdout, new RegExp(`${drive}.*${name}`));
    assert.notEqual((await cli(["drives", "delete", drive, ...EXPLICIT])).code, 0);
    await ok(["rm", name, ...EXPLICIT]);
    await ok(["drives", "delete", drive, ...EXPLICIT]);
  });

  test("create, list, exec, cp, stop and rm with token, scope and project", async () => {
    const name = uniqueName("cli");
    const created = await ok(["create", "--name", name, "--non-persistent", "--publish-port", "3000", "--timeout", "10m", ...EXPLICIT]);
    assert.equal(created.stdout.trim(), name);
    assert.match(created.stderr, /3000 -> http/);
    assert.match((await ok(["list", ...EXPLICIT])).stdout, new RegExp(`${name}.*running`));
    const run = await cli(["exec", ...EXPLICIT, "--env", "A=b c", "--workdir", "/tmp", name, "bash", "-c", "echo $A $PWD; echo err >&2; exit 4"]);
    assert.equal(run.code, 4);
    assert.equal(run.stdout, "b c /tmp\n");
    assert.match(run.stderr, /err/);
    assert.equal((await ok(["exec", ...EXPLICIT, "--sudo", name, "id", "-u"])).stdout, "0\n");
    await writeFile(home.in("up.txt"), "upload");
    await ok(["cp", "up.txt", `${name}:/tmp/up.txt`, ...EXPLICIT]);
    await ok(["cp", `${name}:/tmp/up.txt`, "down.txt", ...EXPLICIT]);
    assert.equal(await readFile(home.in("down.txt"), "utf8"), "upload");
    assert.match((await ok(["stop", name, ...EXPLICIT])).stderr, /stopped/i);
    assert.match((await ok(["list", "--all", ...EXPLICIT])).stdout, new RegExp(`${name}.*stopped`));
    await ok(["rm", name, ...EXPLICIT]);
    assert.doesNotMatch((await ok(["list", "--all", ...EXPLICIT])).stdout, new RegExp(name));
  });

  test("run passes output and exit code, and removes the sandbox; no credentials are needed", async () => {
    const name = uniqueName("cli");
    const run = await cli(["run", "--rm", "--name", name, "--timeout", "10m", "python3", "-c", "print(6*7); raise SystemExit(3)"]);
    assert.equal(run.code, 3, run.stderr);
    assert.match(run.stdout, /42\n$/);
    assert.doesNotMatch((await ok(["list", "--all"])).stdout, new RegExp(name));
  });

  test("a token alone is enough: team and project are asked of the server", async () => {
    const name = uniqueName("cli");
    const bare = ["--token", TOKEN];
    await ok(["create", "--name", name, "--non-persistent", "--silent", ...bare]);
    assert.match((await ok(["list", ...bare])).stdout, new RegExp(name));
    await ok(["rm", name, ...bare]);
  });

  test("a command's time limit and an unknown sandbox are told", async () => {
    const name = uniqueName("cli");
    await ok(["create", "--name", name, "--non-persistent", "--silent"]);
    assert.equal((await cli(["exec", "--timeout", "1s", name, "sleep", "60"])).code, 137);
    await ok(["rm", name]);
    const missing = await cli(["exec", name, "true"]);
    assert.notEqual(missing.code, 0);
    assert.match(missing.stderr, /404/);
  });

  test("a wrong token is told", async () => {
    const wrong = await cli(["list", "--token", "wrong", "--scope", "any", "--project", "default"]);
    assert.notEqual(wrong.code, 0);
    assert.match(wrong.stderr, /401/);
  });
});
