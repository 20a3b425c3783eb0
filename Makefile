# Everything below installs into ./.venv and nowhere else. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
STACK ?= dev
ifeq ($(origin stack),command line)
$(error The stack is named in capitals: STACK=$(stack))
endif
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
LOCALLB := $(BIN)/locallb --stack "$(STACK)"

.PHONY: help setup up watch down preview status doctor test coverage test-slow test-quick test-part test-checkout test-wheel test-cluster test-pulumi test-kubelets test-raised test-upstream test-conformance soak lint format goldens bench wheel docs release image clean

up watch down preview status doctor: export LOCALLB_BY_MAKE := 1

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The commands in .venv name its path: where the directory was renamed or copied they are another one's, or nobody's.
MOVED := $(shell [ -L .venv ] || [ -L .venv/bin ] || [ ! -f .venv/bin/locallb ] || grep -qsF "$(CURDIR)/.venv/bin/python" .venv/bin/locallb || echo yes)
ifeq ($(MOVED),yes)
.PHONY: venv-moved
venv-moved:
	@echo "This directory was moved or copied: making .venv again ..."
	@rm -rf .venv
.venv/runtime: venv-moved
endif

.venv/runtime: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "local-lb needs Python 3.11 or newer with the venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -m compileall -q locallb
	@touch $@

.venv/dev: .venv/runtime requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

setup: .venv/runtime ## Make .venv with all that local-lb needs

up: setup ## Set everything up and serve the stack's Services (STACK=dev: the example)
	@if [ "$(STACK)" = dev ]; then $(BIN)/python examples/shop/backends.py start; fi
	@$(LOCALLB) up --yes

watch: setup ## Keep the stack converged until it is stopped; what serves goes on serving
	@if [ "$(STACK)" = dev ]; then $(BIN)/python examples/shop/backends.py start; fi
	@exec $(LOCALLB) watch

down: setup ## Remove all that `make up` made
	@$(LOCALLB) destroy --yes
	@if [ "$(STACK)" = dev ]; then $(BIN)/python examples/shop/backends.py stop; fi

preview: setup ## Show what `make up` would change
	@$(LOCALLB) preview

status: setup ## Show Services, addresses and health
	@$(LOCALLB) status

doctor: setup ## Say what this host allows, what is in the way, and what to do about it
	@$(LOCALLB) doctor

JOBS ?= 2
test test-slow: JOBS = 3 # these wait more than they compute

test: .venv/dev ## Check the code and test it, real Envoys included (eleven minutes)
	@[ ! -d locallb ] || $(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(PYTEST_ARGS) \
		-m "not slow and not docker and not cluster and not soak and not pulumi"

coverage: .venv/dev ## Say how much of the pure code tables and golden files reach
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -p tests.pure_coverage --cov --cov-report= $(PYTEST_ARGS) \
		-m "not slow and not docker and not cluster and not soak and not pulumi and not hypothesis and not envoy" \
		$$($(BIN)/python -c 'from tests.pure_coverage import TESTS; print(*TESTS)')

test-slow: .venv/dev ## Run the slow tier: kills, scale, faults of the host, the loop, containers
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(PYTEST_ARGS) -m "(slow or docker or root) and not cluster and not soak and not pulumi"

test-quick: .venv/dev ## Run the tests that need neither Envoy nor patience
	@$(BIN)/python -m pytest -q -m "not envoy and not slow and not cluster and not soak and not pulumi"

PART := cli crds docs packaging provider runtimes takeover

test-part: .venv/dev ## Run what an installation could break of `make test`: commands, pages, data, programs, without laws
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(PYTEST_ARGS) \
		-m "not slow and not docker and not cluster and not soak and not pulumi and not hypothesis" $(PART:%=tests/%)

test-checkout: .venv/dev ## Run what `make test` and the wheel leave out: slower tests of the repository itself (once test-cluster was built)
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(PYTEST_ARGS) -m "checkout and (slow or docker or root or cluster or pulumi) and not kubelets"

test-wheel: .venv/dev ## Run a tier against the wheel, installed where no checkout is on the path (TIER=test-slow: another than test)
	@room=$$(mktemp -d /tmp/locallb-wheel.XXXXXX) && trap 'rm -rf "$$room"' EXIT && tests/wheel.sh "$$room" && \
		make --no-print-directory -C "$$room" "$(or $(TIER),test)"

test-cluster: .venv/dev ## Run the tests against real Kubernetes: API, Nodes with kube-proxy (root, etcd; builds once)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.support.cluster_build
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(PYTEST_ARGS) -m "cluster and not kubelets and not pulumi"

test-pulumi: .venv/dev ## Run the tests with Pulumi's own CLI (builds once, with Go)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.support.pulumi_build
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(PYTEST_ARGS) -m pulumi

test-kubelets: .venv/dev ## Run the tests against real kubelets: Nodes are containers (Docker, mmdebstrap; builds once)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.support.kubelets_ready
	@$(BIN)/python -m pytest -q $(PYTEST_ARGS) -m "kubelets and not pulumi"

test-raised: .venv/dev ## Run the tests of 300 Services and of 100 in a cluster with a raised inotify limit (as root)
	@bash tests/raised_limit.sh $(PYTEST_ARGS)

test-upstream: .venv/dev ## Run Kubernetes' own tests of LoadBalancers against watch on real kubelets (half an hour)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.kubelets.upstream

test-conformance: .venv/dev ## Run Gateway API's conformance suite against watch on real kubelets (needs what those do; REPORT=FILE)
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.conformance $(if $(REPORT),--report "$(REPORT)")

soak: .venv/dev ## Shake a live cluster's stack for MINUTES=5 with faults of every kind
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@$(BIN)/python -m tests.support.cluster_build
	@LOCALLB_SOAK_MINUTES=$(or $(MINUTES),5) $(BIN)/python -m pytest -q $(PYTEST_ARGS) -s -m soak

lint: .venv/dev ## Check style, types and the layers
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary --num-workers $(JOBS)
	@$(BIN)/lint-imports --no-cache >.venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }

format: .venv/dev ## Format the code
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

goldens: .venv/dev ## Write the golden files
	@$(BIN)/python -m pytest -q --update-goldens -m "not slow and not cluster and not soak and not pulumi"

bench: .venv/dev ## Measure everything on an otherwise idle machine, for docs/benchmarks.md
	@mkdir -p benchmarks/results
	@for name in proxy docker watch cluster real scale throughput gateways_live; do [ -f benchmarks/$$name.py ] || continue; echo "== $$name"; \
		$(BIN)/python -m benchmarks.$$name >benchmarks/results/$$name.new && mv benchmarks/results/$$name.new benchmarks/results/$$name.json \
		|| { echo "$$name failed; its result stays as it was"; rm -f benchmarks/results/$$name.new; }; done
	@for name in commands engine preview http inspected gateways gateway_events names; do echo "== $$name"; $(BIN)/python -m benchmarks.$$name; done
	@$(BIN)/python -m benchmarks.report

wheel: .venv/dev ## Build dist/local_lb-*.whl, which needs no checkout: for pipx, uv or pip
	@rm -rf build dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1700000000) $(BIN)/python -m pip wheel --quiet \
		--disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build && ls dist

.venv/release: .venv/dev requirements-release.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-release.txt
	@$(BIN)/python -m tests.packaging.pins
	@touch $@

docs: .venv/release ## Build the documentation as a site in build/site; a link that leads nowhere fails
	@rm -rf .cache/site build/site && mkdir -p .cache/site
	@git ls-files | grep -vE '^(tests|locallb)/|^docs/mkdocs.yml$$' | tar -cf - -T - | tar -xf - -C .cache/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --config-file docs/mkdocs.yml
	@$(BIN)/python -m tests.docs.site build/site

release: .venv/release ## Build all of a release in dist/: wheel, sdist, bill of materials, site, checksums (DRAFT=yes: also before CHANGELOG.md is cut; IMAGE=NAME: an image too)
	@deploy/release $(BIN)/python "$(DRAFT)" "$(if $(filter command environment,$(origin IMAGE)),$(IMAGE))" "$(BASE)"

BASE ?= python:3.13-slim
IMAGE ?= local-lb:latest

image: wheel ## Build an image of the wheel with Docker (IMAGE=local-lb:latest) on any base with Python (BASE=python:3.13-slim)
	@deploy/image/build $(BIN)/python "$(BASE)" "$(IMAGE)"

clean: ## Remove .venv and caches (first `make down`)
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
