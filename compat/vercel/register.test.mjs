// The whole script in a Node of its own, with a package that is shaped like
// the published client.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startFakeServer } from "./testdata/server.mjs";

const REGISTER = fileURLToPath(new URL("./register.mjs", import.meta.url));
const METHODS = `
  constructor() { this.routes = [{ port: 3000, subdomain: "abc", url: "http://abc.localhost:7777" }]; }
  domain(p) {
    const route = this.routes.find(({ port }) => port == p);
    if (route) return \`https://\${route.subdomain}.vercel.run\`;
    throw new Error("No route");
  }
  call() {
    return globalThis.fetch("https://vercel.com/api/v2/sandboxes", {
      headers: { Authorization: "Bearer " + process.env.VERCEL_OIDC_TOKEN },
    });
  }
`;
let dir;
let server;

before(async () => {
  server = await startFakeServer();
  dir = await mkdtemp(join(tmpdir(), "vercel-compat-"));
  const client = join(dir, "node_modules", "client");
  await mkdir(client, { recursive: true });
  await writeFile(join(client, "index.js"), `export class Session {${METHODS}}`);
  await writeFile(join(client, "index.cjs"), `exports.Session = class Session {${METHODS}};`);
  await writeFile(
    join(client, "package.json"),
    JSON.stringify({ name: "client", type: "module", exports: { import: "./index.js", require: "./index.cjs" } }),
  );
});
after(async () => {
  await server.close();
  await rm(dir, { recursive: true });
});
beforeEach(() => {
  server.requests.length = 0;
});

const REPORT = `
  const s = new Session();
  const status = (await s.call()).status;
  console.log(JSON.stringify({ domain: s.domain(3000), status, team: process.env.VERCEL_TEAM_ID, project: process.env.VERCEL_PROJECT_ID }));
`;

test("an ES module program is pointed at the server", async () => {
  const out = await run("program.mjs", `import { Session } from "client";${REPORT}`);
  assert.deepEqual(out, { domain: "http://abc.localhost:7777", status: 200, team: "glovebox", project: "default" });
  assert.equal(server.requests[0].url, "/v2/sandboxes");
  assert.equal(server.requests[0].headers.authorization, "Bearer ours");
});

test("a CommonJS program is pointed at the server", async () => {
  const out = await run("program.cjs", `const { Session } = require("client"); (async () => {${REPORT}})();`);
  assert.equal(out.domain, "http://abc.localhost:7777");
  assert.equal(server.requests[0].headers.authorization, "Bearer ours");
});

test("a bundle, where the client is part of the program itself, is covered", async () => {
  const esm = await run("bundle.mjs", `class Session {${METHODS}}${REPORT}`);
  assert.equal(esm.domain, "http://abc.localhost:7777");
  const cjs = await run("bundle.cjs", `class Session {${METHODS}}(async () => {${REPORT}})();`);
  assert.equal(cjs.domain, "http://abc.localhost:7777");
});

test("an identity that the program has is kept, and GLOVEBOX_PROJECT decides the project", async () => {
  const env = { VERCEL_TEAM_ID: "mine", VERCEL_PROJECT_ID: "prj_1", GLOVEBOX_PROJECT: "p2" };
  const out = await run("program.mjs", `import { Session } from "client";${REPORT}`, env);
  assert.equal(out.team, "mine");
  assert.equal(out.project, "p2");
});

test("without GLOVEBOX_URL nothing is changed", async () => {
  const out = await run(
    "untouched.mjs",
    `import { Session } from "client";
     console.log(JSON.stringify({ domain: new Session().domain(3000), token: process.env.VERCEL_OIDC_TOKEN ?? null,
       native: /native code/.test(Function.prototype.toString.call(globalThis.fetch)) || globalThis.fetch.name === "fetch" }));`,
    { GLOVEBOX_URL: "" },
  );
  assert.deepEqual(out, { domain: "https://abc.vercel.run", token: null, native: true });
});

test("a broken GLOVEBOX_URL ends the program with the field's name", async () => {
  await assert.rejects(run("program.mjs", "console.log(1)", { GLOVEBOX_URL: "nonsense" }), /GLOVEBOX_URL: "nonsense" is not a URL/);
});

// Runs source as a program and returns the JSON that it prints.
async function run(name, source, env = {}) {
  await writeFile(join(dir, name), source);
  const clean = Object.fromEntries(Object.entries(process.env).filter(([key]) => !/^(VERCEL|GLOVEBOX|NODE)_/.test(key)));
  const child = spawn(process.execPath, ["--import", REGISTER, join(dir, name)], {
    cwd: dir,
    env: { ...clean, GLOVEBOX_URL: server.url, GLOVEBOX_TOKEN: "ours", ...env },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => (stdout += chunk));
  child.stderr.on("data", (chunk) => (stderr += chunk));
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code !== 0) throw new Error(`exit ${code}: ${stderr}`);
  return JSON.parse(stdout);
}
