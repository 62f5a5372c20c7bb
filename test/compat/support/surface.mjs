// What the published client offers, read from its own type declarations, and
// the commands of the published CLI, read from its help.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";
import { CLI, QUIET } from "./cli.mjs";

const DECLARATIONS = ["@vercel/sandbox/dist/index.d.ts", "@vercel/sandbox/dist/proxy.d.ts"];

// Every call takes a signal and may take credentials: one row for all of them.
const EVERYWHERE = new Set(["signal", "abortSignal", "token", "teamId", "projectId"]);

// Types that only name what others hold.
const NAMES_ONLY = /^(Serialized|ExecutionContext$|CommandOutput$|SnapshotTreeNodeData$|SandboxMount|SandboxRegion$|InvalidRequestProxyHandler$|ProxyHandler$)/;

/** Every public member of the client, such as `Sandbox.create({ports})`. */
export function clientMembers() {
  const files = DECLARATIONS.map((name) => fileURLToPath(new URL(`../node_modules/${name}`, import.meta.url)));
  const program = ts.createProgram(files, {
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    lib: ["lib.esnext.d.ts"],
    types: [],
    strict: true,
  });
  const checker = program.getTypeChecker();
  const members = new Set();
  for (const file of files) {
    for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)))) {
      for (const member of membersOf(resolved(checker, symbol), checker)) members.add(member);
    }
  }
  return [...members].sort();
}

function resolved(checker, symbol) {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

function membersOf(symbol, checker) {
  const { name } = symbol;
  if (symbol.flags & ts.SymbolFlags.Class) return classMembers(symbol, checker);
  if (symbol.flags & ts.SymbolFlags.Value) return [name];
  return NAMES_ONLY.test(name) ? [] : shapeMembers(name, checker.getDeclaredTypeOfSymbol(symbol));
}

function classMembers(symbol, checker) {
  const declaration = symbol.declarations.find(ts.isClassDeclaration);
  return declaration.members.filter(isPublic).flatMap((member) => {
    const called = `${symbol.name}.${memberName(member)}`;
    return ts.isMethodDeclaration(member) ? [called, ...optionMembers(called, member, checker), ...pageMembers(member, checker)] : [called];
  });
}

function isPublic(member) {
  return !ts.isConstructorDeclaration(member) && !(ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected));
}

function memberName(member) {
  return ts.isComputedPropertyName(member.name) ? `[${member.name.expression.getText()}]` : member.name.text;
}

// The optional fields of a call's parameters that are objects: `{ports}`.
function optionMembers(called, method, checker) {
  if (ts.isComputedPropertyName(method.name)) return [];
  const names = method.parameters
    .map((parameter) => checker.getTypeAtLocation(parameter))
    .filter((type) => !type.aliasSymbol?.name.startsWith("NetworkPolicy"))
    .flatMap(constituents)
    .filter((part) => isShape(part, checker))
    .flatMap((part) => part.getProperties())
    .filter((property) => property.flags & ts.SymbolFlags.Optional)
    .map((property) => property.name);
  return [...new Set(names)].filter((name) => !EVERYWHERE.has(name)).map((name) => `${called}({${name}})`);
}

// What every list can do, from the type of one that is returned.
function pageMembers(method, checker) {
  const answer = checker.getAwaitedType(checker.getReturnTypeOfSignature(checker.getSignatureFromDeclaration(method)));
  if (answer?.aliasSymbol?.name !== "Paginator") return [];
  return answer.getProperties().map((property) => /^__@(\w+)/.exec(property.name)?.[1] ?? property.name)
    .filter((name) => /^(pages|toArray|asyncIterator|pagination)$/.test(name))
    .map((name) => `Paginator.${name === "asyncIterator" ? "[Symbol.asyncIterator]" : name}`);
}

function shapeMembers(name, type) {
  const fields = constituents(type).filter((part) => part.flags & ts.TypeFlags.Object || part.isIntersection()).flatMap((part) => part.getProperties());
  return [...new Set(fields.map((field) => `${name}.${field.name}`))];
}

function constituents(type) {
  return type.isUnion() ? type.types.flatMap(constituents) : [type];
}

// An object literal, rather than a string, an instance of a class or an array.
function isShape(type, checker) {
  if (type.isIntersection()) return type.types.every((part) => part.flags & ts.TypeFlags.Object);
  return Boolean(type.flags & ts.TypeFlags.Object) && !type.isClass() && !checker.isArrayType(type);
}

/** Every command of the CLI, such as `sandbox snapshots list`. */
export async function cliCommands() {
  const top = await commandsIn([]);
  const nested = await Promise.all(top.map(async ({ name, takes }) => {
    // A group of commands takes nothing itself, which saves asking the others.
    const below = takes ? [] : await commandsIn([name]);
    return below.length ? below.map((command) => `${name} ${command.name}`) : [name];
  }));
  return nested.flat().map((name) => `sandbox ${name}`).sort();
}

// The names under "Commands:" of a help text; of `ls | list` the long one.
async function commandsIn(path) {
  const { stdout } = await promisify(execFile)(process.execPath, [CLI, ...path, "--help"], { env: { ...process.env, NO_COLOR: "1", ...QUIET } });
  const commands = /\nCommands:\n\n([^]*?)(?:\n\n|$)/.exec(stdout)?.[1] ?? "";
  return commands.split("\n").flatMap((line) => {
    const found = /^ {4}(?:\S+ \| )?([a-z][\w-]*) +(<)?/.exec(line);
    return found ? { name: found[1], takes: Boolean(found[2]) } : [];
  });
}
