# Every target installs missing dependencies (tools/prepare) and reports it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help

BIN := .venv/bin
CARGO := $(BIN)/cargo
FUZZ_SECONDS ?= 600
# Lints are errors with this compiler and in CI; a newer compiler has new lints, which must not break `make test`.
CLIPPY_VERSION := 1.95
PYTEST_ARGS ?=
# Most tests wait for something: three at a time keep two cores busy.
TEST_WORKERS ?= 3
# Tests that need more are skipped: none (any user), namespaces, root.
TEST_NEEDS ?= root
MUTANTS_ARGS ?=
# The patched Open vSwitch to build: a directory of ovs-patches.
OVS_VERSION ?= 3.1
# Open vSwitch's own tests of what the patches change.
OVS_TESTS ?= -k pcie -k tunnel -k dpif-netdev -k PMD -k recirculation
FIGURES_ARGS ?=
FAULTS_ARGS ?=
# Where `make man` writes to.
MAN ?= build/man
# ovs-vswitchd, ip and ethtool live in sbin, which an ordinary user's PATH lacks on Debian.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
# The copy inside the wheel; without this pyright looks for a newer one on the network.
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1

PYTHON_SOURCES = $(wildcard lab nfagent placement server unoctl examples tests bench) tools/profile tools/mutants
SHELL_SOURCES = tools/prepare tools/mininet tools/train oneswitch/profile/rustc tools/check-compose tools/check-packages tools/debian-tree packaging/build packaging/cargo-static packaging/completion packaging/container/sandbox ovs-patches/build .ci/run

.PHONY: help build prepare-run prepare-test demo test lint test-rust test-python test-unit ovs test-ovs soak faults fuzz train mutants screenshots figures deny lock man packages news clean

help: ## show this list
	@echo "One server with smart NICs as one OpenFlow switch. Start with: make demo"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target what; do \
		printf '  make %-12s %s\n' "$$target" "$$what"; done

build: ## build everything; unoctl, uno-lab and oneswitchd are in .venv/bin
	@tools/prepare build

prepare-run: build
	@tools/prepare run

prepare-test: build
	@tools/prepare test

demo: prepare-run ## deploy a load balancer on an emulated server and migrate it under traffic (a minute, after the build)
	@$(BIN)/uno-lab demo

test: prepare-test lint test-rust test-python ## run all checks that CI runs

man: ## render the manual pages, from docs/man into build/man
	@tools/prepare man
	@mkdir -p "$(MAN)"
	@for page in docs/man/*.md; do \
		pandoc --from markdown-smart --to man --standalone --shift-heading-level-by=-1 --output "$(MAN)/$$(basename "$$page" .md)" "$$page"; done

packages: build ## build a wheel and Debian packages into build/packages
	@tools/prepare packages
	@packaging/build

news: prepare-test ## print what news/ says about the next release; VERSION=0.2.0 moves it to NEWS.md
	@$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version unreleased)

lint: prepare-test ## check formatting, types, imports and lints of Python, Rust and shell
	@echo "==> ruff, import-linter, pyright, shellcheck"
	@$(BIN)/ruff check --quiet $(PYTHON_SOURCES)
	@$(BIN)/ruff format --quiet --check $(PYTHON_SOURCES) || { \
		echo "error: not formatted; run: $(BIN)/ruff format $(PYTHON_SOURCES)" >&2; exit 1; }
	@found=$$($(BIN)/lint-imports --no-cache --no-logo) || { echo "$$found" >&2; exit 1; }
	@$(BIN)/pyright --warnings
	@$(BIN)/shellcheck $(SHELL_SOURCES)
	@echo "==> rustfmt, clippy (the first time compiles all dependencies: a few minutes)"
	@$(CARGO) fmt --all --check
	@deny=(-D warnings); [[ -n $${CI:-} || $$($(CARGO) clippy --version) == *" 0.1.$(CLIPPY_VERSION:1.%=%) "* ]] || deny=(); \
		$(CARGO) clippy --locked --workspace --all-targets --quiet -- "$${deny[@]}"

test-rust: build ## run the tests of the Rust crates
	@echo "==> cargo test (the first time compiles all dependencies: a few minutes)"
	@$(CARGO) test --locked --workspace --quiet

test-python: prepare-test ## run the tests of all parts together; PYTEST_ARGS="-k name" selects some, TEST_NEEDS=none those that any user can run
	@echo "==> pytest"
	@$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --dist worksteal --durations 20 --needs $(TEST_NEEDS) $(PYTEST_ARGS)

test-unit: TEST_NEEDS := none
test-unit: test-python ## run the Python tests that need neither root nor namespaces

ovs: ## build Open vSwitch with ovs-patches into .venv/ovs-3.1, without root (minutes); OVS_VERSION=4.0 another one
	@tools/prepare ovs
	@ovs-patches/build $(OVS_VERSION)

test-ovs: prepare-test ovs ## run the tests of ovs-patches, and Open vSwitch's own tests of what they change; OVS_VERSION=4.0
	@UNO_OVS_TEST=$(OVS_VERSION) $(BIN)/python -m pytest tests/ovs
	@ovs-patches/build $(OVS_VERSION) check $(OVS_TESTS)

soak: build ## run the long tests, which are not part of `make test`
	@tools/prepare soak
	@$(BIN)/python -m pytest -m soak $(PYTEST_ARGS) || { \
		status=$$?; [[ $$status == 5 ]] && echo "No test is marked soak yet." || exit $$status; }

faults: prepare-test ## every pair of faults in nfagent's state machines, on made-up switches; goes on where it was ended; FAULTS_ARGS="memfd --jobs 1"
	@$(BIN)/python -m tests.nfagent.faults.pairs $(FAULTS_ARGS)

fuzz: build ## fuzz codec, parsers of packets, HTTP and TLS, splice, ipsec, assets, firewall, nf-dpi's rings, the sockets of nf and offload, FUZZ_SECONDS=600; needs a nightly Rust
	@$(CARGO) +nightly --version >/dev/null 2>&1 || { \
		echo "error: cargo-fuzz needs the nightly toolchain; get it with: rustup toolchain install nightly" >&2; exit 1; }
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
		echo "==> Installing cargo-fuzz (a minute or two)"; $(CARGO) install --locked cargo-fuzz; }
	@for room in oneswitch/fuzz nfs/fuzz; do for target in $$($(CARGO) fuzz list --fuzz-dir $$room); do \
		echo "==> fuzzing $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p $$room/corpus/$$target; \
		seeds=$$room/seeds/$$target; [[ -d $$seeds ]] || seeds=; \
		$(CARGO) +nightly fuzz run --fuzz-dir $$room "$$target" $$room/corpus/$$target \
			$$seeds -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done; done

train: prepare-run ## renew oneswitch/profile, by which rustc optimises oneswitchd; needs llvm-profdata
	@tools/train

mutants: prepare-test ## insert faults into changed files and list those that no test detects; MUTANTS_ARGS="--sample 100 nfs/tables"
	@tools/prepare mutants
	@tools/mutants $(MUTANTS_ARGS)

screenshots: prepare-test ## retake docs/dashboard-*.png
	@$(BIN)/python -m tests.nfagent.dashboard.pictures docs

figures: prepare-test ## draw docs/figures/*.svg from saved results of benchmarks; FIGURES_ARGS="--measure hnlb" runs bench/hnlb first
	@bench/draw $(FIGURES_ARGS)

deny: build ## check licences, sources and duplicates of the Rust dependencies (offline once installed)
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		echo "==> Installing cargo-deny (several minutes)"; $(CARGO) install --locked cargo-deny; }
	@$(CARGO) fetch --locked --quiet
	@$(CARGO) deny --offline check bans licenses sources

lock: build ## update requirements.lock from pyproject.toml to the newest versions
	@[[ -x $(BIN)/uv ]] || $(BIN)/python -m pip --disable-pip-version-check install -q uv
	@{ echo '# The exact versions that `make build` installs and CI tests. Written by `make lock`; do not edit.'; \
		$(BIN)/uv pip compile -q --upgrade pyproject.toml --extra dev --universal --python-version 3.11 \
			--no-header --annotation-style line; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean: ## delete everything that make created
	rm -rf .venv target build mutants mutants.out *.egg-info oneswitch/fuzz/target nfs/fuzz/target .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
