// A reporter for node --test-reporter: one JSON line for each test whose name
// begins with the calls that it covers, `[Sandbox.create, Sandbox.name] title`.

const NAME = /^\[([^\]]+(?:\[[^\]]*\][^\]]*)*)\] (?:(differs|not): )?(.*)$/s;

export default async function* results(events) {
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    const found = NAME.exec(data.name);
    if (!found) continue;
    const [, covers, verdict = "works", title] = found;
    const outcome = data.skip !== undefined || data.todo !== undefined ? "skipped" : type === "test:pass" ? "passed" : "failed";
    for (const call of covers.split(/, (?![^({]*[)}])/)) yield `${JSON.stringify({ call, verdict, title, outcome })}\n`;
  }
}
