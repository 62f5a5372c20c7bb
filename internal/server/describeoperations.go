package server

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/openapi"
)

var (
	once       = []openapi.Param{{Name: "Idempotency-Key", About: "A second request with the same key is answered like the first"}}
	orderParam = openapi.Param{Name: "sortOrder", About: "desc by default", Enum: []string{api.SortAsc, api.SortDesc}}
)

// pages are the parameters of every list, and more.
func pages(more ...openapi.Param) []openapi.Param {
	return append([]openapi.Param{
		{Name: "limit", About: "1–50, 20 by default", Integer: true},
		{Name: "cursor", About: "pagination.next of the page before"},
		orderParam,
	}, more...)
}

func sandboxOperations(base string) map[string]openapi.Operation {
	name := base + "/{name}"
	return map[string]openapi.Operation{
		"POST " + base: {ID: "createSandbox", Summary: "Make a sandbox; answers when it can run commands", Header: once, Body: api.CreateSandboxRequest{}, Answer: api.SandboxAndSession{}},
		"GET " + base: {ID: "listSandboxes", Summary: "List sandboxes", Answer: api.SandboxesPage{}, Query: pages(
			openapi.Param{Name: "sortBy", About: "createdAt by default", Enum: []string{api.SortCreatedAt, api.SortName, api.SortStatusUpdatedAt}},
			openapi.Param{Name: "namePrefix", About: "Of the name"},
			openapi.Param{Name: "status", About: "Only those in this state"},
			openapi.Param{Name: "tags", About: "key:value; all of them must be there"},
		)},
		"GET " + name:            {ID: "getSandbox", Summary: "A sandbox and its session", Query: []openapi.Param{{Name: "resume", About: "true starts a session where none runs"}}, Answer: api.SandboxAndSession{}},
		"PATCH " + name:          {ID: "updateSandbox", Summary: "Change settings; what is absent stays", Body: api.UpdateSandboxRequest{}, Answer: api.SandboxAndRoutes{}},
		"DELETE " + name:         {ID: "deleteSandbox", Summary: "Stop and remove it", Query: []openapi.Param{{Name: "deleteOrphanSnapshots", About: "true removes the snapshots that nothing else uses"}}, Answer: api.SandboxAndRoutes{}},
		"POST " + name + "/fork": {ID: "forkSandbox", Summary: "A copy of the disk and the settings; what is given replaces", Header: once, Body: api.ForkSandboxRequest{}, Answer: api.SandboxAndSession{}},
	}
}

func sessionOperations(base string) map[string]openapi.Operation {
	session := base + "/sessions/{session}"
	return map[string]openapi.Operation{
		"GET " + base + "/sessions":           {ID: "listSessions", Summary: "List sessions", Query: pages(openapi.Param{Name: "name", About: "Of the sandbox"}), Answer: api.SessionsPage{}},
		"GET " + session:                      {ID: "getSession", Summary: "A session and its routes", Answer: api.SessionAndRoutes{}},
		"POST " + session + "/stop":           {ID: "stopSession", Summary: "End it; may be repeated", Answer: api.StopSessionResponse{}},
		"POST " + session + "/extend-timeout": {ID: "extendTimeout", Summary: "Add to its time-out", Body: api.ExtendTimeoutRequest{}, Answer: api.SessionResponse{}},
		"POST " + session + "/network-policy": {ID: "setNetworkPolicy", Summary: "Replace its network policy, at once", Body: api.NetworkPolicyRequest{}, Answer: api.SessionResponse{}},
		"GET " + session + "/network-log": {ID: "networkLog", Summary: "What it did in the network; with follow one NetworkRecord a line", Answer: api.NetworkLog{}, Query: []openapi.Param{
			{Name: "since", About: "The number of a record, 0 for all", Integer: true}, {Name: "follow", About: "true goes on until the session ends"},
		}},
		"GET " + session + "/network-summary": {ID: "networkSummary", Summary: "What it did in the network, by destination", Answer: api.NetworkSummary{}},
		"POST " + session + "/interactive":    {ID: "openInteractive", Summary: "Where to connect a terminal, and a token for it", Answer: api.InteractiveResponse{}},
		"POST " + session + "/snapshot":       {ID: "createSnapshot", Summary: "Keep its disk, and end it", Header: once, Body: api.CreateSnapshotRequest{}, Status: http.StatusCreated, Answer: api.CreateSnapshotResponse{}},
		"POST " + session + "/fs/write":       {ID: "writeFiles", Summary: "Unpack a gzip tar", Header: []openapi.Param{{Name: "x-cwd", About: "The directory to unpack into"}}, BodyType: gzipArchive, Answer: api.Empty{}},
		"POST " + session + "/fs/read":        {ID: "readFile", Summary: "The bytes of a file", Body: api.PathRequest{}, AnswerType: octets},
		"POST " + session + "/fs/mkdir":       {ID: "mkdir", Summary: "Make one directory", Body: api.PathRequest{}, Answer: api.Empty{}},
	}
}

func commandOperations(base string) map[string]openapi.Operation {
	commands := base + "/sessions/{session}/cmd"
	command := commands + "/{cmd}"
	encoding := openapi.Param{Name: "encoding", About: "base64 for the very bytes", Enum: []string{api.EncodingBase64}}
	return map[string]openapi.Operation{
		"POST " + commands:           {ID: "runCommand", Summary: "Start a command; with wait the answer is " + ndjson + ": CommandResponse, with logs LogLines, CommandResponse", Header: once, Body: api.RunCommandRequest{}, Answer: api.CommandResponse{}},
		"GET " + commands:            {ID: "listCommands", Summary: "The session's commands", Answer: api.CommandsResponse{}},
		"GET " + command:             {ID: "getCommand", Summary: "A command", Query: []openapi.Param{{Name: "wait", About: "true answers when it has ended"}}, Answer: api.CommandResponse{}},
		"GET " + command + "/logs":   {ID: "commandLogs", Summary: "Its output from the first byte to its end, one LogLine a line", Query: []openapi.Param{encoding}, AnswerType: ndjson, Answer: api.LogLine{}},
		"POST " + command + "/kill":  {ID: "killCommand", Summary: "Send it a signal, 15 by default", Body: api.KillCommandRequest{}, Answer: api.CommandResponse{}},
		"POST " + command + "/stdin": {ID: "commandStdin", Summary: "What it reads; the end of the body closes its input", BodyType: octets, Answer: api.Empty{}},
	}
}

func snapshotOperations(base string) map[string]openapi.Operation {
	snapshots := base + "/snapshots"
	return map[string]openapi.Operation{
		"GET " + snapshots: {ID: "listSnapshots", Summary: "List snapshots", Query: pages(openapi.Param{Name: "name", About: "Of the sandbox"}), Answer: api.SnapshotsPage{}},
		"GET " + snapshots + "/tree": {ID: "snapshotTree", Summary: "Ancestors (desc) or descendants (asc) of a snapshot", Answer: api.SnapshotTree{}, Query: []openapi.Param{
			{Name: "snapshotId", About: "Where to start"}, {Name: "limit", About: "1–50", Integer: true}, orderParam,
		}},
		"GET " + snapshots + "/{snapshot}/diff": {ID: "diffSnapshots", Summary: "What is different in another snapshot", Query: []openapi.Param{{Name: "with", About: "the snapshot to compare with"}}, Answer: api.SnapshotDiff{}},
		"GET " + snapshots + "/{snapshot}":      {ID: "getSnapshot", Summary: "A snapshot, a deleted one too", Answer: api.SnapshotResponse{}},
		"DELETE " + snapshots + "/{snapshot}":   {ID: "deleteSnapshot", Summary: "Delete it; nothing starts from it any more", Answer: api.SnapshotResponse{}},
	}
}

func driveOperations(base string) map[string]openapi.Operation {
	drives := base + "/drives"
	return map[string]openapi.Operation{
		"GET " + drives: {ID: "listDrives", Summary: "List drives", Answer: api.DrivesPage{}, Query: pages(
			openapi.Param{Name: "sortBy", About: "createdAt by default", Enum: []string{api.SortCreatedAt, api.SortName}},
			openapi.Param{Name: "namePrefix", About: "Of the name"},
		)},
		"GET " + drives + "/{drive}":    {ID: "getDrive", Summary: "A drive, by name or id", Answer: api.DriveResponse{}},
		"POST " + drives + "/{drive}":   {ID: "createDrive", Summary: "Make a drive of this name, unless it is there", Body: api.CreateDriveRequest{}, Answer: api.DriveResponse{}},
		"DELETE " + drives + "/{drive}": {ID: "deleteDrive", Summary: "Delete a drive that no session uses", Answer: api.DriveResponse{}},
	}
}
