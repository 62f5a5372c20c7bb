// Writes docs/compatibility/vercel.md from the results of a run: one row for
// each call of the published client and each command of the published CLI.
//
//   node support/page.mjs RESULTS PAGE [--write]
//
// RESULTS is a directory of files that support/results.mjs has written. Fails
// where a call has no test, a test names a call that does not exist, a test
// did not pass, or (without --write) the page is not what the results say.

import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { cliCommands, clientMembers } from "./surface.mjs";

const BEHAVIOUR = "behaviour: ";
const VERDICTS = ["not", "differs", "works"];

const [results, page, mode] = process.argv.slice(2);
const tested = await readResults(results);
const offered = [...clientMembers(), ...(await cliCommands())];
const faults = [...missing(offered, tested), ...unknown(offered, tested), ...broken(tested)];
const text = await render(tested);
if (faults.length === 0 && mode === "--write") await writeFile(page, text);
else if (faults.length === 0 && (await readFile(page, "utf8").catch(() => "")) !== text) {
  faults.push(`${page} is not what the tests say: run \`make compat\``);
}
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;

async function readResults(dir) {
  const byCall = new Map();
  for (const file of (await readdir(dir)).sort()) {
    for (const line of (await readFile(join(dir, file), "utf8")).split("\n").filter(Boolean)) {
      const { call, ...result } = JSON.parse(line);
      byCall.set(call, [...(byCall.get(call) ?? []), result]);
    }
  }
  return byCall;
}

function missing(offered, tested) {
  return offered.filter((call) => !tested.has(call)).map((call) => `${call} has no test: name it in brackets before the title of one`);
}

// A command may be tested with its flags: `sandbox run --rm`.
function unknown(offered, tested) {
  const known = new Set(offered);
  return [...tested.keys()]
    .filter((call) => !call.startsWith(BEHAVIOUR) && !known.has(call.replace(/ -.*$/, "")))
    .map((call) => `${call} is named by a test and is no call of the client`);
}

function broken(tested) {
  return [...tested].flatMap(([call, list]) => list.filter(({ outcome }) => outcome !== "passed").map(({ outcome, title }) => `${call} ${outcome}: ${title}`));
}

async function render(tested) {
  const version = async (name) => JSON.parse(await readFile(new URL(`../node_modules/${name}/package.json`, import.meta.url), "utf8")).version;
  const sections = group([...tested.keys()], sectionOf);
  const count = Object.fromEntries(VERDICTS.map((verdict) => [verdict, [...tested.values()].filter((list) => verdictOf(list) === verdict).length]));
  return [
    "# The published client, call by call",
    "",
    "<!-- Written by `make compat` from the tests in test/compat. Do not edit. -->",
    "",
    `\`@vercel/sandbox\` ${await version("@vercel/sandbox")} and the CLI \`sandbox\` ${await version("sandbox")}, unmodified, against a running server.`,
    "Each row is one call or option of the client's own type declarations, or one command of the CLI's help; a call without a passing test fails the build.",
    "The last column says what the test of the row shows.",
    "",
    `${count.works} work, ${count.differs} differ, ${count.not} do not work.`,
    ...[...sections].sort(([a], [b]) => order(a) - order(b) || (a < b ? -1 : 1)).flatMap(([title, calls]) => ["", `## ${title}`, "", ...table(calls, tested)]),
    "",
  ].join("\n");
}

function table(calls, tested) {
  return ["| call | answer | shown by |", "| --- | --- | --- |", ...calls.sort().map((call) => row(call, tested.get(call)))];
}

function row(call, list) {
  const verdict = verdictOf(list);
  const shown = list.filter((result) => result.verdict === verdict).map(({ title }) => title);
  const label = call.startsWith(BEHAVIOUR) ? call.slice(BEHAVIOUR.length) : `\`${call}\``;
  return `| ${label} | ${verdict} | ${[...new Set(shown)].sort().join("; ").replaceAll("|", "\\|")} |`;
}

// The worst that a test says of it.
function verdictOf(list) {
  return VERDICTS.find((verdict) => list.some((result) => result.verdict === verdict));
}

function sectionOf(call) {
  if (call.startsWith(BEHAVIOUR)) return "Beyond single calls";
  if (call.startsWith("sandbox ")) return "The CLI";
  return /^NetworkP|^NetworkT/.test(call) ? "Network policies" : /^[A-Z]\w+(?=\.)/.exec(call)?.[0] ?? "Functions and constants";
}

function order(title) {
  const at = ["Sandbox", "Session", "Command", "CommandFinished", "FileSystem", "SandboxUser", "Snapshot", "Drive", "Paginator", "Network policies"].indexOf(title);
  return at >= 0 ? at : { "Beyond single calls": 98, "The CLI": 99 }[title] ?? 50;
}

function group(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}
