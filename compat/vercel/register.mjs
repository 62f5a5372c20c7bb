// Loaded with `node --import`: points the published client, and the CLI built
// on it, at the Glovebox server of GLOVEBOX_URL. The program stays as it is.

import module from "node:module";
import * as domain from "./lib/domain.mjs";
import { supplyIdentity } from "./lib/identity.mjs";
import { trustIssuer } from "./lib/issuer.mjs";
import { resolveLocalhostNames } from "./lib/localhost.mjs";
import { redirectingFetch } from "./lib/redirect.mjs";
import { readSettings } from "./lib/settings.mjs";

const INSTALLED = Symbol.for("glovebox.vercel-compat");

function install() {
  const settings = readSettings();
  if (!settings || globalThis[INSTALLED]) return;
  globalThis[INSTALLED] = true;
  supplyIdentity(settings);
  trustIssuer(settings);
  resolveLocalhostNames();
  globalThis.fetch = redirectingFetch(globalThis.fetch, settings);
  rewriteModules();
}

// CommonJS is caught where it is compiled, which every version of Node does
// in the same place; ES modules by the loader hooks that the version has.
function rewriteModules() {
  const { _compile } = module.prototype;
  module.prototype._compile = function compile(content, ...rest) {
    return _compile.call(this, domain.rewriteDomain(content), ...rest);
  };
  if (module.registerHooks) module.registerHooks({ load: domain.loadSync });
  else module.register("./lib/domain.mjs", import.meta.url);
}

install();
