package control

import (
	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// sessionView is a session as answers show it.
func sessionView(s store.Session) api.Session {
	out := api.Session{
		ID: s.ID, SandboxName: s.SandboxName, Memory: s.VCPUs * api.MemoryPerVCPU, VCPUs: s.VCPUs,
		Region: s.Region, Runtime: s.Runtime, Timeout: s.Timeout, Status: s.Status,
		RequestedAt: s.RequestedAt, StartedAt: s.StartedAt, RequestedStopAt: s.RequestedStopAt,
		StoppedAt: s.StoppedAt, AbortedAt: s.AbortedAt, SnapshottedAt: s.SnapshottedAt, SourceSnapshotID: s.SourceSnapshotID,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, Cwd: s.Cwd,
		NetworkPolicy: s.NetworkPolicy.View(), Reason: s.Reason, Notice: s.Notice,
	}
	if s.Interactive {
		out.InteractivePort = api.ReservedPort
	}
	if u := s.Usage; u != nil {
		out.Duration, out.ActiveCPUDurationMs = &u.DurationMs, &u.CPUMs
		out.NetworkTransfer = &api.NetworkTransfer{Ingress: u.IngressBytes, Egress: u.EgressBytes}
	}
	return out
}

// sandboxView is a sandbox as answers show it.
func (c *Control) sandboxView(sb store.Sandbox) api.Sandbox {
	out := api.Sandbox{
		Name: sb.Name, Persistent: sb.Persistent, Region: sb.Region, FailoverRegions: sb.FailoverRegions, NetworkID: sb.NetworkID,
		VCPUs: sb.VCPUs, Memory: sb.VCPUs * api.MemoryPerVCPU, Runtime: sb.Runtime, Image: sb.Image, Timeout: sb.Timeout,
		NetworkPolicy: sb.NetworkPolicy.View(), TotalEgressBytes: sb.Totals.EgressBytes, TotalIngressBytes: sb.Totals.IngressBytes,
		TotalActiveCPUDurationMs: sb.Totals.CPUMs, TotalDurationMs: sb.Totals.DurationMs,
		CreatedAt: sb.CreatedAt, UpdatedAt: sb.UpdatedAt, CurrentSessionID: sb.CurrentSessionID, CurrentSnapshotID: sb.CurrentSnapshotID,
		Status: sb.Status, StatusUpdatedAt: sb.StatusUpdatedAt, Cwd: sb.Cwd, Tags: sb.Tags, Mounts: sb.Mounts,
		SnapshotExpiration: sb.SnapshotExpiration, KeepLastSnapshots: sb.KeepLast,
		PreviewProtected: sb.PreviewToken != nil, StartCommand: sb.StartCommand.View(), WakeOnRequest: sb.WakeOnRequest,
	}
	if s := c.sessionOf(sb.ID); s != nil {
		if rec := s.record(); rec.ID == sb.CurrentSessionID && rec.Status == api.StatusRunning {
			out.ExpiresAt = rec.StartedAt + rec.Timeout
		}
	}
	return out
}

// routesView tells where a sandbox's ports are reached.
func (c *Control) routesView(sb store.Sandbox) []api.Route {
	out := make([]api.Route, 0, len(sb.Ports))
	for _, p := range sb.Ports {
		out = append(out, api.Route{URL: c.cfg.PreviewURL(p.Subdomain), Subdomain: p.Subdomain, Port: p.Port})
	}
	return out
}

// commandView is a command as answers show it.
func commandView(cmd store.Command) api.Command {
	out := api.Command{
		ID: cmd.ID, Name: cmd.Name, Args: cmd.Args, Cwd: cmd.Cwd, SessionID: cmd.SessionID,
		ExitCode: cmd.ExitCode, StartedAt: cmd.StartedAt,
	}
	if out.Args == nil {
		out.Args = []string{}
	}
	if cmd.ExitCode != nil {
		out.DurationMs = &cmd.DurationMs
	}
	return out
}
