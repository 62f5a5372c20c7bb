// defineSandboxProxy takes tokens of the platform's issuer alone. Where it is
// loaded, the check is for our server's in its place, and for no other: who
// can have tokens of the platform shall not pass for a sandbox of ours.

const MARK = "oidc.vercel.com";
const CHECK = /([\w$]+)\.protocol\s*!==?\s*"https:"\s*\|\|\s*\1\.hostname\s*!==?\s*[\w$]+/g;
const ISSUER = "glovebox.oidc-issuer";

/** Whether the source may hold the check. */
export function holdsIssuer(source) {
  return source.includes(MARK);
}

/** The source with the check replaced. */
export function replaceIssuer(text) {
  return text.replace(CHECK, `$1.href.replace(/\\/$/, "") !== globalThis[Symbol.for("${ISSUER}")]`);
}

/** Names the issuer that is trusted: GLOVEBOX_OIDC_ISSUER, else the server's own address. */
export function trustIssuer(settings, env = process.env) {
  const issuer = new URL(env.GLOVEBOX_OIDC_ISSUER || settings.base);
  globalThis[Symbol.for(ISSUER)] = issuer.href.replace(/\/$/, "");
}
