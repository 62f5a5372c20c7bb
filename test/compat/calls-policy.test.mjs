// The network policies that the client can express. How they act is in
// internal/egress and internal/netstack, whose tests have a network.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Sandbox, defineSandboxProxy } from "@vercel/sandbox";
import { newSandbox, sh, sharedSandbox } from "./support/client.mjs";

const box = sharedSandbox();
const FORMS = ["exact", "startsWith", "regex"].map((form) => `NetworkPolicyMatcher.${form}`);
const MATCHES = ["path", "method", "queryString", "headers"].map((part) => `NetworkPolicyMatch.${part}`);
const RULES = ["NetworkPolicyRule.match", "NetworkPolicyRule.transform", "NetworkTransformer.headers", "NetworkPolicyRule.forwardURL", "NetworkPolicyRule.response", "NetworkPolicyKeyValueMatcher.key", "NetworkPolicyKeyValueMatcher.value"];
const META = ["host", "projectId", "sandboxId", "sandboxName", "teamId"].map((part) => `ProxyMeta.${part}`);

describe("policies", () => {
  test("[NetworkPolicy.allow] a name that is not in it does not resolve", async () => {
    await box.sandbox.updateNetworkPolicy({ allow: ["example.com", "*.example.org"] });
    assert.deepEqual(box.sandbox.currentSession().networkPolicy, { allow: ["example.com", "*.example.org"] });
    assert.match((await sh(box.sandbox, "curl -sS -m 10 http://example.net 2>&1")).stdout, /resolve/i);
  });
  test("[NetworkPolicy.subnets] an address that is not allowed, or denied, is refused at once", async () => {
    const policy = { allow: ["*"], subnets: { allow: ["192.0.2.0/24"], deny: ["192.0.2.128/25"] } };
    await box.sandbox.updateNetworkPolicy(policy);
    assert.deepEqual(box.sandbox.currentSession().networkPolicy, policy);
    assert.match((await sh(box.sandbox, "curl -sS -m 10 http://192.0.2.200 2>&1")).stdout, /refused|connect/i);
  });
});

const everything = {
  path: { startsWith: "/v1/" },
  method: ["POST"],
  queryString: [{ key: { exact: "q" }, value: { regex: "^[0-9]+$" } }],
  headers: [{ key: { exact: "x-kind" }, value: { exact: "test" } }],
};

describe("rules", () => {
  test(`[${[...RULES, ...FORMS, ...MATCHES].join(", ")}] are taken, and shown without the values of headers`, async (t) => {
    const sandbox = await newSandbox(t, {
      networkPolicy: {
        allow: {
          "api.example.com": [{ match: everything, transform: [{ headers: { authorization: "Bearer secret" } }] }],
          "proxied.example.com": [{ match: { path: { exact: "/a" } }, forwardURL: "https://proxy.example.net/" }],
          "answered.example.com": [{ response: { statusCode: 418, body: "short", contentType: "text/plain" } }],
        },
      },
    });
    const shown = JSON.stringify((await Sandbox.get({ name: sandbox.name })).networkPolicy);
    assert.doesNotMatch(shown, /secret/);
    for (const part of ["authorization", "/v1/", "^[0-9]+$", "x-kind", "https://proxy.example.net/"]) assert.ok(shown.includes(part), `${part} in ${shown}`);
  });
});

// That it takes a forwarded request is in outside/rules.test.mjs, where there is
// one.
describe("the client's proxy", () => {
  test(`[defineSandboxProxy, ${META.join(", ")}] differs: with compat/vercel it takes tokens of this server's issuer, and refuses all others`, async () => {
    const proxy = defineSandboxProxy(() => assert.fail("handled"), (_, error) => new Response(error.message, { status: 403 }));
    const token = [{ alg: "RS256" }, { iss: "https://issuer.example" }, ""].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
    const headers = { "vercel-forwarded-host": "a.example", "vercel-forwarded-scheme": "https", "vercel-forwarded-port": "443", "vercel-forwarded-path": "/", "vercel-sandbox-oidc-token": token };
    const answer = await proxy(new Request("http://proxy.example/", { headers }));
    assert.equal(answer.status, 403);
    assert.match(await answer.text(), /issuer/);
  });
});
