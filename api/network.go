package api

import (
	"net/url"
	"strconv"
)

// Events of a NetworkRecord.
const (
	NetworkDecision = "decision"
	NetworkEnd      = "end"
	NetworkDropped  = "dropped"
)

// Verdicts of a NetworkRecord.
const (
	VerdictAllow = "allow"
	VerdictDeny  = "deny"
)

// NetworkRecord is one decision about a sandbox's traffic, the end of what
// one let through, or a gap in what a follower sees.
type NetworkRecord struct {
	// Seq numbers the records of a session from 1 on.
	Seq   int64  `json:"seq,omitempty"`
	Time  int64  `json:"time,omitempty"`
	Event string `json:"event"`
	// Of is, in an end, the Seq of the decision.
	Of int64 `json:"of,omitempty"`

	Verdict  string   `json:"verdict,omitempty"`
	Protocol string   `json:"protocol,omitempty"` // tcp, udp, dns, http, …
	Name     string   `json:"name,omitempty"`     // that was asked for, or that led to the address
	Aliases  []string `json:"aliases,omitempty"`  // other names that the address was given out for
	Address  string   `json:"address,omitempty"`
	Port     int      `json:"port,omitempty"`
	Query    string   `json:"query,omitempty"` // type of a DNS query
	Method   string   `json:"method,omitempty"`
	Path     string   `json:"path,omitempty"`
	Status   int      `json:"status,omitempty"`
	// Rule is what decided: "allow-all", "allow *.example.com",
	// "subnets.deny 203.0.113.0/24", "private range", …
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Of an end: bytes as the sandbox sees them, and how long it took.
	Transfer   *NetworkTransfer `json:"transfer,omitempty"`
	DurationMs *int64           `json:"durationMs,omitempty"`

	// Dropped is, in a gap, how many records are no longer kept.
	Dropped int64 `json:"dropped,omitempty"`
}

// NetworkLog answers GET of a session's network-log.
type NetworkLog struct {
	SessionID string          `json:"sessionId"`
	Records   []NetworkRecord `json:"records"`
	// Dropped is how many of the records asked for are no longer kept.
	Dropped int64 `json:"dropped"`
	// Next is what to give as since to go on from here.
	Next int64 `json:"next"`
	// Ended: the session is over, nothing will follow.
	Ended bool `json:"ended"`
}

// NetworkSum is what a session did with one name, or with an address that no
// name led to.
type NetworkSum struct {
	Name        string          `json:"name,omitempty"`
	Address     string          `json:"address,omitempty"`
	Lookups     int64           `json:"lookups"`
	Answered    bool            `json:"answered"` // a look-up found something
	Connections int64           `json:"connections"`
	Datagrams   int64           `json:"datagrams"` // UDP sessions
	Refused     int64           `json:"refused"`
	Transfer    NetworkTransfer `json:"transfer"`
}

// NetworkSummary answers GET of a session's network-summary.
type NetworkSummary struct {
	SessionID string `json:"sessionId"`
	// Transfer of the session so far, previews included.
	Transfer NetworkTransfer `json:"transfer"`
	// Sums, most traffic first.
	Sums []NetworkSum `json:"sums"`
	// Other is all beyond the first 1024 names and addresses.
	Other *NetworkSum `json:"other,omitempty"`
}

// ParseNetworkLog reads since from a query string: the Seq of the last record
// that is known.
func ParseNetworkLog(q url.Values) (since int64, err error) {
	if !q.Has("since") {
		return 0, nil
	}
	since, err = strconv.ParseInt(q.Get("since"), 10, 64)
	if err != nil || since < 0 {
		return 0, BadRequest("query since: %q must be the number of a record, or 0 for all; give next of the answer before", clip(q.Get("since")))
	}
	return since, nil
}
