# The lab's commands. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Let Python store its compiled modules, because the tests start `bench` hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
# The series of k6 that `make setup` builds: the name of a folder in setup/k6/.
K6_SERIES := v1
SERVERS_RUST := $(dir $(wildcard servers/*/Cargo.toml))
SERVERS_GO := $(dir $(wildcard servers/*/go.mod examples/*/go.mod))
PYTEST := $(BIN)/python -m pytest --durations 25 --durations-min 3
# Exit code of pytest if the hypervisor disturbed tests that failed (tests/support/disturbance.py).
DISTURBED := 9
# $(call marked,MARK): the test modules that use this mark, in the order of their paths.
marked = $$(grep -rl --include='test_*.py' 'mark\.$(1)' tests | sort)
LOCK := $(BIN)/uv pip compile --quiet --universal --upgrade --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate
# clippy uses the target folder of the servers' builds, so that macros and common dependencies are compiled only once.
CLIPPY := cargo clippy --quiet --release --locked --all-targets --target-dir ../common-rust/target/servers -- -D warnings
SHELL_SCRIPTS := .ci/run $(wildcard setup/*.sh servers/*/*.sh)

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: report
report: setup ## The main job: measure the campaign quick, and make its tables, figures and HTML report
	@status=0; $(BIN)/bench run quick || status=$$?; \
	  if [ $$status -gt 1 ]; then exit $$status; fi; \
	  $(BIN)/bench report latest; exit $$status

.PHONY: test test-all
test: setup vegeta ## Run all tests but the long ones; a change must pass them before its commit
test-all: setup vegeta k6-both test-servers ## Run all tests, including long loads, every server, containers, the browser and faults
test: ONLY := not long and
test-all: BUILT := $(notdir $(patsubst %/server.toml,%,$(wildcard servers/*/server.toml)))
# The tests run in three phases. The first phase has the tests that measure nothing. The second phase has the tests that check times
# or only drive a load (mark `timed`). These tests mostly wait, so there is one process more than there are CPUs. The third phase has
# the tests that compare measured values (mark `load`), and runs one test at a time. In the second and third phase, pytest collects
# only the modules that use the phase's mark. The third phase begins with the folder truth and ends with the tests of several hosts,
# because `.ci/run` may leave out the last tests (tests/support/time_limit.py). A failed test runs again, alone, and the new result
# counts. If the hypervisor disturbed this second attempt, a third and a last attempt may follow (tests/support/disturbance.py). Every
# attempt is printed, and .times/ has the outcomes and times of each phase as JUnit XML.
# The binaries that long tests need are built during the first phase, so that no compiler runs while time is measured.
test test-all:
	@status=0; \
	$(if $(BUILT),PYTHONPATH=. $(BIN)/python setup/servers.py $(BUILT),:) & builds=$$!; \
	phase() { times=.times/$@-$$1; shift; code=0; \
	  $(PYTEST) --junitxml $$times.xml "$$@" || code=$$?; [ $$code != 1 ] || code=$(DISTURBED); \
	  for attempt in second third last; do [ $$code = $(DISTURBED) ] || break; code=0; \
	    ATTEMPT=$$attempt $(PYTEST) --junitxml $$times-$$attempt.xml --last-failed --last-failed-no-failures none "$${@: -2}" || code=$$?; done; \
	  [ $$code = 0 ] || status=1; }; \
	phase parallel --numprocesses logical --dist worksteal -m "$(ONLY) not load and not timed"; \
	wait $$builds || echo "not every server could be built: the tests of a missing server say so"; \
	phase timed --numprocesses $$(( $$(nproc) + 1 )) --dist loadfile $(call marked,timed) -m "$(ONLY) timed and not load"; \
	phase load $$(printf '%s\n' $(call marked,load) | tac) -m "$(ONLY) load"; \
	exit $$status

# All Rust servers share one target folder, because they share most of their dependencies.
.PHONY: test-servers
test-servers: setup ## Run the servers' unit tests (part of make test-all)
	@set -e; for server in $(SERVERS_GO); do echo "go test $$server"; (cd $$server && go test ./...); done
	@set -e; for server in $(shell grep -ls 'cfg(test)' servers/*/src/*.rs | xargs -n1 dirname | sort -u); do echo "cargo test $$server"; \
	  test="cargo test --quiet --locked --target-dir ../../common-rust/target/test -- --test-threads=1"; \
	  (cd $$server && { $$test || { echo "once more, because some of these tests measure time"; $$test; }; }); done

.PHONY: setup
setup: ## Set up .venv, k6, wrk, nginx, PostgreSQL and the binaries of the campaign quick, in parallel
	@PYTHON="$(PYTHON)" K6_SERIES=$(K6_SERIES) setup/all.sh

.PHONY: k6-both
k6-both: setup ## Build every series of k6 that the lab supports, for the tests that need all of them (part of make test-all)
	@setup/k6.sh $(notdir $(wildcard setup/k6/*))

.PHONY: vegeta
vegeta: ## Build vegeta, a load generator that some workloads use (part of make test)
	@setup/vegeta.sh

.PHONY: oha
oha: ## Build oha, a load generator that the workloads static-oha and static-oha-open use (takes many minutes)
	@setup/oha.sh

.PHONY: lint
lint: setup ## Lint and type-check Python, Rust, Go and shell
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@set -e; for server in $(SERVERS_RUST); do echo "clippy $$server"; \
	  (cd $$server && cargo fmt --check && $(CLIPPY)); done
	@set -e; for server in $(SERVERS_GO); do echo "go vet $$server"; \
	  (cd $$server && test -z "$$(gofmt -l .)" && go vet ./...); done
	@if command -v shellcheck > /dev/null; then shellcheck -x $(SHELL_SCRIPTS); \
	  else echo "shellcheck is not installed: shell scripts not checked"; fi

.PHONY: format
format: setup ## Format all sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@set -e; for server in $(SERVERS_RUST); do (cd $$server && cargo fmt); done
	@set -e; for server in $(SERVERS_GO); do gofmt -w $$server; done

.PHONY: bench-digest
bench-digest: setup ## Compare the digest's throughput with that of a bare DuckDB COPY and of pandas
	@$(BIN)/python benchmarks/digest.py

.PHONY: bench-cluster
bench-cluster: setup ## Measure how much faster two Dask workers rebuild tables than one worker
	@$(BIN)/python benchmarks/cluster.py

.PHONY: bench-sampler
bench-sampler: setup ## Measure how much CPU time the sampler takes, for different sets of sampled processes
	@$(BIN)/python benchmarks/sampler.py

.PHONY: bench-overhead
bench-overhead: setup ## Measure the cost of the lab's instruments (k6's samples, sampler, probe) against an unmodified k6 (bench overhead)
	@$(BIN)/python benchmarks/overhead.py

.PHONY: bench-profile
bench-profile: setup ## Run the campaign quick, and print how much perf slows the servers and how long the profiles take (six minutes)
	@$(BIN)/bench run quick
	@$(BIN)/python benchmarks/profile_cost.py "$$(ls -d data/runs/*-quick-* | tail -1)"

.PHONY: bench-k6
bench-k6: k6-both ## Compare the CPU time that the series of k6 need for an iteration (five minutes)
	@$(BIN)/python benchmarks/k6_series.py

.PHONY: bench-false-alarms
bench-false-alarms: setup ## Simulate how often `bench ab` decides wrongly because of the noise of real sessions (some minutes)
	@$(BIN)/python benchmarks/false_alarms.py

.PHONY: soak
soak: setup ## Run one trial of ten million iterations, check memory and counts, and add a row to docs/soak.md (half an hour)
	@$(BIN)/python benchmarks/soak.py

.PHONY: chaos
chaos: setup ## Disturb a hundred campaigns by random faults at random moments, and write the outcome to docs/reliability.md (an hour)
	@PYTHONPATH=benchmarks:. $(BIN)/python -m chaos

.PHONY: sample
sample: setup ## Measure the committed runs data/sample (claims), data/all, data/seeds and data/engines again (four hours)
	@set -e; $(BIN)/bench run claims --repeats 20 --until decided --budget 2h; $(BIN)/bench export latest --out data/sample; \
	  for run in all seeds engines; do $(BIN)/bench run $$run; $(BIN)/bench export latest --out data/$$run; done; for run in sample all seeds engines; do $(BIN)/bench report $$run; done

.PHONY: dist
dist: setup ## Build wheel, sdist and bill of materials (CycloneDX) into dist/; the version is the last tag's
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist
	@$(BIN)/python -m cyclonedx_py environment --pyproject pyproject.toml --output-reproducible $(BIN)/python 2> dist/sbom.log \
	  | $(BIN)/python setup/sbom.py dist/*.whl || { cat dist/sbom.log >&2; exit 1; }
	@rm dist/sbom.log; ls dist

.PHONY: lock
lock: setup ## Resolve all dependencies again: write requirements.lock, and setup/uv.txt for uv (with hashes, without addresses)
	$(LOCK) --group dev --extra cluster --extra fleet --extra lab --extra postgres pyproject.toml -o requirements.lock
	echo uv | $(LOCK) - -o setup/uv.txt

# $(call block,NAME,OPTION,PAGE): replace the text between the marks of NAME in PAGE by the output of `bench list OPTION`.
define block
@$(BIN)/bench list $(2) > .venv/.$(1).md
@sed -i -e '/^<!-- $(1): begin/,/^<!-- $(1): end/{//!d}' -e '/^<!-- $(1): begin/r .venv/.$(1).md' $(3)

endef

.PHONY: readme
readme: setup ## Write the parts of README.md and docs/ that are generated from the code, and the post in examples/
	$(call block,servers,--markdown,docs/servers.md)
	$(call block,claims,--claims,README.md)
	$(call block,columns,--columns,docs/data.md)
	$(call block,causes,--causes,docs/method.md)
	$(call block,invariants,--invariants,docs/method.md)
	$(call block,outcomes,--outcomes,docs/method.md)
	$(call block,campaigns,--campaigns,docs/commands.md)
	$(call block,commands,--commands,docs/commands.md)
	$(BIN)/bench publish sample --page-only --out examples/post

.PHONY: audit
audit: setup ## Check all locked dependencies for known vulnerabilities (downloads the databases of vulnerabilities)
	@setup/audit.sh

.PHONY: reliability
reliability: setup ## Update the tables of the faults that tests cause, in docs/reliability.md and docs/fleet.md
	@$(BIN)/python tests/support/fault_table.py

.PHONY: lab
lab: setup ## Open JupyterLab with the project's kernel
	@$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks
