// sandbox.domain(port) builds an address of the platform out of a route's
// subdomain, while the route itself holds the address that our server gave.
// The expression is replaced when a module that holds it is loaded,
// whether the client is used as installed or inside a bundle.

import { holdsIssuer, replaceIssuer } from "./issuer.mjs";

const MARK = ".vercel.run";
const TEMPLATE = /`https:\/\/\$\{\s*([\w$]+)\.subdomain\s*\}\.vercel\.run`/g;
const CONCAT = /(["'])https:\/\/\1\.concat\(([\w$]+)\.subdomain,\s*(["'])\.vercel\.run\3\)/g;

/**
 * The source with the expression replaced, or the very same value where
 * there is none. Takes what a loader gives: text, bytes or nothing.
 */
export function rewriteDomain(source) {
  if (source === null || source === undefined) return source;
  if (typeof source === "string") return holds(source) ? replace(source) : source;
  const bytes = ArrayBuffer.isView(source)
    ? Buffer.from(source.buffer, source.byteOffset, source.byteLength)
    : Buffer.from(source);
  return holds(bytes) ? replace(bytes.toString("utf8")) : source;
}

function holds(source) {
  return source.includes(MARK) || holdsIssuer(source);
}

function replace(text) {
  // The space keeps a keyword before a template literal apart from the name.
  return replaceIssuer(text.replace(TEMPLATE, " $1.url").replace(CONCAT, "$2.url"));
}

/** Loader hook for module.register; runs in the loader's own thread. */
export async function load(url, context, nextLoad) {
  return rewritten(await nextLoad(url, context));
}

/** Loader hook for module.registerHooks; runs in the program's thread. */
export function loadSync(url, context, nextLoad) {
  return rewritten(nextLoad(url, context));
}

function rewritten(result) {
  const source = rewriteDomain(result.source);
  return source === result.source ? result : { ...result, source };
}
