// Every member of the client's users and groups, and of its file functions.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { before, describe, test } from "node:test";
import { FileSystem, SandboxUser, SandboxUserAlreadyExistsError } from "@vercel/sandbox";
import { finish, sh, sharedSandbox } from "./support/client.mjs";

const box = sharedSandbox();

describe("users", () => {
  let alice;
  before(async () => {
    alice = await box.sandbox.createUser("alice");
  });
  const as = async (script, more = {}) => finish(await alice.runCommand({ cmd: "bash", args: ["-c", script], ...more }));

  test("[Sandbox.getDefaultUser] is the user that commands run as", async () => {
    const { username, group } = await box.sandbox.getDefaultUser();
    assert.equal((await sh(box.sandbox, "id -un; id -gn")).stdout, `${username}\n${group}\n`);
  });
  test("[Sandbox.createUser, SandboxUser.username, SandboxUser.homeDir] has a home of its own", async () => {
    assert.ok(alice instanceof SandboxUser);
    assert.deepEqual([alice.username, alice.homeDir], ["alice", "/home/alice"]);
    assert.equal((await as("whoami; pwd")).stdout, "alice\n/home/alice\n");
  });
  test("[SandboxUserAlreadyExistsError.username] a name can be used once", async () => {
    await assert.rejects(box.sandbox.createUser("alice"), (error) => error instanceof SandboxUserAlreadyExistsError && error.username === "alice");
  });
  test("[Sandbox.asUser] acts as a user that is there, root too", async () => {
    assert.equal((await finish(await box.sandbox.asUser("root").runCommand("id", ["-u"]))).stdout, "0\n");
    assert.equal((await finish(await box.sandbox.asUser("alice").runCommand("whoami"))).stdout, "alice\n");
  });
  test("[SandboxUser.runCommand, SandboxUser.runCommand({args}), SandboxUser.runCommand({cwd}), SandboxUser.runCommand({env}), SandboxUser.runCommand({sudo})] runs as the user, and as root where asked", async () => {
    assert.equal((await as('echo "$A $PWD $(whoami)"', { cwd: "/tmp", env: { A: "b" } })).stdout, "b /tmp alice\n");
    assert.equal((await as("whoami", { sudo: true })).stdout, "root\n");
  });
  test("[SandboxUser.runCommand({stdout}), SandboxUser.runCommand({stderr})] streams of the caller get the output", async () => {
    const got = { stdout: "", stderr: "" };
    const into = (name) => new Writable({ write: (chunk, _, done) => ((got[name] += chunk), done()) });
    await as("echo out; echo err >&2", { stdout: into("stdout"), stderr: into("stderr") });
    assert.deepEqual(got, { stdout: "out\n", stderr: "err\n" });
  });
  test("[SandboxUser.runCommand({detached}), SandboxUser.runCommand({timeoutMs})] are as for the default user", async () => {
    const command = await alice.runCommand({ cmd: "sh", args: ["-c", "exit 4"], detached: true });
    assert.equal((await command.wait()).exitCode, 4);
    assert.equal((await alice.runCommand({ cmd: "sleep", args: ["60"], timeoutMs: 500 })).exitCode, 137);
  });
  test("[SandboxUser.mkDir, SandboxUser.writeFiles, SandboxUser.readFile, SandboxUser.readFile({cwd}), SandboxUser.readFileToBuffer, SandboxUser.readFileToBuffer({cwd})] belong to the user", async () => {
    await alice.mkDir("dir");
    await alice.writeFiles([{ path: "dir/f", content: "text", mode: 0o640 }]);
    assert.equal((await as("stat -c '%U %a' dir dir/f")).stdout.split("\n")[1], "alice 640");
    const chunks = [];
    for await (const chunk of await alice.readFile({ path: "f", cwd: "/home/alice/dir" })) chunks.push(chunk);
    assert.equal(Buffer.concat(chunks).toString(), "text");
    assert.equal((await alice.readFileToBuffer({ path: "f", cwd: "/home/alice/dir" })).toString(), "text");
    assert.equal(await alice.readFileToBuffer({ path: "missing" }), null);
  });
  test("[SandboxUser.downloadFile, SandboxUser.downloadFile({cwd}), SandboxUser.downloadFile({mkdirRecursive})] a file comes to this side", async (t) => {
    const here = await mkdtemp(join(tmpdir(), "download-"));
    t.after(() => rm(here, { recursive: true }));
    await as("mkdir -p d && printf downloaded > d/f");
    const path = await alice.downloadFile({ path: "f", cwd: "/home/alice/d" }, { path: "a/f", cwd: here }, { mkdirRecursive: true });
    assert.equal(await readFile(path, "utf8"), "downloaded");
  });
  test("[Sandbox.createGroup, Sandbox.addUserToGroup, Sandbox.removeUserFromGroup, SandboxUser.addToGroup, SandboxUser.removeFromGroup] a group shares a directory", async () => {
    const bob = await box.sandbox.createUser("bob");
    const { groupname, sharedDir } = await box.sandbox.createGroup("devs");
    assert.equal(groupname, "devs");
    await box.sandbox.addUserToGroup("alice", "devs");
    await bob.addToGroup("devs");
    assert.equal((await as(`umask 002; echo shared > ${sharedDir}/f`)).exitCode, 0);
    assert.equal((await finish(await bob.runCommand("cat", [`${sharedDir}/f`]))).stdout, "shared\n");
    await bob.removeFromGroup("devs");
    assert.notEqual((await bob.runCommand("cat", [`${sharedDir}/f`])).exitCode, 0);
    await box.sandbox.removeUserFromGroup("alice", "devs");
    assert.notEqual((await as(`cat ${sharedDir}/f`)).exitCode, 0);
  });
});

describe("file functions", { concurrency: 4 }, () => {
  const fs = () => box.sandbox.fs;
  const made = async (name, script) => {
    assert.equal((await sh(box.sandbox, `mkdir -p /tmp/${name} && cd /tmp/${name} && ${script}`)).exitCode, 0);
    return (rest = "") => `/tmp/${name}/${rest}`;
  };

  test("[FileSystem.writeFile, FileSystem.appendFile, FileSystem.readFile, FileSystem.readFile({encoding})] strings and bytes", async () => {
    assert.ok(fs() instanceof FileSystem);
    const at = await made("write", "true");
    await fs().writeFile(at("f"), "one");
    await fs().appendFile(at("f"), Buffer.from("two"));
    assert.deepEqual(await fs().readFile(at("f")), Buffer.from("onetwo"));
    assert.equal(await fs().readFile(at("f"), { encoding: "hex" }), Buffer.from("onetwo").toString("hex"));
    await fs().writeFile(at("f"), "0aff", { encoding: "hex" });
    assert.deepEqual(await fs().readFile(at("f")), Buffer.from([10, 255]));
    await assert.rejects(fs().readFile(at("missing")), { code: "ENOENT" });
  });
  test("[FileSystem.mkdir, FileSystem.mkdir({recursive}), FileSystem.rmdir] directories come and go", async () => {
    const at = await made("mkdir", "true");
    await fs().mkdir(at("a"));
    await fs().mkdir(at("b/c/d"), { recursive: true });
    await assert.rejects(fs().rmdir(at("b")), { code: "ENOTEMPTY" });
    await fs().rmdir(at("a"));
    assert.equal((await sh(box.sandbox, `find ${at()} -mindepth 1 -printf '%P '`)).stdout, "b b/c b/c/d ");
  });
  test("[FileSystem.readdir, FileSystem.readdir({withFileTypes})] names and kinds", async () => {
    const at = await made("readdir", "mkdir d && touch f 'a name' && ln -s f l && mkfifo p");
    assert.deepEqual((await fs().readdir(at())).sort(), ["a name", "d", "f", "l", "p"]);
    const kinds = Object.fromEntries((await fs().readdir(at(), { withFileTypes: true })).map((entry) => [entry.name, entry.isDirectory() ? "d" : entry.isSymbolicLink() ? "l" : entry.isFIFO() ? "p" : "f"]));
    assert.deepEqual(kinds, { "a name": "f", d: "d", f: "f", l: "l", p: "p" });
  });
  test("[FileSystem.stat, FileSystem.lstat] tell size, mode, owner and times, of a link itself too", async () => {
    const at = await made("stat", "printf 12345 > f && chmod 4750 f && ln -s f l");
    const stat = await fs().stat(at("l"));
    assert.deepEqual([stat.size, stat.mode & 0o7777, stat.isFile(), stat.uid], [5, 0o4750, true, 1000]);
    assert.ok(Math.abs(stat.mtimeMs - Date.now()) < 60_000);
    assert.ok((await fs().lstat(at("l"))).isSymbolicLink());
    await assert.rejects(fs().stat(at("missing")), { code: "ENOENT" });
  });
  test("[FileSystem.unlink, FileSystem.rm, FileSystem.rm({recursive}), FileSystem.rm({force})] remove", async () => {
    const at = await made("rm", "touch a b && mkdir -p d/e");
    await fs().unlink(at("a"));
    await fs().rm(at("b"));
    await fs().rm(at("d"), { recursive: true });
    await fs().rm(at("missing"), { force: true });
    await assert.rejects(fs().rm(at("missing")), { code: "ENOENT" });
    assert.deepEqual(await fs().readdir(at()), []);
  });
  test("[FileSystem.rename, FileSystem.copyFile, FileSystem.truncate] move, copy and cut", async () => {
    const at = await made("rename", "printf 12345 > a");
    await fs().rename(at("a"), at("b"));
    await fs().copyFile(at("b"), at("c"));
    await fs().truncate(at("b"), 2);
    await fs().truncate(at("c"));
    assert.deepEqual([await fs().readFile(at("b"), "utf8"), await fs().readFile(at("c"), "utf8")], ["12", ""]);
    await assert.rejects(fs().rename(at("missing"), at("x")), { code: "ENOENT" });
  });
  test("[FileSystem.access, FileSystem.exists] tell whether it is there", async () => {
    const at = await made("access", "touch f");
    await fs().access(at("f"));
    await assert.rejects(fs().access(at("missing")), { code: "ENOENT" });
    assert.deepEqual([await fs().exists(at("f")), await fs().exists(at("missing"))], [true, false]);
  });
  test("[FileSystem.chmod, FileSystem.chown] change mode and owner", async () => {
    const at = await made("chmod", "touch f");
    await fs().chmod(at("f"), 0o604);
    assert.equal((await sh(box.sandbox, `stat -c %a ${at("f")}`)).stdout, "604\n");
    await fs().chown(at("f"), 1000, 1000);
    await assert.rejects(fs().chown(at("f"), 0, 0), { code: "EACCES" }); // the client's word for what is not permitted
  });
  test("[FileSystem.symlink, FileSystem.readlink, FileSystem.realpath] links are made and read", async () => {
    const at = await made("links", "touch f");
    await fs().symlink("f", at("l"));
    assert.equal(await fs().readlink(at("l")), "f");
    assert.equal(await fs().realpath(at("l")), at("f"));
  });
  test("[FileSystem.mkdtemp] a new directory each time", async () => {
    const [one, two] = [await fs().mkdtemp("/tmp/t-"), await fs().mkdtemp("/tmp/t-")];
    assert.match(one, /^\/tmp\/t-.{6}$/);
    assert.notEqual(one, two);
    assert.ok((await fs().stat(two)).isDirectory());
  });
});
