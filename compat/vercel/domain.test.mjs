import assert from "node:assert/strict";
import { test } from "node:test";
import { rewriteDomain } from "./lib/domain.mjs";

const AS_PUBLISHED = "if (route) return `https://${route.subdomain}.vercel.run`;";

test("the address of a route replaces the built one, in text and bytes, minified or not", () => {
  assert.equal(rewriteDomain(AS_PUBLISHED), "if (route) return  route.url;");
  assert.equal(rewriteDomain(Buffer.from(AS_PUBLISHED)), "if (route) return  route.url;");
  assert.equal(rewriteDomain(new TextEncoder().encode(AS_PUBLISHED).buffer), "if (route) return  route.url;");
  assert.equal(rewriteDomain("return`https://${ $e.subdomain }.vercel.run`"), "return $e.url");
  assert.equal(rewriteDomain('x="https://".concat(e.subdomain,".vercel.run")'), "x=e.url");
});

test("a source without the expression is handed back as it is", () => {
  const bytes = Buffer.from("export const a = '.vercel.runner'.length");
  assert.equal(rewriteDomain(bytes.toString()), bytes.toString());
  const plain = Buffer.from("export {}");
  assert.equal(rewriteDomain(plain), plain);
  assert.equal(rewriteDomain(null), null);
  assert.equal(rewriteDomain(undefined), undefined);
});
