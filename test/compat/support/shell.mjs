// The interactive terminal, by its protocol.

import WebSocket from "ws";
import { eventually } from "./client.mjs";

/** Opens a terminal in the sandbox and starts a command in it. */
export async function openShell(sandbox, { command = "bash", args = ["--norc"], env = ["PS1="], cwd = "/vercel/sandbox", cols = 80, rows = 24 } = {}) {
  const { url, token } = await sandbox.openInteractive();
  const socket = new WebSocket(`${url}?token=${encodeURIComponent(token)}`);
  const shell = { socket, url, token, output: Buffer.alloc(0), exit: undefined, closed: false };
  socket.on("message", (data, binary) => {
    if (binary) shell.output = Buffer.concat([shell.output, data]);
    else shell.exit = JSON.parse(String(data));
  });
  socket.on("close", () => (shell.closed = true));
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  socket.send(JSON.stringify({ type: "start", command, args, env, cwd, cols, rows }));
  shell.type = (text) => socket.send(Buffer.from(text));
  shell.until = (pattern, timeout = 15_000) =>
    eventually(() => pattern.exec(shell.output.toString()), { timeout, every: 20, what: `${pattern} in ${JSON.stringify(shell.output.toString().slice(-500))}` });
  return shell;
}
