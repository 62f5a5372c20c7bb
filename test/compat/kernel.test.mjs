// What programs expect of a kernel, where gVisor is known to differ.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { api, newSandbox, python, sessionPath, sh, sharedSandbox, uniqueName } from "./support/client.mjs";
import { openShell } from "./support/shell.mjs";

const box = sharedSandbox({ resources: { vcpus: 1 } });

// Prints what it sees of a directory, and that it watches.
const WATCHER = `
  const fs = require("fs");
  fs.mkdirSync("src", { recursive: true });
  fs.watch("src", (event, name) => console.log("saw " + name));
  setTimeout(() => console.log("watching"), 200);
  setInterval(() => {}, 1000);
`;

// Three processes at a directory of the image: one copies its files up and
// removes them, one removes the whole of it, one renames into it.
const CHURN = `
import os, shutil, sys
def files(top):
    for root, _, names in os.walk(top):
        for name in names:
            try:
                os.utime(os.path.join(root, name)); os.unlink(os.path.join(root, name))
            except OSError: pass
def renames(top):
    for i in range(200):
        try:
            os.makedirs(top + "/new", exist_ok=True); os.rename(top + "/new", top + "/moved%d" % i)
        except OSError: pass
for top in ["/usr/share/perl5", "/usr/share/zoneinfo", "/usr/share/doc", "/usr/share/man"]:
    children = []
    for work in (files, lambda top: shutil.rmtree(top, ignore_errors=True), renames):
        pid = os.fork()
        if pid == 0:
            work(top); os._exit(0)
        children.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in children): sys.exit("a process failed")
print("done")
`;

describe("the kernel", { concurrency: 3 }, () => {
  test("what it has not is refused, and harms nobody", async () => {
    const calls = { perf_event_open: 298, bpf: 321, userfaultfd: 323, keyctl: 250, io_uring_setup: 425 };
    const { stdout, exitCode } = await python(box.sandbox, `
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in ${JSON.stringify(Object.values(calls))}:
    result = libc.syscall(number, 0, 0, 0, 0, 0)
    print(number, result, errno.errorcode.get(ctypes.get_errno()))
`);
    assert.equal(exitCode, 0);
    for (const line of stdout.trim().split("\n")) assert.match(line, /^\d+ -1 (ENOSYS|EPERM|EACCES|EINVAL|ENODEV|EOPNOTSUPP)$/);
  });

  test("Node.js with io_uring asked for falls back, and the usual tools show the sandbox's size", async () => {
    const io = 'const fs = require("fs/promises"); (async () => { for (let i = 0; i < 300; i++) { await fs.writeFile("/tmp/n" + i, "" + i); if (+(await fs.readFile("/tmp/n" + i)) !== i) throw i } console.log("same") })()';
    const { stdout } = await sh(box.sandbox, `UV_USE_IO_URING=1 node -e '${io}' && nproc && awk '/MemTotal/{print int($2/1024/100)}' /proc/meminfo && grep -c ^processor /proc/cpuinfo && cat /proc/self/cgroup >/dev/null && echo end`);
    assert.equal(stdout, "same\n1\n20\n1\nend\n");
  });

  test("a watcher sees what is written from outside, as it sees what a program writes", async () => {
    const dir = `/vercel/sandbox/${uniqueName("watch")}`;
    await box.sandbox.mkDir(dir);
    const watcher = await box.sandbox.runCommand({ cmd: "node", args: ["-e", WATCHER], cwd: dir, detached: true });
    const wanted = ["made-inside", "made-outside", "made-again", "dir-outside"];
    const seen = new Set();
    for await (const { data } of watcher.logs()) {
      for (const line of data.split("\n")) {
        if (line.startsWith("saw ")) seen.add(line.slice(4));
        if (line !== "watching") continue;
        await sh(box.sandbox, `echo 1 > ${dir}/src/made-inside`);
        await box.sandbox.writeFiles([{ path: `${dir}/src/made-outside`, content: "1" }]);
        await box.sandbox.fs.writeFile(`${dir}/src/made-again`, "1");
        await api("POST", sessionPath(box.sandbox, "/fs/mkdir"), { body: { path: `${dir}/src/dir-outside` } });
      }
      if (wanted.every((name) => seen.has(name))) break;
    }
    await watcher.kill("SIGKILL");
    assert.deepEqual(wanted.filter((name) => !seen.has(name)), []);
  });

  test("files of the image that go while others work on them leave the sandbox alive", async (t) => {
    const sandbox = await newSandbox(t);
    const session = sandbox.currentSession().sessionId;
    const churn = await python(sandbox, CHURN, { sudo: true });
    assert.equal(churn.stdout, "done\n");
    assert.equal((await sh(sandbox, "echo ok")).stdout, "ok\n");
    assert.equal(sandbox.currentSession().sessionId, session);
  });

  test("64 KiB pasted into a terminal arrive, line by line", async () => {
    const shell = await openShell(box.sandbox, { command: "bash", args: ["--norc", "-c", "stty -echo; echo ready; cat > /tmp/pasted; echo saved"] });
    await shell.until(/ready/);
    const lines = Array.from({ length: 1024 }, (_, i) => String(i).padStart(63, "x")).join("\n") + "\n";
    for (let at = 0; at < lines.length; at += 1000) shell.type(lines.slice(at, at + 1000));
    shell.type("\x04");
    await shell.until(/saved/, 60_000);
    assert.equal((await box.sandbox.readFileToBuffer({ path: "/tmp/pasted" })).toString(), lines);
  });
});
