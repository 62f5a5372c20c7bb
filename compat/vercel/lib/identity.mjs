// The client refuses to start without a Vercel identity. Where the program
// has none, it gets a placeholder that only our own fetch understands.

const TEN_YEARS_S = 10 * 365 * 24 * 3600;
const DEFAULT_TEAM = "glovebox";
const DEFAULT_PROJECT = "default";
const TOKEN_PREFIX = "gbx_"; // of every token that a server makes

/**
 * An unsigned token in the form of the platform's identity token, because
 * the client reads team and project out of it. It opens nothing: it is
 * replaced by the real token before a request leaves.
 */
export function placeholderToken(team, project) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: "glovebox",
    sub: "placeholder",
    iat: now,
    exp: now + TEN_YEARS_S,
    owner: team,
    owner_id: team,
    project,
    project_id: project,
  };
  return `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.placeholder`;
}

/**
 * Fills in the environment variables that the client and its CLI look for,
 * each only where it is absent.
 */
export function supplyIdentity(settings, env = process.env) {
  env.VERCEL_TEAM_ID ??= DEFAULT_TEAM;
  env.VERCEL_PROJECT_ID = settings.project ?? env.VERCEL_PROJECT_ID ?? DEFAULT_PROJECT;
  env.VERCEL_OIDC_TOKEN ??= placeholderToken(env.VERCEL_TEAM_ID, env.VERCEL_PROJECT_ID);
  if (settings.token) env.VERCEL_TOKEN ??= settings.token;
  // These would tell a third party of sandboxes that it does not run, or
  // announce versions of it.
  env.VERCEL_SANDBOX_TELEMETRY_DISABLED ??= "1";
  env.SANDBOX_SKIP_VERSION_CHECK ??= "1";
}

/** Whether an Authorization value holds a token of a Glovebox server. */
export function isOurToken(authorization, settings) {
  const bearer = bearerOf(authorization);
  return bearer !== undefined && (bearer === settings.token || bearer.startsWith(TOKEN_PREFIX));
}

function bearerOf(authorization) {
  return /^Bearer (.+)$/i.exec(authorization ?? "")?.[1];
}

/**
 * The Authorization value to send for the one that the client gave: our token
 * in place of an identity of the platform (one from the environment, or any
 * identity token), and every other, such as a token of this server written
 * into the program, as it is.
 */
export function authorizationFor(given, settings, env = process.env) {
  if (!settings.token) return given;
  const bearer = bearerOf(given);
  const foreign =
    bearer === undefined ||
    bearer === env.VERCEL_TOKEN ||
    bearer === env.VERCEL_AUTH_TOKEN ||
    bearer === env.VERCEL_OIDC_TOKEN ||
    isIdentityToken(bearer);
  return foreign ? `Bearer ${settings.token}` : given;
}

function isIdentityToken(bearer) {
  const parts = bearer.split(".");
  if (parts.length !== 3) return false;
  try {
    return typeof JSON.parse(Buffer.from(parts[1], "base64url").toString("utf8")).owner_id === "string";
  } catch {
    return false;
  }
}
