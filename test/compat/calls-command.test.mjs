// Every member of the client's Command and its errors, and what goes beyond
// single calls: signals, disposal, and objects that go to another process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { APIError, Command, CommandFinished, Sandbox, Session, Snapshot, StreamError } from "@vercel/sandbox";
import { WORKFLOW_DESERIALIZE, WORKFLOW_SERIALIZE } from "@workflow/serde";
import { api, collect, credentials, eventually, newSandbox, sharedSandbox, uniqueName, within } from "./support/client.mjs";
import { cuts, startCutter } from "./support/cutter.mjs";
import { persistentSandbox } from "./support/state.mjs";

const box = sharedSandbox();
const detached = (script) => box.sandbox.runCommand({ cmd: "sh", args: ["-c", script], detached: true });

describe("a command", { concurrency: 4 }, () => {
  test("[Command.cmdId, Command.cwd, Command.startedAt, Command.exitCode, Command.durationMs] describe it", async () => {
    const command = await detached("sleep 0.2");
    assert.ok(command instanceof Command);
    assert.match(command.cmdId, /^cmd_/);
    assert.equal(command.cwd, "/vercel/sandbox");
    assert.ok(Math.abs(command.startedAt - Date.now()) < 60_000);
    assert.equal(command.exitCode, null);
    assert.equal(command.durationMs, undefined);
  });
  test("[Command.wait, CommandFinished.exitCode, CommandFinished.durationMs, CommandFinished.wait] ends with its code and duration", async () => {
    const done = await (await detached("sleep 0.2; exit 7")).wait();
    assert.ok(done instanceof CommandFinished);
    assert.equal(done.exitCode, 7);
    assert.ok(done.durationMs >= 200, `${done.durationMs} ms`);
    assert.equal(await done.wait(), done);
  });
  test("[Command.logs] follow it while it runs, and can be left", async () => {
    const command = await detached("echo out; echo err >&2");
    const { stdout, stderr } = await collect(command);
    assert.deepEqual([stdout, stderr], ["out\n", "err\n"]);
    const endless = await detached("while echo x; do sleep 0.1; done");
    const logs = endless.logs();
    assert.equal((await logs.next()).value.stream, "stdout");
    logs.close();
    await endless.kill("SIGKILL");
    assert.equal((await endless.wait()).exitCode, 137);
  });
  test("[Command.output, Command.stdout, Command.stderr] give what was written", async () => {
    const command = await detached("echo out; echo err >&2");
    await command.wait();
    assert.deepEqual([await command.stdout(), await command.stderr(), await command.output("stdout"), await command.output("stderr")], ["out\n", "err\n", "out\n", "err\n"]);
    assert.deepEqual((await command.output()).split("\n").sort(), ["", "err", "out"]);
  });
  test("[Command.kill] sends a signal by name or number, SIGTERM by default", async () => {
    for (const [signal, code] of [[undefined, 143], ["SIGINT", 130], [9, 137]]) {
      const command = await box.sandbox.runCommand({ cmd: "sleep", args: ["60"], detached: true });
      await command.kill(signal);
      assert.equal((await command.wait()).exitCode, code, String(signal));
    }
  });
});

describe("errors", { concurrency: 3 }, () => {
  test("[APIError.response, APIError.message, APIError.json, APIError.text] tell the status, the code and the reason", async () => {
    await assert.rejects(Sandbox.get({ name: uniqueName("missing") }), (error) => {
      assert.ok(error instanceof APIError);
      assert.equal(error.response.status, 404);
      assert.equal(error.json.error.code, "not_found");
      assert.match(error.message, /404/);
      assert.deepEqual(JSON.parse(error.text), error.json);
      return true;
    });
  });
  test("[APIError.sessionId, APIError.sandboxName] tell of what the error is, where the client knows it", async (t) => {
    const sandbox = await newSandbox(t);
    const session = sandbox.currentSession();
    await sandbox.stop();
    const error = await session.runCommand("true").then(assert.fail, (reason) => reason);
    assert.equal(error.response.status, 410);
    assert.equal(error.json.error.code, "sandbox_stopped");
    for (const [told, real] of [[error.sessionId, session.sessionId], [error.sandboxName, sandbox.name]]) assert.ok(told === undefined || told === real, told);
  });
  test("[StreamError.code, StreamError.sessionId] a stream that ends too early is told as such", async (t) => {
    const cutter = await startCutter(cuts.beforeLastLine, { clean: true });
    t.after(() => cutter.close());
    const fetch = (input, init) => globalThis.fetch(String(input).replace("https://vercel.com/api", cutter.url), init);
    const sandbox = await Sandbox.get({ ...credentials(), name: box.sandbox.name, fetch });
    await assert.rejects(sandbox.runCommand("echo", ["cut"]), (error) => {
      assert.ok(error instanceof StreamError, String(error));
      assert.equal(error.code, "stream_ended_early");
      assert.equal(error.sessionId, box.sandbox.currentSession().sessionId);
      return true;
    });
  });
});

describe("beyond single calls", { concurrency: 3 }, () => {
  test("[behaviour: an AbortSignal] ends a call that waits, and the command goes on", async () => {
    const controller = new AbortController();
    const marker = `/tmp/${uniqueName()}`;
    const call = box.sandbox.runCommand({ cmd: "sh", args: ["-c", `touch ${marker}; sleep 1; echo on > ${marker}`], signal: controller.signal });
    await eventually(async () => (await box.sandbox.runCommand("test", ["-e", marker])).exitCode === 0, { what: "the start of the command" });
    controller.abort();
    await within(5000, assert.rejects(call, { name: "AbortError" }));
    await eventually(async () => (await box.sandbox.readFileToBuffer({ path: marker })).length > 0, { what: "the end of the command" });
  });
  const SIGNALLED = {
    runCommand: ["true", []], getCommand: ["cmd_x"], mkDir: ["d"], openInteractive: [], readFile: [{ path: "f" }], readFileToBuffer: [{ path: "f" }],
    writeFiles: [[{ path: "f", content: "" }]], stop: [], updateNetworkPolicy: ["deny-all"], extendTimeout: [1000], snapshot: [], update: [{ tags: {} }], delete: [], listSessions: [], listSnapshots: [],
  };
  test(`[behaviour: an AbortSignal that is aborted] ${Object.keys(SIGNALLED).join(", ")} do nothing`, async () => {
    const signal = AbortSignal.abort();
    for (const [call, args] of Object.entries(SIGNALLED)) {
      const options = /^list/.test(call) ? [{ signal }] : [...args, { signal }];
      await assert.rejects(box.sandbox[call](...options), { name: "AbortError" }, call);
    }
    assert.equal((await Sandbox.get({ name: box.sandbox.name })).networkPolicy, "allow-all");
  });
  test("[behaviour: `await using`] stops the sandbox at the end of the block", async (t) => {
    const sandbox = await newSandbox(t);
    await sandbox[Symbol.asyncDispose]();
    assert.equal((await Sandbox.get({ name: sandbox.name, resume: false })).status, "stopped");
  });
  test("[behaviour: credentials in the program] a token, a team and a project are taken with each call", async (t) => {
    const given = credentials(uniqueName("project"));
    const sandbox = await newSandbox(t, given);
    assert.equal((await Sandbox.get({ ...given, name: sandbox.name })).name, sandbox.name);
    await assert.rejects(Sandbox.get({ name: sandbox.name }), (error) => error.response.status === 404);
  });
});

// What another process does with the objects that it gets as JSON.
const OTHER_PROCESS = `
  import { Sandbox, Session, Command, CommandFinished, Snapshot } from "@vercel/sandbox";
  import { WORKFLOW_DESERIALIZE } from "@workflow/serde";
  const data = JSON.parse(process.argv[1]);
  const sandbox = Sandbox[WORKFLOW_DESERIALIZE](data.sandbox);
  const session = Session[WORKFLOW_DESERIALIZE](data.session);
  const command = Command[WORKFLOW_DESERIALIZE](data.command);
  const finished = CommandFinished[WORKFLOW_DESERIALIZE](data.finished);
  const snapshot = Snapshot[WORKFLOW_DESERIALIZE](data.snapshot);
  console.log(JSON.stringify({
    sandbox: await (await sandbox.runCommand("echo", ["from afar"])).stdout(),
    session: (await session.runCommand("true")).exitCode,
    command: (await command.wait()).exitCode,
    finished: [finished.exitCode, await finished.stdout()],
    snapshot: (await snapshot.delete(), snapshot.status),
  }));
`;

describe("serialised", () => {
  const KINDS = ["Sandbox", "Session", "Command", "CommandFinished", "Snapshot"].flatMap((kind) => [`${kind}.[WORKFLOW_SERIALIZE]`, `${kind}.[WORKFLOW_DESERIALIZE]`]);
  test(`[${KINDS.join(", ")}, behaviour: objects in another process] an object is used on in another process`, async (t) => {
    const kept = await persistentSandbox(t);
    const snapshot = await kept.snapshot();
    const command = await detached("sleep 0.5; exit 5");
    const finished = await box.sandbox.runCommand("echo", ["before"]);
    const data = {
      sandbox: Sandbox[WORKFLOW_SERIALIZE](box.sandbox),
      session: Session[WORKFLOW_SERIALIZE](box.sandbox.currentSession()),
      command: Command[WORKFLOW_SERIALIZE](command),
      finished: CommandFinished[WORKFLOW_SERIALIZE](finished),
      snapshot: Snapshot[WORKFLOW_SERIALIZE](snapshot),
    };
    const register = fileURLToPath(new URL("../../compat/vercel/register.mjs", import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, ["--import", register, "--input-type=module", "-e", OTHER_PROCESS, JSON.stringify(data)], { cwd: fileURLToPath(new URL(".", import.meta.url)) });
    assert.deepEqual(JSON.parse(stdout), { sandbox: "from afar\n", session: 0, command: 5, finished: [0, "before\n"], snapshot: "deleted" });
    assert.equal((await api("GET", `/v2/sandboxes/snapshots/${snapshot.snapshotId}`)).json.snapshot.status, "deleted");
  });
});
