// Package api is the wire of Glovebox's HTTP API: requests, answers, error
// codes, ids, limits and the validation of what clients send. Server and
// clients share it, and it imports nothing of theirs.
//
// Times on the wire are milliseconds since 1970, durations milliseconds,
// memory is in MB (2^20 bytes). Unknown fields of a request are ignored.
package api

// Identity is who a token stands for.
type Identity struct {
	// Project that the token is bound to; "" for a token that may use any.
	Project string
}

// Pagination closes every list: Count items on this page, and the cursor of
// the next page or null.
type Pagination struct {
	Count int     `json:"count"`
	Next  *string `json:"next"`
}

// Status tells what the server runs.
type Status struct {
	Version              string       `json:"version"`
	Driver               string       `json:"driver"`
	StartedAt            int64        `json:"startedAt"`
	RunningSessions      int          `json:"runningSessions"`
	Machines             int          `json:"machines"`
	MemoryCommittedBytes int64        `json:"memoryCommittedBytes"`
	MemoryLimitBytes     int64        `json:"memoryLimitBytes"`
	Pool                 []PoolStatus `json:"pool"`
}

// PoolStatus tells of the warm machines of one image and size.
type PoolStatus struct {
	Image       string `json:"image"`
	VCPUs       int    `json:"vcpus"`
	MemoryBytes int64  `json:"memoryBytes"`
	Ready       int    `json:"ready"`
	Starting    int    `json:"starting"`
	Target      int    `json:"target"`
	Hits        int64  `json:"hits"`
	Misses      int64  `json:"misses"`
}

// Empty is the answer of calls that have nothing to tell.
type Empty struct{}
