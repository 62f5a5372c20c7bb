# Glovebox: `make run` shows it, `make test` proves it. See CONTRIBUTING.md.

# Everything is built with the same flags, so that gVisor (the longest part by
# far) is compiled once and shared by the binary, the tests and vet.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false

GOARCH  := $(shell go env GOARCH)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/glovebox-dev/glovebox/internal/cli.version=$(VERSION)
DATA    := $(CURDIR)/.glovebox
AGENT   := internal/driver/gvisor/agentbin/agent_linux_
STAGE   := scripts/stage
# Sandboxes need root; the build does not.
SUDO    := $(if $(filter-out 0,$(shell id -u)),sudo --preserve-env)

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

export GLOVEBOX_TEST_DATA := $(DATA)

.PHONY: build build-arm64 agent run image test compat vet bench lint docs clean setup-run setup-test setup-bench

build: agent ## bin/glovebox: static, with the agent inside
	@$(STAGE) "build bin/glovebox" go build -ldflags '$(LDFLAGS)' -o bin/glovebox ./cmd/glovebox

agent:
	@mkdir -p $(dir $(AGENT))
	@$(STAGE) "build the agent" env GOOS=linux GOARCH=$(GOARCH) go build -ldflags '-s -w' -o $(AGENT)$(GOARCH) ./cmd/glovebox-agent

build-arm64: ## check that the other architecture compiles
	@$(MAKE) --no-print-directory agent GOARCH=arm64
	@$(STAGE) "build for arm64" env GOOS=linux GOARCH=arm64 go build -ldflags '$(LDFLAGS)' -o bin/glovebox-linux-arm64 ./cmd/glovebox

setup-run setup-test setup-bench:
	@$(STAGE) "$@" scripts/setup $(subst setup-,,$@)

image: build ## the default image, made once
	@$(SUDO) bin/glovebox image build --data-dir $(DATA) >/dev/null

run: setup-run build image ## two snippets, each in a sandbox of its own
	@$(SUDO) scripts/tour bin/glovebox $(DATA)

test: setup-test build image vet ## every test
	@scripts/test

compat: setup-test build image ## the published client, call by call: docs/compatibility/vercel.md
	@$(STAGE) "the published client" env GLOVEBOX_WRITE_PAGE=1 go test -count=1 -timeout 20m -run TestPublishedClient ./test/compat

vet: agent
	@$(STAGE) "gofmt" scripts/gofmt
	@$(STAGE) "go vet" go vet ./...

bench: setup-bench build image ## beside runc, bwrap and stock gVisor; BENCHFLAGS are its flags
	@scripts/bench -data-dir $(DATA) $(BENCHFLAGS)

lint: vet
	@$(STAGE) "golangci-lint" scripts/lint $(GOLANGCI)

docs: build ## regenerate docs/cli.md
	@bin/glovebox docs > docs/cli.md

clean:
	@$(SUDO) rm -rf bin .glovebox $(AGENT)*
