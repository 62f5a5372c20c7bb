// Where the server is and who we are there, from the environment.

/**
 * Reads GLOVEBOX_URL, GLOVEBOX_TOKEN and GLOVEBOX_PROJECT.
 * @returns {{base: URL, token: string | undefined, project: string | undefined} | null}
 *   null when GLOVEBOX_URL is not set: then nothing is to be redirected.
 */
export function readSettings(env = process.env) {
  if (!env.GLOVEBOX_URL) return null;
  return {
    base: parseBase(env.GLOVEBOX_URL, "GLOVEBOX_URL"),
    token: env.GLOVEBOX_TOKEN || undefined,
    project: env.GLOVEBOX_PROJECT || undefined,
  };
}

/** Parses a server's address; `field` names the source in the error. */
export function parseBase(value, field) {
  let url;
  try {
    url = new URL(value);
  } catch {
    throw new TypeError(`${field}: ${JSON.stringify(value)} is not a URL; give one like http://127.0.0.1:7777`);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`${field}: scheme ${url.protocol} is not supported; use http: or https:`);
  }
  if (url.search || url.hash || url.username || url.password) {
    throw new TypeError(`${field}: give only scheme, host, port and path; the token goes into GLOVEBOX_TOKEN`);
  }
  return url;
}
