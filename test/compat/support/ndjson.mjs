// Reads a command's stream as the bytes that were sent, so that a test sees
// where each line ends and when it came.

import { SERVER, TOKEN, sessionPath } from "./client.mjs";

/**
 * Starts a command with wait and logs and yields `{line, at}` for each line.
 * A last line without its end is yielded as `{partial}`.
 */
export async function* commandLines(sandbox, body) {
  const response = await fetch(SERVER + sessionPath(sandbox, "/cmd"), {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ args: [], wait: true, logs: true, ...body }),
  });
  if (!response.ok) throw new Error(`status ${response.status}: ${await response.text()}`);
  const type = response.headers.get("content-type");
  if (type !== "application/x-ndjson") throw new Error(`content type ${type}`);
  yield* lines(response.body);
}

async function* lines(body) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let rest = "";
  for await (const chunk of body) {
    rest += decoder.decode(chunk, { stream: true });
    const complete = rest.split("\n");
    rest = complete.pop();
    // An empty line keeps a silent connection open, and means nothing.
    for (const line of complete.filter(Boolean)) yield { line: JSON.parse(line), at: Date.now() };
  }
  if (rest !== "") yield { partial: rest };
}
