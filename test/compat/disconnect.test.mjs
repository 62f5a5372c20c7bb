// Connections that break: what ran, ran once, and can be found again.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { describe, test } from "node:test";
import { createFetch } from "../../compat/vercel/index.mjs";
import { api, collect, credentials, eventually, newSandbox, sessionPath, sh, sharedSandbox } from "./support/client.mjs";
import { cuts, startCutter } from "./support/cutter.mjs";

const RUNS = 20;

/** Runs the counting command through the proxy and returns how each call ended. */
async function countThrough(t, sandbox, cutter, file) {
  t.after(() => cutter.close());
  const fetch = createFetch({ url: cutter.url, token: undefined });
  const remote = await Sandbox.get({ name: sandbox.name, fetch, ...credentials() });
  const outcomes = [];
  for (let batch = 0; batch < RUNS; batch += 5) {
    const calls = Array.from({ length: 5 }, () => remote.runCommand("bash", ["-c", `echo x >> ${file}; echo ran`]));
    outcomes.push(...(await Promise.allSettled(calls)));
  }
  return outcomes;
}

async function lines(sandbox, file) {
  return Number((await sh(sandbox, `cat ${file} 2>/dev/null | wc -l`)).stdout);
}

describe("a cut answer", () => {
  const box = sharedSandbox();

  for (const [name, place] of [["after its head", "afterHead"], ["after its first line", "afterFirstLine"], ["before its last line", "beforeLastLine"]]) {
    for (const clean of [true, false]) {
      const how = clean ? "ended in form" : "reset";
      test(`${how} ${name} fails the call, and the command ran once`, async (t) => {
        const file = `/tmp/${place}-${clean}`;
        const outcomes = await countThrough(t, box.sandbox, await startCutter(cuts[place], { clean }), file);
        for (const { status, reason } of outcomes) {
          assert.equal(status, "rejected");
          if (clean) assert.equal(reason.code, "stream_ended_early", String(reason));
          else assert.match(`${reason.name} ${reason.message}`, /terminated|stream_ended_early|other side closed/);
        }
        await eventually(async () => (await lines(box.sandbox, file)) === RUNS, { what: `${RUNS} lines in ${file}` });
      });
    }
  }

  test("lost before its head makes the client ask again, which runs the command again", async (t) => {
    const file = "/tmp/before-head";
    const cutter = await startCutter(cuts.beforeHead, { times: RUNS });
    const outcomes = await countThrough(t, box.sandbox, cutter, file);
    const done = outcomes.filter((outcome) => outcome.status === "fulfilled").length;
    const ran = await lines(box.sandbox, file);
    assert.ok(ran >= RUNS && ran <= done + cutter.state.cut, `${ran} lines for ${done} answers and ${cutter.state.cut} cuts`);
  });

  test("every command that ran is in the session's list, finished", async () => {
    const list = await api("GET", sessionPath(box.sandbox, "/cmd"));
    assert.ok(list.json.commands.length >= 6 * RUNS);
    await eventually(async () => {
      const { json } = await api("GET", sessionPath(box.sandbox, "/cmd"));
      return json.commands.filter((command) => command.name === "bash").every((command) => command.exitCode === 0);
    }, { what: "the end of all commands" });
  });
});

describe("a client that goes away", () => {
  test("leaves the command running, with its whole output to be read later", async (t) => {
    const sandbox = await newSandbox(t);
    const stop = new AbortController();
    const call = sandbox.runCommand({ cmd: "bash", args: ["-c", "echo one; sleep 2; echo two"], signal: stop.signal });
    const id = await eventually(async () => (await api("GET", sessionPath(sandbox, "/cmd"))).json.commands[0]?.id);
    stop.abort();
    await assert.rejects(call);
    const command = await sandbox.getCommand(id);
    assert.equal((await command.wait()).exitCode, 0);
    assert.equal((await collect(command)).stdout, "one\ntwo\n");
  });
});
