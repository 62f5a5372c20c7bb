// The declarations fit the client's own, and say no more than the module has.
// They are checked where the client and a compiler are installed.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import * as module from "./index.mjs";

const MODULES = fileURLToPath(new URL("../../test/compat/node_modules/", import.meta.url));
const PROGRAM = `
  import { Sandbox } from "@vercel/sandbox";
  import { createFetch, domain } from "@glovebox/vercel-compat";
  async function run(): Promise<string> {
    const sandbox = await Sandbox.create({ fetch: createFetch({ url: "http://127.0.0.1:7777" }), ports: [3000] });
    // @ts-expect-error: a port is a number
    domain(sandbox, "3000");
    // @ts-expect-error: there is no such option
    createFetch({ address: "http://127.0.0.1:7777" });
    return domain(sandbox, 3000);
  }
  void run;
`;

test("the types fit the client", { skip: existsSync(`${MODULES}typescript`) ? false : "no compiler: npm ci in test/compat" }, () => {
  const ts = createRequire(MODULES)("typescript");
  const file = fileURLToPath(new URL("types.test.mts", import.meta.url));
  const options = {
    target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, lib: ["lib.esnext.d.ts", "lib.dom.d.ts"],
    types: [], strict: true, noEmit: true, skipLibCheck: true, paths: { "@vercel/sandbox": [`${MODULES}@vercel/sandbox/dist/index.d.ts`], "@glovebox/vercel-compat": [fileURLToPath(new URL("index.d.ts", import.meta.url))] },
  };
  const host = ts.createCompilerHost(options);
  const { getSourceFile } = host;
  host.getSourceFile = (name, ...rest) => (name === file ? ts.createSourceFile(name, PROGRAM, options.target) : getSourceFile(name, ...rest));
  const program = ts.createProgram([file], options, host);
  const found = ts.getPreEmitDiagnostics(program).filter((diagnostic) => diagnostic.file?.fileName === file);
  assert.deepEqual(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n")), []);
  const declared = program.getTypeChecker().getExportsOfModule(program.getTypeChecker().getSymbolAtLocation(program.getSourceFile(fileURLToPath(new URL("index.d.ts", import.meta.url)))));
  assert.deepEqual(declared.filter(({ flags }) => flags & ts.SymbolFlags.Value).map(({ name }) => name).sort(), Object.keys(module).sort());
});
