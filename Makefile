# Every command here sets up what it needs by itself: Debian or Ubuntu, Go, git and make are enough.

.DEFAULT_GOAL := help
SHELL := /bin/sh

GO       ?= go
BENCH    ?=
BENCH_LINES ?=
FAST     ?=
ARGS     ?=
PKG      ?= ./...
FUZZTIME ?= 30s
MINUTES  ?= 5
SEED     ?= 0
# Packages tested at once. Some start brokers of their own; more than two of them on two cores only wait.
JOBS     ?= 2
# Tests of a package at once, whatever the number of cores: most of them wait, for a time to come or a server to start.
PARALLEL ?= 3

# A checkout that belongs to somebody else, or has no .git, must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
# A go.work somewhere above would join the nested modules.
export GOWORK := off

# What "duebox version" says; unknown where there is no git.
VERSION     := $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)
MODULES     := . bench/compare deploy/check internal/grammar internal/signals tools
LINTER      := .bin/golangci-lint
GENERAL_LOG := .tmp/general.log
# They take the longest: started first, none of them runs alone in the end.
LONGEST     := ./worker ./outbox/rabbitmq ./outbox ./internal/chaos
GO_TEST     := $(GO) test -race -shuffle=on -timeout=15m -p=$(JOBS) -parallel=$(PARALLEL)

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup ## run the whole system once, orders to effects, and check it (ARGS="--orders 1000 --kill-broker")
	@$(GO) build -ldflags '-X main.linkedVersion=$(VERSION)' -o .bin/duebox ./cmd/duebox
	@.bin/duebox demo $(ARGS)

.PHONY: up
up: .env ## start MySQL, RabbitMQ, api and worker with docker compose
	VERSION='$(VERSION)' docker compose up --build --detach --wait

.PHONY: down
down: ## stop what "make up" started; the data stays
	docker compose down

.PHONY: test
test: setup-tests .bin/with ## run every test with -race on private services, then check the SQL that they sent, dashboards and alerts (PKG=./outbox/...)
	@rm -f $(GENERAL_LOG) && mkdir -p .tmp
# Compiled first: a compiler on every core is no company for tests of time.
	@CGO_ENABLED=1 $(GO) test -race -c -o /dev/null $(PKG) >/dev/null
	@CGO_ENABLED=1 .bin/with --general-log $(CURDIR)/$(GENERAL_LOG) -- $(GO_TEST) $(if $(filter ./...,$(PKG)),$(LONGEST)) $(PKG)
# With MYSQL_DSN set the suite runs on a server of yours, and there is no log; a part of it sends a part of the SQL.
	@if [ -z "$$MYSQL_DSN" ] && [ '$(PKG)' = ./... ]; then \
		cd internal/grammar && GENERAL_LOG=$(CURDIR)/$(GENERAL_LOG) $(GO) test -shuffle=on ./...; \
	fi
	@cd internal/signals && $(GO) test -shuffle=on ./...
	@cd bench/compare && CGO_ENABLED=1 $(GO_TEST) ./...

.PHONY: test-newer
test-newer: ## run the tests on MySQL 9 and RabbitMQ 4.3 of Debian unstable in a chroot (root only)
	@JOBS=$(JOBS) PARALLEL=$(PARALLEL) scripts/test-newer.sh $(PKG)

.PHONY: chaos
chaos: setup ## run the system under random faults for MINUTES (5) by SEED (random), then show that builds which lack a part fail
	@$(GO) build -o .bin/chaos ./internal/chaos/suite
	@$(GO) build -o .bin/duebox ./cmd/duebox
	@.bin/chaos --minutes $(MINUTES) --seed $(SEED)
	@set -e; for part in guard epoch reconcile; do \
		$(GO) build -tags duebox_no$$part -o .bin/duebox-no$$part ./cmd/duebox; \
		.bin/chaos --without $$part --program .bin/duebox-no$$part --seed $(SEED) --logs .tmp/chaos-no$$part; \
	done

.PHONY: soak
soak: setup-tests .bin/with ## run every scenario at the durations that are written for it: more than half an hour
	@CGO_ENABLED=1 DUEBOX_SOAK=1 .bin/with -- $(GO) test -race -shuffle=on -timeout=3h -p=1 -run '^TestScenario' $(PKG)

.PHONY: bench
bench: setup .bin/bench ## measure, one JSON line each, and fail if a figure that bench-docs has stored is missed by far (BENCH=name; .bin/bench -h)
	@.bin/bench -stored docs/benchmarks.json $(BENCH)

.PHONY: bench-docs
bench-docs: setup .bin/bench ## measure everything, or take the lines in BENCH_LINES=file, and write docs/benchmarks.md and the figures to store
	@.bin/bench -docs docs $(if $(BENCH_LINES),-lines '$(BENCH_LINES)')

.PHONY: compare
compare: setup ## run twelve ways to close an unpaid order side by side, over an hour, and write docs/comparison.md (FAST=1 or ARGS="-h": a part of it, into .tmp/comparison)
	@cd bench/compare && $(GO) build -o ../../.bin/compare .
	@.bin/compare -docs $(if $(FAST)$(ARGS),.tmp/comparison,docs) $(if $(FAST),-fast) $(ARGS)

.PHONY: fuzz
fuzz: setup .bin/with ## run every fuzz test for FUZZTIME (30s)
	@CGO_ENABLED=1 .bin/with -- $(MAKE) --no-print-directory fuzz-each

.PHONY: fuzz-each
fuzz-each:
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			(cd "$$(dirname "$$file")" && $(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=10x .); \
		done; \
	done

.PHONY: lint
lint: setup $(LINTER) ## lint all modules, show that each room rule fires, and check what is below deploy
	@status=0; for module in $(MODULES); do \
		echo "golangci-lint: $$module"; \
		(cd $$module && $(CURDIR)/$(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...) || status=1; \
	done; exit $$status
	@cd tools && $(GO) test ./...
	@cd deploy/check && $(GO) test -shuffle=on ./...

.PHONY: fmt
fmt: $(LINTER) ## format all modules
	@set -e; for module in $(MODULES); do \
		(cd $$module && $(CURDIR)/$(LINTER) fmt --config=$(CURDIR)/.golangci.yml ./...); \
	done

.PHONY: clean
clean: ## remove what make built here
	rm -rf .bin .tmp

.PHONY: setup setup-tests
setup:
	@scripts/setup.sh
setup-tests:
	@scripts/setup.sh tests

# The tools module names the version; its checksums are in tools/go.sum.
$(LINTER): tools/go.mod tools/go.sum
	@echo "building golangci-lint, once: takes minutes with a cold cache"
	@cd tools && $(GO) build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

# A program of its own and not "go run", which passes no signals on and makes every exit code 1.
.PHONY: .bin/bench
.bin/bench:
	@$(GO) build -o $@ ./bench

.PHONY: .bin/with
.bin/with:
	@$(GO) build -o $@ ./internal/devenv/with

.env:
	@umask 077; while IFS= read -r line; do \
		case $$line in \
		*=) printf '%s=%s\n' "$${line%=}" "$$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" ;; \
		*) printf '%s\n' "$$line" ;; \
		esac; \
	done <.env.example >.env
	@echo "wrote .env with new passwords"
