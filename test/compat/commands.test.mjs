// How a command starts, what it sees, and how its end is told.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  SLOW,
  api,
  assertError,
  collect,
  eventually,
  finish,
  newSandbox,
  python,
  rejectsWith,
  sessionPath,
  sh,
  sharedSandbox,
  within,
} from "./support/client.mjs";
import { Sandbox } from "@vercel/sandbox";

const box = sharedSandbox();

describe("exit codes", { concurrency: 3 }, () => {
  const cases = [
    ["exit 0", 0],
    ["exit 5", 5],
    ["exit 300", 44],
    ["false", 1],
    ["kill -9 $$", 137],
    ["kill -15 $$", 143],
    ["kill -SEGV $$", 139],
  ];
  for (const [script, code] of cases) {
    test(`bash -c '${script}' ends with ${code}`, async () => {
      assert.equal((await sh(box.sandbox, script)).exitCode, code);
    });
  }

  test("a program that aborts ends with 134", async () => {
    assert.equal((await python(box.sandbox, "import os; os.abort()")).exitCode, 134);
  });

  test("a command that fails is a result, a sandbox that is gone is an error", async (t) => {
    const grep = await box.sandbox.runCommand("grep", ["foo", "/dev/null"]);
    assert.equal(grep.exitCode, 1);
    const gone = await newSandbox(t);
    await gone.delete();
    await rejectsWith(gone.runCommand("true"), 404);
    await rejectsWith(Sandbox.get({ name: "never-existed" }), 404);
  });
});

describe("commands that cannot start", { concurrency: 3 }, () => {
  test("a missing command ends with 127 and is named, at once", async () => {
    const missing = await within(5000, sh127(box.sandbox, "definitely-not-a-command"));
    assert.equal(missing.exitCode, 127);
    assert.match(missing.stderr, /definitely-not-a-command/);
  });

  test("a script whose interpreter is missing ends with 127", async () => {
    await box.sandbox.writeFiles([{ path: "/tmp/badinterp", content: "#!/no/such/interp\n", mode: 0o755 }]);
    const bad = await within(5000, sh127(box.sandbox, "/tmp/badinterp"));
    assert.equal(bad.exitCode, 127);
    assert.match(bad.stderr, /badinterp/);
  });

  test("a file without execute permission, and a directory, end with 126", async () => {
    await box.sandbox.writeFiles([{ path: "/tmp/plain.txt", content: "text", mode: 0o644 }]);
    for (const cmd of ["/tmp/plain.txt", "/tmp"]) {
      const denied = await within(5000, sh127(box.sandbox, cmd));
      assert.equal(denied.exitCode, 126, cmd);
      assert.match(denied.stderr, new RegExp(cmd.replaceAll(".", "\\.")));
    }
  });

  test("detached, the missing command ends with 127 too", async () => {
    const command = await within(5000, box.sandbox.runCommand({ cmd: "definitely-not-a-command", detached: true }));
    assert.equal((await within(5000, command.wait())).exitCode, 127);
    assert.match((await collect(command)).stderr, /definitely-not-a-command/);
  });

  test("an empty or absent command is refused", async () => {
    for (const body of [{ command: "" }, {}, { args: ["x"] }, { command: "", wait: true }]) {
      assertError(await within(5000, api("POST", sessionPath(box.sandbox, "/cmd"), { body })), 400, { message: /command/i });
    }
  });

  test("a working directory that does not exist is refused, and nothing runs", async () => {
    const call = box.sandbox.runCommand({ cmd: "touch", args: ["/tmp/ran-anyway"], cwd: "/no/such/dir" });
    await rejectsWith(call, 400, /cwd/);
    assert.equal((await sh(box.sandbox, "test -e /tmp/ran-anyway")).exitCode, 1);
  });

  test("after all of these the sandbox runs commands", async () => {
    assert.equal((await sh(box.sandbox, "echo ok")).stdout, "ok\n");
  });
});

const sh127 = async (sandbox, cmd) => finish(await sandbox.runCommand({ cmd }));

describe("where and as whom a command runs", { concurrency: 3 }, () => {
  test("the default is the user's own directory, and cwd changes it", async () => {
    assert.equal((await sh(box.sandbox, "pwd")).stdout, "/vercel/sandbox\n");
    assert.equal(box.sandbox.cwd, "/vercel/sandbox");
    const there = await sh(box.sandbox, "pwd", { cwd: "/tmp" });
    assert.equal(there.stdout, "/tmp\n");
    assert.equal(there.result.cwd, "/tmp");
  });

  test("commands run as an ordinary user who has sudo without a password", async () => {
    const who = await sh(box.sandbox, "id -u; sudo -n id -u");
    assert.equal(who.stdout, "1000\n0\n");
  });

  test("sudo runs as root with root's home, and keeps PATH and env", async () => {
    const script = "id -un; echo $HOME; echo $MINE; echo $PATH";
    const plain = await sh(box.sandbox, "echo $PATH");
    const root = await sh(box.sandbox, script, { sudo: true, env: { MINE: "kept" } });
    assert.equal(root.stdout, `root\n/root\nkept\n${plain.stdout}`);
  });

  test("commands share nothing: no variable, no directory", async () => {
    await sh(box.sandbox, "export LEFT=1; cd /tmp");
    assert.equal((await sh(box.sandbox, "echo [$LEFT] $(pwd)")).stdout, "[] /vercel/sandbox\n");
  });

  test("pipelines and arguments are not interpreted", async () => {
    const echo = await finish(await box.sandbox.runCommand("echo", ["$HOME", "|", "cat", "&&", "*"]));
    assert.equal(echo.stdout, "$HOME | cat && *\n");
  });
});

describe("standard input", { concurrency: 3 }, () => {
  test("is empty and never waits", async () => {
    const { sandbox } = box;
    const [cat, input, read, tty] = await within(
      10_000,
      Promise.all([
        sandbox.runCommand({ cmd: "cat" }).then(finish),
        python(sandbox, "input()"),
        sh(sandbox, "read x; echo rc=$?"),
        sh(sandbox, "[ -t 0 ] && echo tty || echo notty"),
      ]),
      "reading standard input",
    );
    assert.deepEqual([cat.exitCode, cat.stdout], [0, ""]);
    assert.equal(input.exitCode, 1);
    assert.match(input.stderr, /EOFError/);
    assert.equal(read.stdout, "rc=1\n");
    assert.equal(tty.stdout, "notty\n");
  });
});

describe("environment", { concurrency: 3 }, () => {
  const tricky = {
    A: "it's",
    B: 'say "hi"',
    C: "$(touch /tmp/pwn) `touch /tmp/pwn` $HOME",
    D: "line1\nline2\n",
    E: "",
    F: "naïve ☕ 你好",
    G: "a=b=c",
    H: "\\n\\t\\\\ \t",
    I: "!! * ? [x] ; & |",
  };
  const show =
    'import os,json,sys; print(json.dumps([{k:os.environ.get(k) for k in "ABCDEFGHI"},sys.argv[1:]],ensure_ascii=False))';

  test("a command's variables and arguments arrive byte for byte", async () => {
    const { stdout } = await python(box.sandbox, show, { args: Object.values(tricky), env: tricky });
    const [env, argv] = JSON.parse(stdout);
    assert.deepEqual(env, tricky);
    assert.deepEqual(argv, Object.values(tricky));
    assert.equal((await sh(box.sandbox, "test -e /tmp/pwn")).exitCode, 1);
  });

  test("a sandbox's variables arrive byte for byte, and a command's are over them", async (t) => {
    const sandbox = await newSandbox(t, { env: tricky });
    const [env] = JSON.parse((await python(sandbox, show)).stdout);
    assert.deepEqual(env, tricky);
    const over = await sh(sandbox, 'echo "$A:$G"', { env: { A: "command" } });
    assert.equal(over.stdout, "command:a=b=c\n");
    assert.equal((await sh(sandbox, "test -e /tmp/pwn")).exitCode, 1);
  });

  test("a name that cannot be one, and a NUL in a value, are refused", async () => {
    for (const env of [{ "": "x" }, { "A=B": "x" }, { "A\0": "x" }, { A: "x\0y" }]) {
      assertError(await api("POST", sessionPath(box.sandbox, "/cmd"), { body: { command: "true", env } }), 400, { message: /env/i });
    }
  });
});

describe("long commands", { concurrency: true }, () => {
  test("75 silent seconds are waited out, in one call and detached", async (t) => {
    const sandbox = await newSandbox(t, { timeout: 300_000 });
    const long = { cmd: "sh", args: ["-c", "sleep 75; echo end"] };
    const start = Date.now();
    const detached = await sandbox.runCommand({ ...long, detached: true });
    const [waited, later] = await Promise.all([sandbox.runCommand(long).then(finish), detached.wait().then(finish)]);
    for (const end of [waited, later]) {
      assert.equal(end.exitCode, 0);
      assert.equal(end.stdout, "end\n");
    }
    const took = Date.now() - start;
    assert.ok(took >= 75_000 && took < 85_000, `took ${took} ms`);
  });

  test("a wait of 330 s gets its headers early enough", { skip: SLOW ? false : "set GLOVEBOX_SLOW=1 to run it" }, async (t) => {
    const sandbox = await newSandbox(t, { timeout: 600_000 });
    const start = Date.now();
    const detached = await sandbox.runCommand({ cmd: "sleep", args: ["330"], detached: true });
    assert.equal((await detached.wait()).exitCode, 0);
    const took = Date.now() - start;
    assert.ok(took >= 330_000 && took < 336_000, `took ${took} ms`);
  });
});

describe("records of commands", { concurrency: 3 }, () => {
  test("a command can be looked up by its id, running and finished", async () => {
    const command = await box.sandbox.runCommand({ cmd: "sleep", args: ["1"], detached: true });
    assert.equal((await box.sandbox.getCommand(command.cmdId)).exitCode, null);
    await command.wait();
    const done = await box.sandbox.getCommand(command.cmdId);
    assert.equal(done.exitCode, 0);
    assert.ok(done.durationMs >= 900, `durationMs ${done.durationMs}`);
    assert.ok(Math.abs(done.startedAt - Date.now()) < 60_000);
  });

  test("the list holds the commands of the session", async () => {
    const command = await box.sandbox.runCommand({ cmd: "true", detached: true });
    const list = await api("GET", sessionPath(box.sandbox, "/cmd"));
    assert.equal(list.status, 200);
    assert.ok(list.json.commands.some((entry) => entry.id === command.cmdId && entry.name === "true"));
  });

  test("an unknown id is not found, whatever is asked of it", async () => {
    for (const [method, rest] of [["GET", ""], ["GET", "?wait=true"], ["GET", "/logs"], ["POST", "/kill"]]) {
      const body = method === "POST" ? { signal: 15 } : undefined;
      assertError(await api(method, sessionPath(box.sandbox, `/cmd/cmd_00000000000000000000${rest}`), { body }), 404, { code: "not_found" });
    }
  });

  test("logs stay readable after the session has stopped", async (t) => {
    const sandbox = await newSandbox(t);
    const command = await sandbox.runCommand({ cmd: "echo", args: ["kept"], detached: true });
    await command.wait();
    await sandbox.stop();
    assert.equal((await eventually(() => collect(command))).stdout, "kept\n");
  });
});
