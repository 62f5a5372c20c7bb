// What every suite needs: the server's address, sandboxes that are removed
// again, and raw requests where the client would not let a bad one through.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before } from "node:test";
import { Sandbox } from "@vercel/sandbox";

export const SERVER = required("GLOVEBOX_URL").replace(/\/+$/, "");
export const TOKEN = required("GLOVEBOX_TOKEN");
export const SLOW = process.env.GLOVEBOX_SLOW === "1";

// For tests that fill the disk: why to skip them, or false.
const disk = Number(process.env.GLOVEBOX_TEST_DISK_BYTES ?? Infinity);
export const SMALL_DISK = disk <= 4 * 2 ** 30 ? false : "start the server with a small disk and name its size in GLOVEBOX_TEST_DISK_BYTES";

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these tests with \`go test ./test/compat\`, or set it to a running server's`);
  return value;
}

/** A name that no other run uses. */
export function uniqueName(prefix = "compat") {
  return `${prefix}-${randomBytes(6).toString("hex")}`;
}

/** Credentials for a project of the server. */
export function credentials(projectId = "default", token = TOKEN) {
  return { token, teamId: "any", projectId };
}

/** A new sandbox that is deleted when the test (or suite) `t` ends. */
export async function newSandbox(t, params = {}) {
  const sandbox = await Sandbox.create({ name: uniqueName(), persistent: false, ...params });
  t.after(() => remove(sandbox));
  return sandbox;
}

/**
 * One sandbox for all tests of a file or suite; read it from the returned
 * object inside the tests. `prepare` runs once it is there.
 */
export function sharedSandbox(params = {}, prepare = async () => {}) {
  const holder = { sandbox: undefined };
  before(async () => {
    holder.sandbox = await Sandbox.create({ name: uniqueName(), persistent: false, timeout: 600_000, ...params });
    await prepare(holder.sandbox);
  });
  after(() => holder.sandbox && remove(holder.sandbox));
  return holder;
}

async function remove(sandbox) {
  try {
    await sandbox.delete();
  } catch (error) {
    if (error?.response?.status !== 404) throw error;
  }
}

/** Runs a bash script and returns exit code, stdout and stderr. */
export async function sh(sandbox, script, params = {}) {
  return finish(await sandbox.runCommand({ cmd: "bash", args: ["-c", script], ...params }));
}

/** Runs a Python program and returns exit code, stdout and stderr. */
export async function python(sandbox, program, params = {}) {
  const { args = [], ...rest } = params;
  return finish(await sandbox.runCommand({ cmd: "python3", args: ["-c", program, ...args], ...rest }));
}

/** The parts of a finished command in one object. */
export async function finish(result) {
  return { exitCode: result.exitCode, stdout: await result.stdout(), stderr: await result.stderr(), result };
}

/** The log items of a command, to their end. */
export async function collect(command) {
  const joined = { stdout: "", stderr: "", items: [] };
  for await (const item of command.logs()) {
    joined[item.stream] += item.data;
    joined.items.push(item);
  }
  return joined;
}

/**
 * A request past the client. `body` may be a string, bytes, or an object to
 * send as JSON.
 */
export async function api(method, path, { body, headers = {}, token = TOKEN, signal } = {}) {
  const plain = body === undefined || typeof body === "string" || ArrayBuffer.isView(body) || body instanceof ReadableStream;
  const response = await fetch(SERVER + path, {
    method,
    headers: { ...(token === null ? {} : { authorization: `Bearer ${token}` }), "content-type": "application/json", ...headers },
    body: plain ? body : JSON.stringify(body),
    duplex: body instanceof ReadableStream ? "half" : undefined,
    signal,
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: response.headers, bytes, text: bytes.toString(), json: parsed(bytes) };
}

function parsed(bytes) {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** The path of a call on a sandbox's running session. */
export function sessionPath(sandbox, rest = "") {
  return `/v2/sandboxes/sessions/${sandbox.currentSession().sessionId}${rest}`;
}

/** Asserts an error answer: status, code, and a message that matches. */
export function assertError(answer, status, { code, message } = {}) {
  assert.equal(answer.status, status, answer.text.slice(0, 500));
  assert.equal(typeof answer.json?.error?.code, "string", `error.code is missing: ${answer.text.slice(0, 500)}`);
  assert.equal(typeof answer.json.error.message, "string");
  if (code) assert.equal(answer.json.error.code, code, answer.text);
  if (message) assert.match(answer.json.error.message, message);
}

/** Asserts that a call of the client rejects with an APIError of this status. */
export async function rejectsWith(promise, status, message = /./) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.response?.status, status, `${error.name}: ${error.message}`);
    assert.match(error.message, message);
    return true;
  });
}

/** Asserts that a promise settles within `ms`, and returns its value. */
export async function within(ms, promise, what = "the call") {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took longer than ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks until `probe` returns something true, and returns that. */
export async function eventually(probe, { timeout = 15_000, every = 100, what = "the condition" } = {}) {
  const end = Date.now() + timeout;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not come true within ${timeout} ms`);
    await pause(every);
  }
}

export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export function sha256(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

/** `length` bytes that do not compress, the same for the same seed. */
export function noise(length, seed = 1) {
  const bytes = Buffer.alloc(length);
  let state = (seed * 2654435761) >>> 0 || 1;
  let i = 0;
  for (; i + 4 <= length; i += 4) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes.writeInt32LE(state | 0, i);
  }
  for (; i < length; i++) bytes[i] = state >>> ((i % 4) * 8);
  return bytes;
}
