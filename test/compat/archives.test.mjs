// Uploads as archives: long names, damaged ones, hostile ones.

import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { SERVER, SMALL_DISK, TOKEN, api, assertError, eventually, newSandbox, noise, sessionPath, sh, sharedSandbox, within } from "./support/client.mjs";
import { tar, tarEnd, tarGz, tarHeader } from "./support/tar.mjs";

const box = sharedSandbox();

/** Uploads raw bytes below `dir`. */
function upload(sandbox, dir, body) {
  const headers = { "content-type": "application/gzip", "x-cwd": dir };
  return api("POST", sessionPath(sandbox, "/fs/write"), { body, headers });
}

describe("names in archives", () => {
  test("names around the limits of the format arrive whole", async () => {
    const paths = [
      `./${"0".repeat(26)}/${"0".repeat(13)}${"哈".repeat(8)}/00000/${"0".repeat(15)}/00`,
      `${"哈".repeat(33)}a.txt`,
      ...[99, 100, 101, 155].map((length) => "a".repeat(length)),
      `${"d".repeat(60)}/${"e".repeat(60)}/${"f".repeat(60)}/x.txt`,
      Array.from({ length: 10 }, (_, i) => String(i).repeat(99)).join("/"),
    ];
    await box.sandbox.writeFiles(paths.map((path) => ({ path: `tar/${path}`, content: path })));
    for (const path of paths) assert.equal((await box.sandbox.readFileToBuffer({ path: `tar/${path}` }))?.toString(), path);
    const { stdout } = await sh(box.sandbox, "find tar -type f | wc -l; find tar -name '*PaxHeader*' | wc -l");
    assert.equal(stdout, `${paths.length}\n0\n`);
  });
});

describe("damaged archives", { concurrency: 3 }, () => {
  const whole = tarGz([{ name: "whole.txt", content: noise(200_000) }]);
  const wrongSum = Buffer.from(whole);
  wrongSum[wrongSum.length - 6] ^= 0xff;
  const cutInside = gzipSync(tar([{ name: "cut.txt", content: noise(200_000) }]).subarray(0, 100_000));
  const damaged = {
    "cut in the middle of the compressed stream": whole.subarray(0, whole.length / 2),
    "cut in the middle of a file": cutInside,
    "with a wrong checksum": wrongSum,
    "not compressed": tar([{ name: "whole.txt", content: "x" }]),
    "not an archive at all": Buffer.from("this is no archive"),
    empty: Buffer.alloc(0),
    "compressed noise": gzipSync(noise(5000)),
  };
  for (const [what, body] of Object.entries(damaged)) {
    test(`an upload that is ${what} is refused and leaves no file`, async () => {
      const dir = `/tmp/damaged-${what.replaceAll(" ", "-")}`;
      await sh(box.sandbox, `mkdir ${dir}`);
      assertError(await within(10_000, upload(box.sandbox, dir, body), "the answer"), 400);
      assert.equal((await sh(box.sandbox, `find ${dir} -mindepth 1`)).stdout, "");
    });
  }

  test("two compressed pieces in a row are one archive", async () => {
    const archive = tar([
      { name: "first", content: "1" },
      { name: "second", content: "2" },
    ]);
    const body = Buffer.concat([gzipSync(archive.subarray(0, 1024)), gzipSync(archive.subarray(1024))]);
    assert.equal((await upload(box.sandbox, "/tmp/pieces", body)).status, 200);
    assert.equal((await sh(box.sandbox, "cat /tmp/pieces/first /tmp/pieces/second")).stdout, "12");
  });

  test("a client that goes away in the middle leaves nothing behind", async () => {
    await sh(box.sandbox, "mkdir /tmp/gone");
    const body = tarGz([{ name: "half.bin", content: noise(8_000_000) }]);
    const { hostname, port } = new URL(SERVER);
    const socket = connect(Number(port), hostname);
    socket.on("error", () => {});
    const head = [
      `POST ${sessionPath(box.sandbox, "/fs/write")} HTTP/1.1`,
      `Host: ${hostname}:${port}`,
      `Authorization: Bearer ${TOKEN}`,
      "Content-Type: application/gzip",
      "X-Cwd: /tmp/gone",
      `Content-Length: ${body.length}`,
    ].join("\r\n");
    socket.write(`${head}\r\n\r\n`);
    await new Promise((resolve) => socket.write(body.subarray(0, body.length / 2), resolve));
    socket.destroy();
    await eventually(async () => (await sh(box.sandbox, "find /tmp/gone -mindepth 1")).stdout === "", { what: "an empty directory" });
    assert.equal((await box.sandbox.readFileToBuffer({ path: "/tmp/gone/half.bin" })), null);
  });
});

describe("hostile archives", { concurrency: 3 }, () => {
  test("ten gigabytes of zeros in ten megabytes are stopped by a limit", { skip: SMALL_DISK }, async (t) => {
    const sandbox = await newSandbox(t);
    const zeros = gzipSync(Buffer.alloc(64 << 20), { level: 9 });
    const size = 160 * (64 << 20);
    const body = Buffer.concat([gzipSync(tarHeader({ name: "bomb", size })), ...Array(160).fill(zeros), gzipSync(tarEnd())]);
    const answer = await within(120_000, upload(sandbox, "/tmp", body), "the answer");
    const stored = await sandbox.readFile({ path: "/tmp/bomb" });
    assertError(answer, 400);
    assert.equal(stored, null);
    assert.equal((await sh(sandbox, "rm -f /tmp/bomb; echo ok > /tmp/after; cat /tmp/after")).stdout, "ok\n");
  });

  test("names that climb stay inside the sandbox, and links are not followed out of it", async () => {
    const body = tarGz([
      { name: "../../../../../../tmp/climbed", content: "x" },
      { name: "link", type: "2", linkname: "/etc" },
      { name: "link/through", content: "y" },
    ]);
    const answer = await upload(box.sandbox, "/tmp/hostile", body);
    assert.ok(answer.status === 200 || answer.status === 400, answer.text);
    assert.equal((await sh(box.sandbox, "echo ok")).stdout, "ok\n");
  });
});
