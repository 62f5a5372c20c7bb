// Sends the client's API requests, and nothing else, to our server.

import { authorizationFor } from "./identity.mjs";

const API_ORIGIN = "https://vercel.com";
const API_PATH = /^\/api(\/v\d+\/sandboxes(?:\/.*)?)$/;
const INTERACTIVE_PATH = /\/interactive$/;

/**
 * Wraps `rawFetch`. Requests to the client's API base go to
 * `settings.base`; every other request passes through untouched.
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
    const target = url && apiTarget(url, settings.base);
    if (!target) return rawFetch(input, init);
    const response = await rawFetch(...rewrite(input, init, target, settings));
    if (INTERACTIVE_PATH.test(target.pathname) && response.ok) await noteShell(response, shells);
    return response;
  }
  return fetch;
}

/** The URL at our server for a URL of the client's API, else undefined. */
export function apiTarget(url, base) {
  if (url.origin !== API_ORIGIN) return undefined;
  const path = API_PATH.exec(url.pathname)?.[1];
  if (!path) return undefined;
  const target = new URL(base);
  target.pathname = basePath(base) + path;
  target.search = url.search;
  return target;
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

function rewrite(input, init, target, settings) {
  const given = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
  const authorization = authorizationFor(given.get("authorization"), settings);
  if (authorization) given.set("authorization", authorization);
  if (!(input instanceof Request)) return [target.href, { ...init, headers: given }];
  return [new Request(target, input), { ...init, headers: given }];
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
