package server

import "net/http"

// interactivePath is where terminals are connected to. It is not below
// /v2/sandboxes, where any word is a sandbox's name.
const interactivePath = "/v1/interactive"

// routes is the whole API. All paths also work below /api.
func routes() []route {
	const (
		get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	)
	table := []route{
		{method: get, path: "/healthz", handle: (*call).healthz, open: true},
		{method: get, path: "/health", handle: (*call).alive, open: true},
		{method: get, path: descriptionPath, handle: (*call).describe, open: true},
		{method: get, path: "/.well-known/jwks", handle: (*call).jwks, open: true},
		{method: get, path: "/.well-known/openid-configuration", handle: (*call).openIDConfiguration, open: true},
		{method: get, path: interactivePath, handle: (*call).terminal, open: true},
		{method: get, path: "/v1/status", handle: (*call).status},
		{method: get, path: "/v1/disk", handle: (*call).diskUse},
		{method: post, path: "/v1/prune", handle: (*call).prune},
		{method: get, path: "/v2/user", handle: (*call).user},
		{method: get, path: "/v2/teams", handle: (*call).teams},
		{method: get, path: "/v2/teams/{team}", handle: (*call).team},
		{method: get, path: "/v2/projects/{project}", handle: (*call).getProject},
		{method: post, path: "/v11/projects", handle: (*call).createProject},
	}
	// The client asks for both versions, by whether it names a runtime; both
	// do the same here.
	for _, base := range []string{"/v2/sandboxes", "/v3/sandboxes"} {
		session := base + "/sessions/{session}"
		command := session + "/cmd/{cmd}"
		table = append(table, []route{
			{method: post, path: base, handle: (*call).createSandbox, starts: true},
			{method: get, path: base, handle: (*call).listSandboxes},
			{method: get, path: base + "/{name}", handle: (*call).getSandbox},
			{method: patch, path: base + "/{name}", handle: (*call).updateSandbox},
			{method: del, path: base + "/{name}", handle: (*call).deleteSandbox},

			{method: get, path: base + "/sessions", handle: (*call).listSessions},
			{method: get, path: session, handle: (*call).getSession},
			{method: post, path: session + "/stop", handle: (*call).stopSession},
			{method: post, path: session + "/extend-timeout", handle: (*call).extendTimeout, starts: true},
			{method: post, path: session + "/network-policy", handle: (*call).setNetworkPolicy},
			{method: get, path: session + "/network-log", handle: (*call).networkLog},
			{method: get, path: session + "/network-summary", handle: (*call).networkSummary},
			{method: post, path: session + "/interactive", handle: (*call).openInteractive},

			{method: post, path: session + "/cmd", handle: (*call).runCommand, starts: true},
			{method: get, path: session + "/cmd", handle: (*call).listCommands},
			{method: get, path: command, handle: (*call).getCommand},
			{method: get, path: command + "/logs", handle: (*call).commandLogs},
			{method: post, path: command + "/kill", handle: (*call).killCommand},
			{method: post, path: command + "/stdin", handle: (*call).commandStdin, starts: true},

			{method: post, path: session + "/fs/write", handle: (*call).writeFiles},
			{method: post, path: session + "/fs/read", handle: (*call).readFile},
			{method: post, path: session + "/fs/mkdir", handle: (*call).mkdir},

			{method: post, path: base + "/{name}/fork", handle: (*call).forkSandbox, starts: true},
			{method: post, path: session + "/snapshot", handle: (*call).createSnapshot, starts: true},
			{method: get, path: base + "/snapshots", handle: (*call).listSnapshots},
			{method: get, path: base + "/snapshots/tree", handle: (*call).snapshotTree},
			{method: get, path: base + "/snapshots/{snapshot}/diff", handle: (*call).diffSnapshots},
			{method: get, path: base + "/snapshots/{snapshot}", handle: (*call).getSnapshot},
			{method: del, path: base + "/snapshots/{snapshot}", handle: (*call).deleteSnapshot},
			{method: get, path: base + "/drives", handle: (*call).listDrives},
			{method: get, path: base + "/drives/{drive}", handle: (*call).getDrive},
			{method: post, path: base + "/drives/{drive}", handle: (*call).createDrive},
			{method: del, path: base + "/drives/{drive}", handle: (*call).deleteDrive},
		}...)
	}
	return table
}
