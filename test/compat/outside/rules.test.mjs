// Rules for requests, through the published client and the programs that
// people use: what they set, answer and refuse.

import assert from "node:assert/strict";
import { Sandbox } from "@vercel/sandbox";
import { defineSandboxProxy } from "@vercel/sandbox/proxy";
import { describe, test } from "node:test";
import { api, newSandbox, rejectsWith, sessionPath, sh, sharedSandbox, uniqueName } from "../support/client.mjs";

const SECRET = "s3cret";
const basic = `Basic ${Buffer.from(`x:${SECRET}`).toString("base64")}`;
const policy = {
  allow: {
    "api.test": [
      { match: { path: { startsWith: "/echo/" }, method: ["GET", "POST"] }, transform: [{ headers: { authorization: `Bearer ${SECRET}` } }] },
      { match: { path: { startsWith: "/repo.git/" } }, transform: [{ headers: { authorization: basic } }] },
      { match: { path: { startsWith: "/redirect/" } }, transform: [{ headers: { authorization: `Bearer ${SECRET}` } }] },
      { response: { statusCode: 403, contentType: "text/plain", body: "not for you" } },
    ],
    "other.test": [],
  },
};

const bearer = `"Authorization":["Bearer ${SECRET}"]`;
const clients = {
  "curl over HTTP/2": { run: "curl -sS https://api.test/echo/x", proto: "HTTP/2.0" },
  "curl over HTTP/1.1": { run: "curl -sS --http1.1 https://api.test/echo/x" },
  "curl without TLS": { run: "curl -sS http://api.test/echo/x" },
  "Python's urllib": { run: `python3 -c 'import urllib.request as u; print(u.urlopen("https://api.test/echo/x").read().decode())'` },
  "Python's ssl by its defaults": {
    run: `python3 -c 'import http.client as h; c = h.HTTPSConnection("api.test"); c.request("GET", "/echo/x"); print(c.getresponse().read().decode())'`,
  },
  "pip's requests": {
    run: `python3 -c 'from pip._vendor import requests; print(requests.get("https://api.test/echo/x").text)'`,
  },
  "Node's fetch": { run: `node -e 'fetch("https://api.test/echo/x").then((r) => r.text()).then(console.log)'` },
};

describe("a sandbox with rules", () => {
  const box = sharedSandbox({ networkPolicy: policy });

  for (const [name, { run, proto }] of Object.entries(clients)) {
    test(`${name} trusts the CA and gets its header`, async () => {
      const { stdout, stderr, exitCode } = await sh(box.sandbox, run);
      assert.equal(exitCode, 0, stderr);
      assert.ok(stdout.includes(bearer), stdout);
      if (proto) assert.ok(stdout.includes('"uri":"/echo/x"'), stdout);
    });
  }

  test("git gets its password", async () => {
    const { stdout, stderr, exitCode } = await sh(box.sandbox, "git ls-remote https://api.test/repo.git");
    assert.equal(exitCode, 0, stderr);
    assert.match(stdout, /refs\/heads\/main/);
  });

  test("what no earlier rule takes is answered by the last", async () => {
    for (const url of ["https://api.test/", "https://api.test/echo/../x", "https://api.test/echo/%2e%2e/x", "http://api.test/"]) {
      const { stdout } = await sh(box.sandbox, `curl -sS --path-as-is -w ' %{http_code}' '${url}'`);
      assert.equal(stdout, "not for you 403", url);
    }
    const { stdout } = await sh(box.sandbox, "curl -sS --path-as-is -w ' %{http_code}' https://api.test/echo/..%2fx");
    assert.match(stdout, /^glovebox: refused .*allow api\.test.* 403$/s);
  });

  test("a guest reaches no other name by an opened connection", async () => {
    const host = await sh(box.sandbox, "curl -sS -w ' %{http_code}' -H 'Host: forbidden.test' https://api.test/echo/x");
    assert.match(host.stdout, /^glovebox: .*forbidden\.test.* 421$/s);
    const plain = await sh(box.sandbox, "curl -sS -w ' %{http_code}' -H 'Host: forbidden.test' http://other.test/");
    assert.match(plain.stdout, /^glovebox: .*forbidden\.test.* 403$/s);
    const sni = await sh(box.sandbox, "curl -sSk --connect-to forbidden.test:443:api.test:443 https://forbidden.test/");
    assert.notEqual(sni.exitCode, 0);
  });

  test("a redirect takes no secret along", async () => {
    const { stdout, stderr } = await sh(box.sandbox, "curl -sSkL https://api.test/redirect/other.test/echo/y");
    assert.match(stdout, /"host":"other\.test"/, stderr);
    assert.ok(!stdout.includes(SECRET), stdout);
  });

  test("names without rules keep their own certificate", async () => {
    const { stdout } = await sh(box.sandbox, "curl -sSkv https://other.test/ 2>&1 | grep -i issuer");
    assert.match(stdout, /outside/);
  });

  test("the secret is in no answer, file or variable", async () => {
    const answer = await api("GET", sessionPath(box.sandbox));
    assert.equal(answer.status, 200);
    assert.ok(!answer.text.includes(SECRET), answer.text);
    assert.deepEqual(answer.json.session.networkPolicy.injectionRules[0].headerNames, ["authorization"]);
    assert.equal(answer.json.session.networkPolicy.responseRules[0].response.statusCode, 403);
    const log = await api("GET", sessionPath(box.sandbox, "/network-log"));
    assert.ok(log.text.includes("/echo/x") && !log.text.includes(SECRET), log.text.slice(0, 2000));
    const { stdout } = await sh(box.sandbox, `env; sudo grep -rls ${SECRET} /etc /usr/local/share /run /tmp || true`);
    assert.ok(!stdout.includes(SECRET) && !stdout.includes("/tmp/"), stdout);
  });

  test("the user's own variables win", async () => {
    const { stdout } = await sh(box.sandbox, "echo $SSL_CERT_FILE $CURL_CA_BUNDLE $NODE_EXTRA_CA_CERTS", { env: { CURL_CA_BUNDLE: "/mine" } });
    assert.match(stdout, /^\/etc\/\S+ \/mine \/usr\/local\/share\/ca-certificates\/glovebox\.crt\n$/);
  });
});

test("rules that a live update brings", async (t) => {
  const sandbox = await newSandbox(t, { networkPolicy: { allow: ["api.test"] } });
  assert.equal((await sh(sandbox, "test -e /usr/local/share/ca-certificates/glovebox.crt")).exitCode, 1);
  await sandbox.update({ networkPolicy: policy });
  const { stdout, stderr } = await sh(sandbox, "curl -sS https://api.test/echo/x");
  assert.ok(stdout.includes(bearer), stderr);
  await rejectsWith(sandbox.update({ networkPolicy: { allow: { "api.test": [{ match: { path: { regex: "(" } }, transform: [] }] } } }), 400, /allow\["api\.test"\]\[0\]\.match\.path\.regex/);
  assert.ok((await sh(sandbox, "curl -sS https://api.test/echo/x")).stdout.includes(bearer), "the old policy stays in force");
});

test("a persistent sandbox keeps its rules, and its bundle does not grow", async (t) => {
  const name = uniqueName();
  let sandbox = await Sandbox.create({ name, networkPolicy: policy });
  t.after(() => sandbox.delete());
  const count = () => sh(sandbox, "touch /vercel/sandbox/f; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; curl -sS https://api.test/echo/x");
  const first = (await count()).stdout.split("\n");
  for (let i = 0; i < 2; i++) {
    await sandbox.stop();
    sandbox = await Sandbox.get({ name, resume: true });
    const { stdout, stderr } = await count();
    assert.equal(stdout.split("\n")[0], first[0]);
    assert.ok(stdout.includes(bearer), stdout + stderr);
  }
});

test("forwarded requests are what defineSandboxProxy takes", async (t) => {
  const networkPolicy = { allow: { "api.test": [{ forwardURL: "https://proxy.test/echo" }] } };
  const sandbox = await newSandbox(t, { networkPolicy });
  const { stdout, stderr } = await sh(sandbox, "curl -sS -X POST -d hello 'https://api.test/a/b?q=1'");
  const got = JSON.parse(stdout || stderr);
  assert.equal(got.host, "proxy.test");
  const request = (headers) => new Request(`https://${got.host}${got.uri}`, { method: got.method, headers, body: got.body });
  const seen = [];
  const proxy = defineSandboxProxy(async (original, meta) => {
    seen.push({ url: original.url, body: await original.text(), meta });
    return new Response("taken");
  });
  const headers = new Headers(Object.entries(got.headers).map(([k, v]) => [k, v[0]]));
  assert.equal(await (await proxy(request(headers))).text(), "taken");
  assert.equal(seen[0].url, "https://api.test/a/b?q=1");
  assert.equal(seen[0].body, "hello");
  assert.equal(seen[0].meta.sandboxName, sandbox.name);
  assert.equal(seen[0].meta.projectId, "default");
  // Neither for another address, nor when it was changed.
  const elsewhere = new Request(`https://evil.test${got.uri}`, { method: got.method, headers, body: got.body });
  assert.equal((await proxy(elsewhere)).status, 403);
  const token = headers.get("vercel-sandbox-oidc-token");
  headers.set("vercel-sandbox-oidc-token", `${token.slice(0, -8)}AAAAAAAA`);
  assert.equal((await proxy(request(headers))).status, 403);
  assert.equal(seen.length, 1);
});
