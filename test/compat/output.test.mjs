// Output of commands: every byte, once, in order, when it is made.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Writable } from "node:stream";
import { SERVER, TOKEN, collect, finish, python, sessionPath, sh, sha256, sharedSandbox, within } from "./support/client.mjs";
import { commandLines } from "./support/ndjson.mjs";

const box = sharedSandbox();

describe("output", { concurrency: 3 }, () => {
  test("three million bytes in one write arrive whole, and the sandbox works on", async () => {
    const big = await python(box.sandbox, "import sys; sys.stdout.write('x'*3000000)");
    assert.equal(big.exitCode, 0);
    assert.equal(big.stdout.length, 3_000_000);
    assert.equal(sha256(big.stdout), "e55b8bdf621ddaa8f462c74745db9680d3bb7536a9cf854f8d6668b34a287890");
    assert.equal((await finish(await box.sandbox.runCommand("echo", ["alive"]))).stdout, "alive\n");
  });

  test("two million short lines arrive whole and in order", async () => {
    const seq = await finish(await box.sandbox.runCommand("seq", ["1", "2000000"]));
    assert.equal(seq.exitCode, 0);
    assert.equal(seq.stdout.length, 14_888_896);
    assert.equal(sha256(seq.stdout), "d2d7c0abc3eb76d91b0b5a2702e92a9f2908269c9c1b3604bdfe2521c71d6274");
    assert.ok(seq.stdout.endsWith("\n2000000\n"));
  });

  test("each line of the stream is one JSON value: the command, its output, the command", async () => {
    const seen = [];
    for await (const { line, partial } of commandLines(box.sandbox, { command: "seq", args: ["1", "300000"] })) {
      assert.equal(partial, undefined);
      seen.push(line);
    }
    const first = seen.shift();
    const last = seen.pop();
    assert.equal(first.command.exitCode, null);
    assert.equal(last.command.exitCode, 0);
    assert.equal(last.command.id, first.command.id);
    assert.ok(last.command.durationMs > 0);
    assert.ok(seen.every((item) => item.stream === "stdout" && typeof item.data === "string"));
    assert.equal(sha256(seen.map((item) => item.data).join("")), sha256(Array.from({ length: 300_000 }, (_, i) => `${i + 1}\n`).join("")));
  });

  // In these two the command goes on only when its last line has arrived.
  test("output is sent when it is made, not at the end", async () => {
    const script = "for i in 1 2 3; do echo $i; until [ -e go-$i ]; do sleep 0.05; done; done";
    const seen = [];
    for await (const { line } of commandLines(box.sandbox, { command: "bash", args: ["-c", script], timeout: 60_000 })) {
      if (!line.stream) continue;
      seen.push(line.data);
      await box.sandbox.writeFiles([{ path: `go-${line.data.trim()}`, content: "" }]);
    }
    assert.deepEqual(seen, ["1\n", "2\n", "3\n"]);
  });

  test("the client's own streams get the output while the command runs", async () => {
    const chunks = [];
    const sink = (path) =>
      new Writable({
        write(chunk, _, done) {
          chunks.push(String(chunk));
          box.sandbox.writeFiles([{ path, content: "" }]).then(() => done(), done);
        },
      });
    const result = await box.sandbox.runCommand({
      cmd: "bash",
      args: ["-c", "echo out; until [ -e got-out ]; do sleep 0.05; done; echo err >&2; until [ -e got-err ]; do sleep 0.05; done"],
      stdout: sink("got-out"),
      stderr: sink("got-err"),
      timeoutMs: 60_000,
    });
    assert.equal(result.exitCode, 0);
    assert.deepEqual(chunks, ["out\n", "err\n"]);
  });

  test("a character that is written in pieces arrives as one, on both streams", async () => {
    const split = [
      "import sys,time",
      "b='café☕ 你好\\n'.encode()",
      "for p in (b[:4],b[4:7],b[7:]):",
      "    sys.stdout.buffer.write(p); sys.stdout.buffer.flush(); time.sleep(0.3)",
    ].join("\n");
    await box.sandbox.writeFiles([{ path: "split.py", content: split }]);
    const out = await finish(await box.sandbox.runCommand({ cmd: "python3", args: ["split.py"] }));
    const err = await finish(await box.sandbox.runCommand({ cmd: "sh", args: ["-c", "python3 split.py >&2"] }));
    assert.equal(out.exitCode, 0);
    assert.equal(out.stdout, "café☕ 你好\n");
    assert.equal(err.exitCode, 0);
    assert.equal(err.stderr, "café☕ 你好\n");
  });

  test("an incomplete character of one stream waits while the other stream goes on", async () => {
    const cross = "import os,time\nos.write(1,b'\\xe2\\x98'); time.sleep(0.3); os.write(2,b'E\\n'); time.sleep(0.3); os.write(1,b'\\x95\\n')\n";
    await box.sandbox.writeFiles([{ path: "cross.py", content: cross }]);
    const command = await box.sandbox.runCommand({ cmd: "python3", args: ["cross.py"], detached: true });
    const { stdout, stderr } = await collect(command);
    assert.equal(stdout, "\u2615\n");
    assert.equal(stderr, "E\n");
    assert.equal((await command.wait()).exitCode, 0);
  });

  test("NUL, escape sequences and carriage returns pass unchanged", async () => {
    const nul = await finish(await box.sandbox.runCommand("printf", ["a\\n\\0\\nb\\n"]));
    assert.equal(nul.stdout, "a\n\u0000\nb\n");
    const colour = await finish(await box.sandbox.runCommand("printf", ["\\033[31mred\\033[0m\\r\\n"]));
    assert.equal(colour.stdout, "\u001b[31mred\u001b[0m\r\n");
  });

  test("bytes that are not UTF-8 become replacement characters and break nothing", async () => {
    const invalid = await python(box.sandbox, "import os; os.write(1,b'\\xff\\xfe\\x80ok\\n')");
    assert.equal(invalid.exitCode, 0);
    assert.equal(invalid.stdout, "\ufffd\ufffd\ufffdok\n");
  });

  test("a character cut off by the end of the program is shown as a replacement", async () => {
    const cut = await python(box.sandbox, "import os; os.write(1,b'\\xe2\\x98')");
    assert.equal(cut.exitCode, 0);
    assert.match(cut.stdout, /^\ufffd{1,2}$/);
  });

  test("a program that prints nothing has empty output and logs that end", async () => {
    const quiet = await finish(await box.sandbox.runCommand("true"));
    assert.deepEqual([quiet.exitCode, quiet.stdout, quiet.stderr], [0, "", ""]);
    const command = await box.sandbox.runCommand({ cmd: "true", detached: true });
    assert.equal((await command.wait()).exitCode, 0);
    const { items } = await within(2000, collect(command), "reading the logs");
    assert.deepEqual(items, []);
  });

  test("any number of readers, early and late, get the same log from its first byte", async () => {
    const command = await box.sandbox.runCommand({
      cmd: "bash",
      args: ["-c", "for i in $(seq 1 50); do echo line-$i; echo err-$i >&2; sleep 0.02; done"],
      detached: true,
    });
    const early = [collect(command), collect(command), collect(command)];
    const again = await box.sandbox.getCommand(command.cmdId);
    const results = await Promise.all([...early, collect(again)]);
    results.push(await collect(command));
    const expected = (word) => Array.from({ length: 50 }, (_, i) => `${word}-${i + 1}\n`).join("");
    for (const { stdout, stderr } of results) {
      assert.equal(stdout, expected("line"));
      assert.equal(stderr, expected("err"));
    }
  });

  test("a reader that stops reading holds up neither the command nor others", async () => {
    const command = await box.sandbox.runCommand({ cmd: "bash", args: ["-c", "head -c 20000000 /dev/zero | tr '\\0' x"], detached: true });
    const stop = new AbortController();
    const stuck = await fetch(`${SERVER}${sessionPath(box.sandbox, `/cmd/${command.cmdId}/logs`)}`, {
      headers: { authorization: `Bearer ${TOKEN}` },
      signal: stop.signal,
    });
    assert.equal(stuck.status, 200);
    const { stdout } = await within(30_000, collect(command), "the other reader");
    assert.equal(stdout.length, 20_000_000);
    assert.equal((await command.wait()).exitCode, 0);
    stop.abort();
  });

  test("stderr and stdout stay apart", async () => {
    const both = await sh(box.sandbox, "echo out; echo err >&2; exit 3");
    assert.deepEqual([both.exitCode, both.stdout, both.stderr], [3, "out\n", "err\n"]);
  });
});
