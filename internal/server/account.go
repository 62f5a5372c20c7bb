package server

import "github.com/glovebox-dev/glovebox/api"

// The published CLI asks for a user, teams and projects when it is not told
// which to use. There are no users and teams here: every token is the same
// user in the same team, and a project is there because it is named.
const accountName = "glovebox"

type userResponse struct {
	User accountUser `json:"user"`
}

type accountUser struct {
	ID            string `json:"id"`
	Username      string `json:"username"`
	DefaultTeamID string `json:"defaultTeamId"`
}

type accountTeam struct {
	ID         string            `json:"id"`
	Slug       string            `json:"slug"`
	Name       string            `json:"name"`
	Membership map[string]string `json:"membership"`
	Billing    map[string]string `json:"billing"`
}

type teamsResponse struct {
	Teams      []accountTeam  `json:"teams"`
	Pagination teamPagination `json:"pagination"`
}

// teamPagination never has a next page; its cursor is a number.
type teamPagination struct {
	Count int    `json:"count"`
	Next  *int64 `json:"next"`
}

type accountProject struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	AccountID string `json:"accountId"`
}

func theTeam(id string) accountTeam {
	return accountTeam{
		ID: id, Slug: id, Name: id,
		Membership: map[string]string{"role": "OWNER"},
		Billing:    map[string]string{"plan": "hobby"},
	}
}

func (c *call) user() error {
	return c.ok(userResponse{User: accountUser{ID: accountName, Username: accountName, DefaultTeamID: accountName}}, nil)
}

func (c *call) teams() error {
	return c.ok(teamsResponse{Teams: []accountTeam{theTeam(accountName)}, Pagination: teamPagination{Count: 1}}, nil)
}

// team answers for whatever name: the word that a client uses for its team
// decides nothing here.
func (c *call) team() error { return c.ok(theTeam(c.param("team")), nil) }

// getProject answers for any name a token for all projects asks for, as
// projects are made on first use, and for the token's own project otherwise.
func (c *call) getProject() error { return c.okProject(c.param("project")) }

func (c *call) createProject() error {
	var req struct {
		Name string `json:"name"`
	}
	if err := c.decode(&req); err != nil {
		return err
	}
	if req.Name == "" {
		return api.BadRequest("field name: is empty; name the project")
	}
	return c.okProject(req.Name)
}

func (c *call) okProject(name string) error {
	if c.identity.Project != "" {
		name = c.identity.Project
	}
	if err := api.ValidateName("project", name); err != nil {
		return err
	}
	return c.ok(accountProject{ID: name, Name: name, AccountID: accountName}, nil)
}
