import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, beforeEach, test } from "node:test";
import { createFetch, domain } from "./index.mjs";
import { placeholderToken } from "./lib/identity.mjs";
import { parseBase } from "./lib/settings.mjs";
import { startFakeServer } from "./testdata/server.mjs";

const API = "https://vercel.com/api";
let server;

before(async () => {
  server = await startFakeServer();
});
after(() => server.close());
beforeEach(() => {
  server.requests.length = 0;
});

const client = (options) => createFetch({ url: server.url, token: "ours", ...options });

test("an API request reaches the server with path, query, method and body", async () => {
  const response = await client()(`${API}/v2/sandboxes/sessions/se_1/cmd?teamId=t`, {
    method: "POST",
    body: '{"command":"true"}',
    headers: { Authorization: "Bearer own", "content-type": "application/json" },
  });
  assert.equal(response.status, 200);
  const [seen] = server.requests;
  assert.equal(seen.method, "POST");
  assert.equal(seen.url, "/v2/sandboxes/sessions/se_1/cmd?teamId=t");
  assert.equal(seen.body, '{"command":"true"}');
  assert.equal(seen.headers["content-type"], "application/json");
  assert.equal(seen.headers.authorization, "Bearer own");
});

test("a path of the server's address is kept in front", async () => {
  await client({ url: `${server.url}/glovebox/` })(`${API}/v3/sandboxes`, { method: "POST" });
  assert.equal(server.requests[0].url, "/glovebox/v3/sandboxes");
});

test("URL and Request objects are taken too, and a Request keeps its body", async () => {
  const fetch = client();
  await fetch(new URL(`${API}/v2/sandboxes?limit=1`));
  await fetch(new Request(`${API}/v2/sandboxes/x`, { method: "PATCH", body: "{}", headers: { "x-own": "1" } }));
  assert.equal(server.requests[0].url, "/v2/sandboxes?limit=1");
  assert.equal(server.requests[1].method, "PATCH");
  assert.equal(server.requests[1].body, "{}");
  assert.equal(server.requests[1].headers["x-own"], "1");
});

test("every other request passes through as it was given", async () => {
  const passed = [];
  const fetch = client({
    fetch: async (...args) => {
      passed.push(args);
      return new Response("{}");
    },
  });
  const init = { method: "POST", headers: { authorization: "Bearer x" } };
  const others = [
    "https://api.vercel.com/v2/teams",
    "https://vercel.com/api/v2/projects",
    "https://vercel.com/api/v2/sandboxesque",
    "https://vercel.com.example.org/api/v2/sandboxes",
    "http://vercel.com/api/v2/sandboxes",
    "https://example.org/health",
    "/relative",
  ];
  for (const url of others) await fetch(url, init);
  assert.deepEqual(passed, others.map((url) => [url, init]));
  assert.equal(passed[0][1], init, "the very same object");
});

test("other calls at the client's API base are ours only with a token of ours", async () => {
  const passed = [];
  const fetch = client({
    fetch: async (input) => {
      passed.push(String(input));
      return new Response("{}");
    },
  });
  for (const token of ["ours", "gbx_other", "theirs"]) {
    await fetch(`${API}/v2/user?x=1`, { headers: { Authorization: `Bearer ${token}` } });
  }
  assert.deepEqual(passed, [`${server.url}/v2/user?x=1`, `${server.url}/v2/user?x=1`, `${API}/v2/user?x=1`]);
});

test("our token replaces identities of the platform and no other token", async () => {
  const fetch = client();
  const send = async (authorization) => {
    await fetch(`${API}/v2/sandboxes`, { headers: authorization ? { authorization } : {} });
    return server.requests.at(-1).headers.authorization;
  };
  assert.equal(await send(undefined), "Bearer ours");
  assert.equal(await send(`Bearer ${placeholderToken("team", "project")}`), "Bearer ours");
  assert.equal(await send("Bearer token-of-a-project"), "Bearer token-of-a-project");
  assert.equal(await send("Bearer a.b.c"), "Bearer a.b.c");
  process.env.VERCEL_TOKEN = "real-one";
  try {
    assert.equal(await send("Bearer real-one"), "Bearer ours");
  } finally {
    delete process.env.VERCEL_TOKEN;
  }
});

test("answers stream, and an abort ends the request at the server", async () => {
  const controller = new AbortController();
  const response = await client()(`${API}/v2/sandboxes/sessions/s/cmd/c/logs`, { signal: controller.signal });
  const reader = response.body.getReader();
  const { value } = await reader.read();
  assert.equal(Buffer.from(value).toString(), '{"stream":"stdout","data":"first"}\n');
  const closed = once(server.requests[0].socket, "close");
  controller.abort();
  await assert.rejects(reader.read(), { name: "AbortError" });
  await closed;
});

test("the health of a shell's host is asked of the server, once the host is known", async () => {
  const passed = [];
  const fetch = client({
    fetch: async (input, init) => {
      passed.push(String(input));
      return String(input).startsWith(server.url) ? globalThis.fetch(input, init) : new Response("");
    },
  });
  await fetch("https://shell.localhost/health");
  assert.equal(passed.at(-1), "https://shell.localhost/health");
  const answer = await fetch(`${API}/v2/sandboxes/sessions/s/interactive`, { method: "POST", body: "{}" });
  assert.equal((await answer.json()).token, "once");
  assert.equal((await fetch("https://shell.localhost/health")).status, 200);
  assert.equal(passed.at(-1), `${server.url}/healthz`);
  await fetch("https://shell.localhost/other");
  assert.equal(passed.at(-1), "https://shell.localhost/other");
});

test("a wrong server address is refused and named", () => {
  for (const value of ["127.0.0.1:7777", "nonsense", "ftp://x", "http://user:pw@x", "http://x/?q=1"]) {
    assert.throws(() => parseBase(value, "GLOVEBOX_URL"), /GLOVEBOX_URL/);
  }
});

test("domain answers the route's own address", () => {
  const sandbox = { routes: [{ port: 3000, subdomain: "abc", url: "http://abc.localhost:7777" }] };
  assert.equal(domain(sandbox, 3000), "http://abc.localhost:7777");
  assert.throws(() => domain(sandbox, 1), /no route for port 1/);
});
