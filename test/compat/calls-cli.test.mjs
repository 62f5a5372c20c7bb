// Every command of the published CLI.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { cliHome } from "./support/cli.mjs";
import { api, sh, uniqueName } from "./support/client.mjs";
import { forget } from "./support/state.mjs";

const home = cliHome();
const { run, ok } = home;
const get = (name) => Sandbox.get({ name, resume: false });

/** A name that is forgotten, with what was made under it, when the test ends. */
function named(t) {
  const name = uniqueName("cli");
  t.after(() => forget(name));
  return name;
}

describe("the CLI", { concurrency: 3 }, () => {
  test("[sandbox create, sandbox list, sandbox remove] make, show and remove", async (t) => {
    const name = named(t);
    const settings = ["--env", "A=b c", "--tag", "k=v", "-p", "3000", "--timeout", "10m", "--vcpus", "1", "--network-policy", "deny-all", "--region", "fra1", "--snapshot-expiration", "7d", "--keep-last-snapshots", "2"];
    assert.equal((await ok(["create", "--name", name, ...settings])).stdout.trim(), name);
    const made = await get(name);
    assert.deepEqual([made.tags, made.vcpus, made.networkPolicy, made.region, made.timeout, made.keepLastSnapshots.count], [{ k: "v" }, 1, "deny-all", "fra1", 600_000, 2]);
    const { stdout } = await ok(["list", "--name-prefix", name, "--sort-by", "name"]);
    assert.match(stdout, new RegExp(`${name}.*running`));
    await ok(["rm", name]);
    await assert.rejects(get(name), (error) => error.response.status === 404);
  });
  test("[sandbox run, sandbox run --rm] passes output and exit code, and removes the sandbox", async (t) => {
    const name = named(t);
    const done = await run(["run", "--rm", "--name", name, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert.equal(done.code, 3);
    assert.match(done.stdout, /out\n$/);
    assert.match(done.stderr, /err/);
    await assert.rejects(get(name), (error) => error.response.status === 404);
  });
  test("[sandbox run --stop] stops the sandbox and keeps it", async (t) => {
    const name = named(t);
    await ok(["run", "--stop", "--name", name, "sh", "-c", "echo kept > f"]);
    assert.equal((await get(name)).status, "stopped");
  });
  test("[sandbox connect, sandbox sh, sandbox exec --interactive, sandbox exec] in a terminal, a shell in the sandbox", async (t) => {
    const name = named(t);
    await ok(["create", "--name", name, "--silent"]);
    assert.equal((await run(["exec", name, "sh", "-c", "echo plain; exit 4"])).code, 4);
    const script = "tty; echo $((40+2)); exit 5\r";
    const shells = await Promise.all([
      run(["connect", name], { terminal: script }),
      run(["exec", "--interactive", name, "bash"], { terminal: script }),
      run(["sh", "--name", `${name}-sh`], { terminal: script }),
    ]);
    t.after(() => forget(`${name}-sh`));
    for (const shell of shells) {
      assert.match(shell.stdout, /\/dev\/pts\/\d+/);
      assert.match(shell.stdout, /\b42\b/);
      assert.equal(shell.code, 5, shell.stdout);
    }
  });
  test("[sandbox copy] differs: files both ways; the client copies no directories", async (t) => {
    const name = named(t);
    await ok(["create", "--name", name, "--silent"]);
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    await writeFile(home.in("up"), bytes);
    await ok(["cp", "up", `${name}:/tmp/there`]);
    await ok(["cp", `${name}:/tmp/there`, "down"]);
    assert.deepEqual(await readFile(home.in("down")), bytes);
    assert.notEqual((await run(["cp", `${name}:/tmp`, "dir"])).stderr, "");
    await assert.rejects(readFile(home.in("dir")), { code: "ENOENT" });
  });
  test("[sandbox fork, sandbox stop, sandbox sessions list] copy, end, and what has run", async (t) => {
    const [name, copy] = [named(t), named(t)];
    await ok(["create", "--name", name, "--silent", "--tag", "a=b"]);
    await ok(["exec", name, "sh", "-c", "echo copied > f"]);
    await ok(["fork", name, "--name", copy, "--timeout", "7m"]);
    assert.match((await ok(["exec", copy, "cat", "f"])).stdout, /copied\n$/);
    assert.equal((await get(copy)).timeout, 420_000);
    assert.match((await ok(["stop", name, copy])).stderr, /stopped/i);
    assert.match((await ok(["sessions", "list", "--all", name])).stdout, /se_\w+.*stopped/i);
  });
  test("[sandbox snapshot, sandbox snapshots list, sandbox snapshots get, sandbox snapshots tree, sandbox snapshots delete] keep, show and delete", async (t) => {
    const name = named(t);
    await ok(["create", "--name", name, "--silent"]);
    await ok(["exec", name, "touch", "f"]);
    const [snapshotId] = /snap_\w+/.exec((await ok(["snapshot", "--stop", "--expiration", "2d", name])).stderr);
    assert.match((await ok(["snapshots", "list", "--name", name])).stdout, new RegExp(snapshotId));
    assert.match((await ok(["snapshots", "get", snapshotId])).stdout, new RegExp(snapshotId));
    assert.match((await ok(["snapshots", "tree", name])).stdout, new RegExp(snapshotId));
    await ok(["snapshots", "delete", snapshotId]);
    assert.equal((await Snapshot.get({ snapshotId })).status, "deleted");
  });
});

describe("the CLI and its platform", { concurrency: 2 }, () => {
  test("[behaviour: the user and the team and the project that the CLI asks for] are answered by the server, from a token alone", async (t) => {
    const name = named(t);
    await ok(["create", "--name", name, "--silent", "--token", process.env.GLOVEBOX_TOKEN]);
    const { json } = await api("GET", "/v2/teams");
    assert.ok(json.teams.length > 0);
    assert.match((await ok(["list", "--token", process.env.GLOVEBOX_TOKEN])).stdout, new RegExp(name));
  });
  test("[sandbox telemetry status, sandbox telemetry enable, sandbox telemetry disable] change a local setting; nothing is sent while GLOVEBOX_URL is set", async () => {
    await ok(["telemetry", "disable"]);
    assert.match((await ok(["telemetry", "status"])).stderr, /disabled/i);
    await ok(["telemetry", "enable"]);
  });
  test("[sandbox logout] forgets what is stored locally", () => ok(["logout"]));
  test("[sandbox login] not: it is the platform's own sign-in; a server's token is given with --token or GLOVEBOX_TOKEN", async () => {
    const asked = "globalThis.fetch = (url) => (console.log('asked', String(url)), Promise.reject(new Error('offline')))";
    const login = await run(["login"], { env: { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(asked)}` } });
    assert.match(login.stdout, /asked https:\/\/vercel\.com\//);
  });
});

describe("the CLI's drives", () => {
  const COMMANDS = "sandbox drives list, sandbox drives get-or-create, sandbox drives delete";
  test(`[${COMMANDS}] make, show and delete`, async () => {
    const drive = uniqueName("cli-drive");
    await ok(["drives", "get-or-create", drive]);
    assert.match((await ok(["drives", "list"])).stdout, new RegExp(drive));
    await ok(["drives", "delete", drive]);
    assert.doesNotMatch((await ok(["drives", "list"])).stdout, new RegExp(drive));
  });
});
