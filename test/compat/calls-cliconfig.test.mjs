// Every command of the published CLI that changes a sandbox's settings.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "@vercel/sandbox";
import { cliHome } from "./support/cli.mjs";
import { uniqueName } from "./support/client.mjs";
import { forget } from "./support/state.mjs";

const { ok } = cliHome();
const get = (name) => Sandbox.get({ name, resume: false });

describe("the CLI's settings", { concurrency: 3 }, () => {
  const name = uniqueName("cli-config");
  let snapshotId;
  before(async () => {
    const sandbox = await Sandbox.create({ name });
    ({ snapshotId } = await sandbox.snapshot());
  });
  after(() => forget(name));

  // Each command, and what the sandbox shows afterwards.
  const SETTINGS = [
    [["vcpus", "1"], ({ vcpus }) => vcpus, 1],
    [["timeout", "9m"], ({ timeout }) => timeout, 540_000],
    [["region", "cdg1"], ({ region }) => region, "cdg1", "differs: echoed; the sandbox runs where the server is"],
    [["failover-regions", "sfo1,fra1"], ({ failoverRegions }) => failoverRegions, ["sfo1", "fra1"], "differs: echoed and without effect"],
    [["network-id", "net-1"], ({ networkId }) => networkId, "net-1", "differs: echoed and without effect"],
    [["network-policy", "--allowed-domain", "example.com", "--denied-cidr", "8.8.8.0/24"], ({ networkPolicy }) => networkPolicy, { allow: ["example.com"], subnets: { deny: ["8.8.8.0/24"] } }],
    [["snapshot-expiration", "3d"], ({ snapshotExpiration }) => snapshotExpiration, 259_200_000],
    [["ports", "-p", "3000", "-p", "4000"], ({ routes }) => routes.map(({ port }) => port), [3000, 4000]],
    [["tags", "--tag", "a=b"], ({ tags }) => tags, { a: "b" }],
    [["mounts"], ({ mounts }) => mounts, undefined, "with no mount it clears the list"],
  ];
  for (const [[command, ...args], read, wanted, title = "is what the sandbox shows"] of SETTINGS) {
    test(`[sandbox config ${command}] ${title}`, async () => {
      await ok(["config", command, name, ...args]);
      assert.deepEqual(read(await get(name)), wanted);
    });
  }
  test("[sandbox config current-snapshot] the next session starts from it", async () => {
    await ok(["config", "current-snapshot", name, snapshotId]);
    assert.equal((await get(name)).currentSnapshotId, snapshotId);
  });
  test("[sandbox config keep-last-snapshots, sandbox config keep-last-snapshots-for, sandbox config delete-evicted-snapshots] are one setting", async () => {
    await ok(["config", "keep-last-snapshots", name, "3"]);
    await ok(["config", "keep-last-snapshots-for", name, "4d"]);
    await ok(["config", "delete-evicted-snapshots", name, "false"]);
    assert.deepEqual((await get(name)).keepLastSnapshots, { count: 3, expiration: 345_600_000, deleteEvicted: false });
  });
  test("[sandbox config persistent, sandbox config list] what is kept, and all settings", async (t) => {
    const other = uniqueName("cli");
    t.after(() => forget(other));
    await Sandbox.create({ name: other });
    await ok(["config", "persistent", other, "false"]);
    assert.equal((await get(other)).persistent, false);
    assert.match((await ok(["config", "list", other])).stdout, /persistent.*false/i);
  });
});
