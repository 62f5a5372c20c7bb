// Tokens and projects: nobody acts on, or learns of, what is another's.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { Sandbox } from "@vercel/sandbox";
import { before, describe, test } from "node:test";
import { TOKEN, api, assertError, credentials, newSandbox, rejectsWith, sh, uniqueName } from "./support/client.mjs";
import { tarGz } from "./support/tar.mjs";

const BIN = process.env.GLOVEBOX_BIN;
const DATA = process.env.GLOVEBOX_DATA_DIR;

/** A token of a project, made beside the running server. */
function projectToken(project) {
  if (!BIN || !DATA) throw new Error("set GLOVEBOX_BIN and GLOVEBOX_DATA_DIR to the server's program and data directory");
  return execFileSync(BIN, ["token", "create", "--project", project, "--data-dir", DATA], { encoding: "utf8" }).trim();
}

describe("without a valid token", { concurrency: 3 }, () => {
  test("every call is refused, and the health check is not", async () => {
    for (const token of [null, "wrong", `${TOKEN}x`, ""]) {
      assertError(await api("GET", "/v2/sandboxes", { token }), 401, { code: "unauthorized" });
      assertError(await api("POST", "/v3/sandboxes", { token, body: { name: uniqueName() } }), 401);
      assertError(await api("GET", "/v2/sandboxes/any", { token }), 401);
    }
    assert.equal((await api("GET", "/healthz", { token: null })).status, 200);
  });

  test("the client shows it", async () => {
    await rejectsWith(Sandbox.create(credentials("default", "wrong")), 401);
  });
});

describe("projects of one server", () => {
  let mine;
  let theirs;
  let projects;

  before(() => {
    projects = { mine: uniqueName("p"), theirs: uniqueName("p") };
    mine = projectToken(projects.mine);
    theirs = projectToken(projects.theirs);
    assert.notEqual(mine, theirs);
    assert.match(mine, /^\S{20,}$/);
  });

  test("the first token works in the project that the request names", async (t) => {
    const name = uniqueName();
    await newSandbox(t, { name, ...credentials(projects.mine) });
    assert.equal((await Sandbox.get({ name, ...credentials(projects.mine) })).name, name);
    await rejectsWith(Sandbox.get({ name, ...credentials(projects.theirs) }), 404);
    assert.equal((await Sandbox.get({ name, ...credentials("ignored", mine) })).name, name);
  });

  test("the same name may be used in each project", async (t) => {
    const name = uniqueName();
    const one = await newSandbox(t, { name, ...credentials("x", mine) });
    const two = await newSandbox(t, { name, ...credentials("x", theirs) });
    assert.notEqual(one.currentSession().sessionId, two.currentSession().sessionId);
  });

  test("another project's things answer exactly as things that never existed", async (t) => {
    const sandbox = await newSandbox(t, credentials("x", mine));
    const command = await sandbox.runCommand({ cmd: "sleep", args: ["300"], detached: true });
    const real = { name: sandbox.name, session: sandbox.currentSession().sessionId, command: command.cmdId };
    const random = { name: uniqueName(), session: `se_${"A1".repeat(12)}`, command: `cmd_${"A1".repeat(12)}` };
    for (const call of everyCall()) {
      const [found, missing] = [await ask(call, real, theirs), await ask(call, random, theirs)];
      if (!/not supported/.test(found.text)) assert.equal(found.status, 404, `${call.method} ${call.path(real)}: ${found.text}`);
      assert.deepEqual(found, missing, `${call.method} ${call.path(real)}`);
    }
    assert.equal((await sandbox.getCommand(command.cmdId)).exitCode, null);
    assert.equal((await sh(sandbox, "ls -A /tmp/by-other 2>&1; echo untouched")).stdout.split("\n").at(-2), "untouched");
    assert.equal((await Sandbox.get({ name: sandbox.name, ...credentials("x", mine) })).status, "running");
  });

  test("lists hold only the token's own project, whatever the query says", async (t) => {
    const sandbox = await newSandbox(t, credentials("x", mine));
    for (const query of ["", `project=${projects.mine}`, `projectId=${projects.mine}`, `project=${projects.mine}&teamId=any`]) {
      const answer = await api("GET", `/v2/sandboxes?limit=50&${query}`, { token: theirs });
      assert.equal(answer.status, 200);
      assert.ok(!answer.text.includes(sandbox.name));
      const sessions = await api("GET", `/v2/sandboxes/sessions?name=${sandbox.name}&${query}`, { token: theirs });
      assert.ok(!sessions.text.includes(sandbox.currentSession().sessionId));
    }
  });
});

// One answer with the ids taken out, so that two can be compared.
async function ask(call, ids, token) {
  const answer = await api(call.method, call.path(ids), { token, body: call.body, headers: call.headers });
  let text = answer.text;
  for (const id of Object.values(ids)) text = text.replaceAll(id, "ID");
  return { status: answer.status, text, type: answer.headers.get("content-type") };
}

function everyCall() {
  const box = (rest = "") => (ids) => `/v2/sandboxes/${ids.name}${rest}`;
  const session = (rest = "") => (ids) => `/v2/sandboxes/sessions/${ids.session}${rest}`;
  const command = (rest = "") => (ids) => `/v2/sandboxes/sessions/${ids.session}/cmd/${ids.command}${rest}`;
  const call = (method, path, body, headers) => ({ method, path, body, headers });
  return [
    call("GET", box()),
    call("GET", box("?resume=true")),
    call("PATCH", box(), { timeout: 5000 }),
    call("DELETE", box()),
    call("POST", box("/fork"), {}),
    call("GET", session()),
    call("POST", session("/stop")),
    call("POST", session("/extend-timeout"), { duration: 5000 }),
    call("POST", session("/network-policy"), { mode: "deny-all" }),
    call("POST", session("/snapshot"), {}),
    call("POST", session("/interactive"), {}),
    call("GET", session("/cmd")),
    call("POST", session("/cmd"), { command: "true" }),
    call("POST", session("/cmd"), { command: "true", wait: true, logs: true }),
    call("GET", command()),
    call("GET", command("?wait=true")),
    call("GET", command("/logs")),
    call("POST", command("/kill"), { signal: 9 }),
    call("POST", session("/fs/read"), { path: "/etc/passwd" }),
    call("POST", session("/fs/mkdir"), { path: "/tmp/by-other" }),
    call("POST", session("/fs/write"), tarGz([{ name: "by-other", content: "x" }]), { "x-cwd": "/tmp", "content-type": "application/gzip" }),
  ];
}
