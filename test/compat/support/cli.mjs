// The published CLI, as its users start it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";

export const CLI = fileURLToPath(new URL("../node_modules/sandbox/bin/sandbox.mjs", import.meta.url));
const REGISTER = fileURLToPath(new URL("../../../compat/vercel/register.mjs", import.meta.url));

/** What keeps the CLI from asking for its newest version and counting calls. */
export const QUIET = { SANDBOX_SKIP_VERSION_CHECK: "1", VERCEL_SANDBOX_TELEMETRY_DISABLED: "1" };

// Every shell's prompt shows its directory.
const PROMPT = "/vercel/sandbox";

/** A home directory of its own for the CLI; read it inside the tests. */
export function cliHome() {
  const home = { path: "", in: (name) => join(home.path, name), run: (args, options) => start(home.path, args, options), ok };
  before(async () => {
    home.path = await mkdtemp(join(tmpdir(), "sandbox-cli-"));
  });
  after(() => rm(home.path, { recursive: true }));

  async function ok(args, options) {
    const result = await home.run(args, options);
    assert.equal(result.code, 0, `sandbox ${args.join(" ")}\n${result.stdout}\n${result.stderr}`);
    return result;
  }
  return home;
}

// Runs the CLI with nothing but our server in its environment. With `terminal`
// it has one, in which that text is typed at the first prompt: what comes before
// is swallowed by its progress, which never ends where the terminal has no size.
function start(home, args, { env = {}, terminal } = {}) {
  const clean = Object.fromEntries(Object.entries(process.env).filter(([key]) => !/^(VERCEL|GLOVEBOX|NODE|XDG)_/.test(key)));
  const { GLOVEBOX_URL, GLOVEBOX_TOKEN } = process.env;
  const command = [process.execPath, "--import", REGISTER, CLI, ...args];
  const [program, ...rest] = terminal === undefined ? command : ["script", "-qec", `stty cols 80 rows 24; exec ${command.map(quoted).join(" ")}`, "/dev/null"];
  const child = spawn(program, rest, {
    cwd: home,
    env: { ...clean, ...QUIET, HOME: home, NO_COLOR: "1", GLOVEBOX_URL, GLOVEBOX_TOKEN, ...env },
    stdio: [terminal === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  const out = { stdout: "", stderr: "" };
  let typed = terminal === undefined;
  for (const name of ["stdout", "stderr"]) {
    child[name].on("data", (chunk) => {
      out[name] += chunk;
      if (typed || !out.stdout.includes(PROMPT)) return;
      typed = true;
      child.stdin.write(terminal); // left open: its end would be typed as a Ctrl-D
    });
  }
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, ...out })));
}

function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
