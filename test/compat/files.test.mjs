// Files through the API: any size, any bytes, any name.

import assert from "node:assert/strict";
import { inflateRawSync } from "node:zlib";
import { describe, test } from "node:test";
import { api, assertError, finish, newSandbox, noise, python, rejectsWith, sessionPath, sh, sha256, sharedSandbox, within } from "./support/client.mjs";

const box = sharedSandbox();
const read = (path) => box.sandbox.readFileToBuffer({ path });

describe("sizes", () => {
  for (const size of [0, 1, 511, 512, 513, 18431, 18433, 1048576, 16777217, 50_000_000, 104857600]) {
    test(`a file of ${size} bytes is the same on both sides`, async () => {
      const content = noise(size, size + 1);
      const path = `f${size}`;
      await box.sandbox.writeFiles([{ path, content }]);
      const { stdout } = await sh(box.sandbox, `sha256sum ${path}; stat -c %s ${path}`);
      assert.equal(stdout, `${sha256(content)}  ${path}\n${size}\n`);
      assert.equal(sha256(await read(path)), sha256(content));
      await sh(box.sandbox, `rm ${path}`);
    });
  }

  test("2000 files in one call are all there", async () => {
    const files = Array.from({ length: 2000 }, (_, i) => ({ path: `many/${i}`, content: noise(1024, i + 1) }));
    await box.sandbox.writeFiles(files);
    const { stdout } = await sh(box.sandbox, "cd many && sha256sum $(seq 0 1999)", {});
    const sums = stdout.trim().split("\n").map((line) => line.split(" ")[0]);
    assert.deepEqual(sums, files.map((file) => sha256(file.content)));
  });
});

describe("content", { concurrency: 3 }, () => {
  test("all byte values come back as they went", async () => {
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));
    await box.sandbox.writeFiles([{ path: "b.bin", content: bytes }]);
    assert.equal(sha256(await read("b.bin")), "785b0751fc2c53dc14a4ce3d800e69ef9ce1009eb327ccf458afe09c242c26c9");
  });

  test("an archive made inside opens outside", async () => {
    await python(box.sandbox, "import zipfile\nwith zipfile.ZipFile('z.zip','w',zipfile.ZIP_DEFLATED) as z: z.writestr('m',bytes(100000))");
    assert.deepEqual(firstMember(await read("z.zip")), Buffer.alloc(100000));
  });

  test("line ends, separators and byte order marks stay", async () => {
    const text = "\ufeffa\r\nb\u2028c\ufeff";
    await box.sandbox.writeFiles([{ path: "t.txt", content: text }]);
    assert.equal((await read("t.txt")).toString("hex"), Buffer.from(text).toString("hex"));
  });

  test("the answer to a read is a stream of plain bytes", async () => {
    await box.sandbox.writeFiles([{ path: "plain", content: "x" }]);
    const answer = await api("POST", sessionPath(box.sandbox, "/fs/read"), { body: { path: "plain", cwd: "/vercel/sandbox" } });
    assert.equal(answer.headers.get("content-type"), "application/octet-stream");
    assert.equal(answer.text, "x");
  });

  test("readFile streams", async () => {
    await box.sandbox.writeFiles([{ path: "stream", content: noise(3_000_000) }]);
    const chunks = [];
    for await (const chunk of await box.sandbox.readFile({ path: "stream" })) chunks.push(chunk);
    assert.ok(chunks.length > 1);
    assert.equal(sha256(Buffer.concat(chunks)), sha256(noise(3_000_000)));
  });

  test("a file that is missing is null, and the answer has no body", async () => {
    assert.equal(await read("no/such/file"), null);
    const answer = await api("POST", sessionPath(box.sandbox, "/fs/read"), { body: { path: "/no/such/file" } });
    assert.equal(answer.status, 404);
    assert.equal(answer.bytes.length, 0);
  });

  test("a path is relative to cwd where one is given", async () => {
    await box.sandbox.writeFiles([{ path: "/tmp/rel/a.txt", content: "rel" }]);
    assert.equal((await box.sandbox.readFileToBuffer({ path: "a.txt", cwd: "/tmp/rel" })).toString(), "rel");
  });
});

// The content of the first member of a zip archive, from its directory entry.
function firstMember(zip) {
  const entry = zip.lastIndexOf(Buffer.from("PK\x01\x02", "latin1"));
  const start = zip.readUInt32LE(entry + 42);
  const data = start + 30 + zip.readUInt16LE(start + 26) + zip.readUInt16LE(start + 28);
  return inflateRawSync(zip.subarray(data, data + zip.readUInt32LE(entry + 20)));
}

describe("names", () => {
  const names = [
    "🤣.txt",
    "あああ/い.txt",
    "sp ace.txt",
    "100%25.txt",
    "a#b?c&d.txt",
    "q'\"uote.txt",
    "back\\slash.txt",
    "é.txt".normalize("NFC"),
    "é.txt".normalize("NFD"),
    "-rf",
    ".hidden",
    "new\nline.txt",
    "n".repeat(200),
  ];

  test("any name is written, listed and read as the bytes that it is", async () => {
    for (const name of names) await box.sandbox.writeFiles([{ path: `names/${name}`, content: name }]);
    const { stdout } = await python(
      box.sandbox,
      "import os\nfor d,_,fs in os.walk(b'names'):\n  for f in fs: print(os.path.relpath(os.path.join(d,f),b'names').hex())",
    );
    const hex = (name) => Buffer.from(name).toString("hex");
    assert.deepEqual(stdout.trim().split("\n").sort(), names.map(hex).sort());
    for (const name of names) assert.equal((await read(`names/${name}`)).toString(), name);
  });
});

describe("owners, modes and places", { concurrency: 3 }, () => {
  test("what is written belongs to the default user and has the mode that was asked for", async () => {
    await box.sandbox.writeFiles([
      { path: "deep/er/run.sh", content: "#!/bin/sh\necho ran\n", mode: 0o750 },
      { path: "/opt/by-api/x", content: "x" },
    ]);
    const { stdout } = await sh(box.sandbox, "stat -c '%a %u' deep/er/run.sh deep /opt/by-api/x; deep/er/run.sh");
    const [script, directory, outside, ran] = stdout.split("\n");
    assert.equal(script, "750 1000");
    assert.match(directory, / 1000$/);
    assert.match(outside, / 1000$/);
    assert.equal(ran, "ran");
  });

  test("a file is replaced whole: a reader sees the old one or the new one", async () => {
    const old = "o".repeat(2_000_000);
    const fresh = "n".repeat(2_000_000);
    await box.sandbox.writeFiles([{ path: "swap", content: old }]);
    const watch = await box.sandbox.runCommand({
      cmd: "python3",
      args: ["-u", "-c", "import time\nend=time.time()+20\nprint('go')\nwhile time.time()<end:\n  b=open('swap').read()\n  assert len(set(b))==1 and len(b)==2000000, (len(b), set(b))\n  if b[0]=='n': break"],
      detached: true,
    });
    for await (const item of watch.logs()) if (item.data.includes("go")) break;
    await box.sandbox.writeFiles([{ path: "swap", content: fresh }]);
    assert.equal((await watch.wait()).exitCode, 0, await watch.stderr());
  });

  test("a file over a directory, or below a file, is refused", async () => {
    await sh(box.sandbox, "mkdir -p isdir/full; touch isdir/full/x isfile");
    await rejectsWith(box.sandbox.writeFiles([{ path: "isdir", content: "x" }]), 400);
    await rejectsWith(box.sandbox.writeFiles([{ path: "isfile/below", content: "x" }]), 400);
    assert.equal((await sh(box.sandbox, "ls isdir/full; stat -c %F isfile")).stdout, "x\nregular empty file\n");
  });

  test("mkDir makes one directory, and refuses a taken path and a missing parent", async () => {
    await box.sandbox.mkDir("made");
    await box.sandbox.mkDir("/tmp/made");
    assert.equal((await sh(box.sandbox, "stat -c '%F %u' made /tmp/made")).stdout, "directory 1000\ndirectory 1000\n");
    await rejectsWith(box.sandbox.mkDir("made"), 400);
    await rejectsWith(box.sandbox.mkDir("no/parent/here"), 400);
  });

  test("absolute paths and paths with dots go where they say", async () => {
    await box.sandbox.writeFiles([{ path: "/tmp/a/../b/./c.txt", content: "c" }, { path: "../up.txt", content: "up" }]);
    assert.equal((await sh(box.sandbox, "cat /tmp/b/c.txt /vercel/up.txt")).stdout, "cup");
  });
});

describe("things that are not files", { concurrency: 3 }, () => {
  test("FIFOs, devices and directories are refused at once", async () => {
    await sh(box.sandbox, "mkfifo p; ln -s /dev/zero z");
    for (const path of ["p", "z", "/dev/zero", "/tmp", "/dev/null"]) {
      const answer = await within(5000, api("POST", sessionPath(box.sandbox, "/fs/read"), { body: { path, cwd: "/vercel/sandbox" } }), path);
      assertError(answer, 400);
    }
    await assert.rejects(within(5000, read("p")), (error) => error.response?.status === 400);
  });

  test("a file whose size is unknown is read to its end", async () => {
    assert.match((await read("/proc/version")).toString(), /Linux/);
  });

  test("writing over a FIFO does not wait for a reader", async () => {
    await sh(box.sandbox, "mkfifo wp");
    await within(5000, box.sandbox.writeFiles([{ path: "wp", content: "x" }]).catch((error) => assert.equal(error.response?.status, 400)));
    await box.sandbox.writeFiles([{ path: "normal", content: "n" }]);
    assert.equal((await read("normal")).toString(), "n");
    assert.equal((await box.sandbox.runCommand("true")).exitCode, 0);
  });
});

describe("node's file functions of the client", () => {
  test("write, append, list, stat, rename, link and remove work", async () => {
    const { fs } = box.sandbox;
    await fs.mkdir("fsdir/sub", { recursive: true });
    await fs.writeFile("fsdir/a", "one");
    await fs.appendFile("fsdir/a", "two");
    assert.equal(await fs.readFile("fsdir/a", "utf8"), "onetwo");
    await fs.symlink("a", "fsdir/l");
    assert.equal(await fs.readlink("fsdir/l"), "a");
    assert.equal(await fs.realpath("fsdir/l"), "/vercel/sandbox/fsdir/a");
    const entries = await fs.readdir("fsdir", { withFileTypes: true });
    const kinds = Object.fromEntries(entries.map((entry) => [entry.name, entry.isDirectory() ? "d" : entry.isSymbolicLink() ? "l" : "f"]));
    assert.deepEqual(kinds, { a: "f", sub: "d", l: "l" });
    await fs.chmod("fsdir/a", 0o600);
    const stat = await fs.stat("fsdir/a");
    assert.equal(stat.size, 6);
    assert.equal(stat.mode & 0o777, 0o600);
    assert.ok(stat.isFile());
    assert.ok(Math.abs(stat.mtimeMs - Date.now()) < 60_000);
    assert.ok((await fs.lstat("fsdir/l")).isSymbolicLink());
    await fs.rename("fsdir/a", "fsdir/b");
    await fs.truncate("fsdir/b", 3);
    await fs.copyFile("fsdir/b", "fsdir/c");
    assert.equal(await fs.readFile("fsdir/c", "utf8"), "one");
    assert.ok((await fs.mkdtemp("/tmp/t-")).startsWith("/tmp/t-"));
    await assert.rejects(fs.rmdir("fsdir"), { code: "ENOTEMPTY" });
    await fs.rm("fsdir", { recursive: true });
    assert.equal(await fs.exists("fsdir"), false);
    await assert.rejects(fs.readFile("fsdir/a"), { code: "ENOENT" });
    await assert.rejects(fs.stat("fsdir/a"), { code: "ENOENT" });
  });
});

describe("users and groups of the client", () => {
  test("a user has a private home, and a group shares a directory", async (t) => {
    const sandbox = await newSandbox(t);
    const alice = await sandbox.createUser("alice");
    await assert.rejects(sandbox.createUser("alice"), { name: "SandboxUserAlreadyExistsError" });
    const bob = await sandbox.createUser("bob");
    assert.equal((await finish(await alice.runCommand("whoami"))).stdout, "alice\n");
    await alice.writeFiles([{ path: "notes/hello.txt", content: "hi" }]);
    assert.equal((await alice.readFileToBuffer({ path: "notes/hello.txt" })).toString(), "hi");
    assert.notEqual((await bob.runCommand("cat", [`${alice.homeDir}/notes/hello.txt`])).exitCode, 0);
    const shared = await sandbox.createGroup("devs");
    await sandbox.addUserToGroup("alice", "devs");
    await sandbox.addUserToGroup("bob", "devs");
    await alice.runCommand("bash", ["-c", `umask 002; echo shared > ${shared.sharedDir}/f`]);
    assert.equal((await finish(await bob.runCommand("cat", [`${shared.sharedDir}/f`]))).stdout, "shared\n");
    await sandbox.removeUserFromGroup("bob", "devs");
    assert.notEqual((await bob.runCommand("cat", [`${shared.sharedDir}/f`])).exitCode, 0);
    const env = await finish(await alice.runCommand({ cmd: "bash", args: ["-c", "echo $X; pwd"], env: { X: "y" } }));
    assert.equal(env.stdout, `y\n${alice.homeDir}\n`);
  });
});
