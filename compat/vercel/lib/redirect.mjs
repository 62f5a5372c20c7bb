// Sends the client's API requests, and nothing else, to our server.

import { authorizationFor, isOurToken } from "./identity.mjs";

const API_ORIGIN = "https://vercel.com";
const API_PATH = /^\/api(\/v\d+\/.*)$/;
const SANDBOX_PATH = /^\/v\d+\/sandboxes(\/|$)/;
const INTERACTIVE_PATH = /\/interactive$/;

/**
 * Wraps `rawFetch`. Calls about sandboxes at the client's API base go to
 * `settings.base`, and so does every other call there that carries a token of
 * ours, which is nobody else's business. The rest passes through untouched.
 * @param {typeof fetch} rawFetch
 * @param {{base: URL, token?: string}} settings
 */
export function redirectingFetch(rawFetch, settings) {
  const shells = new Set();

  async function fetch(input, init) {
    const url = urlOf(input);
    if (url && isShellHealth(url, shells)) {
      return rawFetch(new URL(`${basePath(settings.base)}/healthz`, settings.base), init);
    }
    const path = url && apiPath(url);
    if (!path) return rawFetch(input, init);
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    if (!SANDBOX_PATH.test(path) && !isOurToken(headers.get("authorization"), settings)) return rawFetch(input, init);
    const target = new URL(basePath(settings.base) + path + url.search, settings.base);
    const response = await rawFetch(...rewrite(input, init, target, headers, settings));
    if (INTERACTIVE_PATH.test(target.pathname) && response.ok) await noteShell(response, shells);
    return response;
  }
  return fetch;
}

// The path below the client's API base, else undefined.
function apiPath(url) {
  return url.origin === API_ORIGIN ? API_PATH.exec(url.pathname)?.[1] : undefined;
}

function basePath(base) {
  return base.pathname.replace(/\/+$/, "");
}

function urlOf(input) {
  try {
    return new URL(input instanceof Request ? input.url : String(input));
  } catch {
    return undefined; // a relative or broken URL: its error is fetch's to tell
  }
}

function rewrite(input, init, target, headers, settings) {
  const authorization = authorizationFor(headers.get("authorization"), settings);
  if (authorization) headers.set("authorization", authorization);
  return [input instanceof Request ? new Request(target, input) : target.href, { ...init, headers }];
}

// The CLI asks https://HOST/health before it opens a shell at HOST, without
// the port and whatever the scheme of the shell's own URL.
async function noteShell(response, shells) {
  try {
    const { url } = await response.clone().json();
    const shell = new URL(url);
    if (shell.protocol === "ws:" || shell.port !== "") shells.add(shell.hostname);
  } catch {
    // not the answer that we know: then there is no shell to ask about
  }
}

function isShellHealth(url, shells) {
  return url.protocol === "https:" && url.port === "" && url.pathname === "/health" && shells.has(url.hostname);
}
