// The explicit way: a fetch to hand to the client, without --import.

import { redirectingFetch } from "./lib/redirect.mjs";
import { parseBase, readSettings } from "./lib/settings.mjs";

/**
 * A fetch for the client's `fetch` option that sends its requests to a
 * Glovebox server.
 * @param {object} [options]
 * @param {string} [options.url] the server; GLOVEBOX_URL by default
 * @param {string} [options.token] replaces an identity of the platform;
 *   GLOVEBOX_TOKEN by default
 * @param {typeof fetch} [options.fetch] what sends the request
 */
export function createFetch({ url, token, fetch: rawFetch = globalThis.fetch } = {}) {
  const fromEnv = readSettings();
  if (!url && !fromEnv) throw new TypeError("createFetch: no server; give url or set GLOVEBOX_URL");
  const base = url ? parseBase(url, "url") : fromEnv.base;
  return redirectingFetch(rawFetch, { base, token: token ?? (process.env.GLOVEBOX_TOKEN || undefined) });
}

/**
 * The address of a port, as sandbox.domain(port) answers it under --import.
 * @throws {Error} where the port has no route
 */
export function domain(sandbox, port) {
  const route = sandbox.routes.find((candidate) => candidate.port === port);
  if (!route) throw new Error(`no route for port ${port}: list it in \`ports\` of Sandbox.create`);
  return route.url;
}
