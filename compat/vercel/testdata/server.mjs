// A little server that answers as much of the API as the tests look at, and
// remembers what it was asked.

import { createServer } from "node:http";

/** Starts it on a free loopback port. */
export async function startFakeServer() {
  const requests = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    req.on("error", () => {});
    try {
      for await (const chunk of req) chunks.push(chunk);
    } catch {
      return; // the client went away
    }
    requests.push({
      method: req.method,
      url: req.url,
      headers: req.headers,
      body: Buffer.concat(chunks).toString(),
      socket: req.socket,
    });
    answer(req, res, server.address().port);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    requests,
    url: `http://127.0.0.1:${server.address().port}`,
    port: server.address().port,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

function answer(req, res, port) {
  const path = new URL(req.url, "http://x").pathname;
  if (path.endsWith("/interactive")) return json(res, { url: `ws://shell.localhost:${port}/ws`, token: "once" });
  if (path.endsWith("/logs")) return endlessLines(res);
  json(res, { path, host: req.headers.host });
}

function json(res, value) {
  res.writeHead(200, { "content-type": "application/json" });
  res.end(JSON.stringify(value));
}

// One line at once, and then nothing, until the client has had enough.
function endlessLines(res) {
  res.writeHead(200, { "content-type": "application/x-ndjson" });
  res.write('{"stream":"stdout","data":"first"}\n');
}
