// Starts the web program in a sandbox and talks to its previews.

import { readFile } from "node:fs/promises";
import { get as httpGet } from "node:http";
import WebSocket from "ws";

const PROGRAM = new URL("../programs/web.mjs", import.meta.url);

/** Starts the program on a port of the sandbox and waits until it listens. */
export async function startWeb(sandbox, port, host) {
  await sandbox.writeFiles([{ path: "web.mjs", content: await readFile(PROGRAM) }]);
  const command = await sandbox.runCommand({ cmd: "node", args: ["web.mjs", String(port), ...(host ? [host] : [])], detached: true });
  for await (const item of command.logs()) {
    if (item.data.includes("listening")) return command;
  }
  throw new Error(`the web program ended: ${await command.stderr()}`);
}

/** An open WebSocket with its messages to be awaited in order. */
export async function openSocket(url, protocols) {
  const socket = new WebSocket(url.replace(/^http/, "ws"), protocols);
  const queue = [];
  const waiting = [];
  socket.on("message", (data, binary) => {
    const message = { data, binary };
    if (waiting.length) waiting.shift()(message);
    else queue.push(message);
  });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  return {
    socket,
    next: () => (queue.length ? Promise.resolve(queue.shift()) : new Promise((resolve) => waiting.push(resolve))),
    closed: new Promise((resolve) => socket.once("close", (code, reason) => resolve({ code, reason: String(reason) }))),
  };
}

/** A GET by node:http, which lets every header be set. */
export function plainGet(url, headers = {}) {
  return new Promise((resolve, reject) => {
    httpGet(url, { headers }, async (response) => {
      const chunks = [];
      for await (const chunk of response) chunks.push(chunk);
      resolve({ status: response.statusCode, headers: response.headers, text: Buffer.concat(chunks).toString() });
    }).on("error", reject);
  });
}
