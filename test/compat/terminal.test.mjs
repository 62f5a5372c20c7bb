// The interactive terminal: a real one, for as long as its client is there.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import WebSocket from "ws";
import { eventually, sh, sharedSandbox } from "./support/client.mjs";
import { openShell } from "./support/shell.mjs";

const box = sharedSandbox();

describe("terminal", { concurrency: 3 }, () => {
  test("it has a size, follows changes of it, and is a device", async () => {
    const shell = await openShell(box.sandbox, { cols: 90, rows: 30 });
    shell.type("tty; stty size\n");
    await shell.until(/\/dev\/pts\/\d+/);
    await shell.until(/\b30 90\b/);
    shell.socket.send(JSON.stringify({ type: "resize", cols: 111, rows: 33 }));
    await eventually(async () => {
      shell.type("stty size\n");
      return /\b33 111\b/.test(shell.output.toString());
    }, { every: 200, what: "the new size" });
    shell.socket.close();
  });

  test("Ctrl-C interrupts, Ctrl-D ends the shell with its code", async () => {
    const shell = await openShell(box.sandbox, { env: ["PS1=ready> "] });
    await shell.until(/ready> /);
    shell.type("sleep 100\n");
    await eventually(async () => (await sh(box.sandbox, "pgrep -fx 'sleep 100'")).exitCode === 0, { what: "the running sleep" });
    shell.type("\x03");
    shell.type("echo rc=$?\n");
    // Bash prints its prompt once it reads single keys. A Ctrl-D before that is
    // an end of file of the line that bash no longer reads: Linux drops it too.
    await shell.until(/rc=130\r\n[^]*ready> /);
    shell.type("\x04");
    await eventually(() => shell.closed, { what: "the end of the connection" });
    assert.equal(shell.exit.type, "exit");
    assert.equal(typeof shell.exit.code, "number");
  });

  test("characters cut by frames stay whole, and 200 000 lines arrive", async () => {
    const shell = await openShell(box.sandbox);
    shell.type("stty -echo\n");
    const bytes = Buffer.from("echo ü☕ end\n");
    for (const byte of bytes) shell.socket.send(Buffer.from([byte]));
    await shell.until(/ü☕ end\r\n/);
    shell.type("echo begin; seq 1 200000; echo finish\n");
    shell.socket.pause();
    setTimeout(() => shell.socket.resume(), 2000);
    await shell.until(/\r\nfinish\r\n/, 60_000);
    const text = shell.output.toString();
    const lines = text.slice(text.indexOf("begin\r\n") + 7, text.lastIndexOf("finish")).trim().split("\r\n");
    assert.equal(lines.length, 200_000);
    assert.ok(lines.every((line, i) => line === String(i + 1)));
    shell.socket.close();
  });

  test("a disconnect ends the shell and what runs in it", async () => {
    const shell = await openShell(box.sandbox);
    shell.type("sleep 7779\n");
    const running = async () => (await sh(box.sandbox, "pgrep -fx 'sleep 7779'")).exitCode === 0;
    await eventually(running, { what: "the running sleep" });
    shell.socket.terminate();
    await eventually(async () => !(await running()), { timeout: 10_000, what: "the end of the sleep" });
  });

  test("a token opens one terminal, and a wrong one none", async () => {
    const shell = await openShell(box.sandbox);
    for (const token of [shell.token, "wrong", ""]) {
      const second = new WebSocket(`${shell.url}?token=${encodeURIComponent(token)}`);
      const outcome = await new Promise((resolve) => {
        second.once("open", () => second.once("close", (code) => resolve(`closed ${code}`)));
        second.once("error", (error) => resolve(error.message));
      });
      assert.match(outcome, /40[0-9]|closed/, token);
    }
    shell.type("echo mine\n");
    await shell.until(/mine\r\n/);
    shell.socket.close();
  });
});
