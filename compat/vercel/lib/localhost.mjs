// Names below .localhost are loopback by RFC 6761, but the C library that
// Node resolves with often does not know it. Preview addresses have such
// names, so dns.lookup learns the rule; fetch, http, net and WebSocket clients
// all resolve through it.

import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";

const LOCAL_NAME = /\.localhost\.?$/i;
const LOOPBACK = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

/**
 * The loopback address for a name below .localhost, else undefined. One alone:
 * with two, Node gives each a quarter of a second to connect and then reports
 * a time-out of a server that is only busy.
 */
export function loopbackFor(hostname, family) {
  if (typeof hostname !== "string" || !LOCAL_NAME.test(hostname)) return undefined;
  const wanted = { 4: 4, 6: 6, IPv4: 4, IPv6: 6 }[family] ?? serverFamily();
  return LOOPBACK.filter((entry) => entry.family === wanted);
}

/** The family at which the server listens, where its address tells. */
function serverFamily() {
  return /\/\/\[::1\]/.test(process.env.GLOVEBOX_URL ?? "") ? 6 : 4;
}

/**
 * Teaches dns.lookup and dns.promises.lookup the rule. Other names, and
 * arguments that these functions would refuse, reach the originals as given.
 * @returns a function that takes the rule back.
 */
export function resolveLocalhostNames() {
  const { lookup } = dns;
  const { lookup: lookupPromise } = dns.promises;

  dns.lookup = Object.assign(function patchedLookup(hostname, options, callback) {
    const done = typeof options === "function" ? options : callback;
    const settings = typeof options === "number" ? { family: options } : typeof options === "function" ? {} : options;
    const found = typeof done === "function" ? loopbackFor(hostname, settings?.family) : undefined;
    if (!found) return lookup.apply(this, arguments);
    process.nextTick(() => (settings?.all ? done(null, found) : done(null, found[0].address, found[0].family)));
    return {};
  }, lookup);

  dns.promises.lookup = async function patchedLookup(hostname, options) {
    const settings = typeof options === "number" ? { family: options } : options;
    const found = loopbackFor(hostname, settings?.family);
    if (!found) return lookupPromise.apply(this, arguments);
    return settings?.all ? found : found[0];
  };

  syncBuiltinESMExports();
  return () => {
    dns.lookup = lookup;
    dns.promises.lookup = lookupPromise;
    syncBuiltinESMExports();
  };
}
