# `make run` and `make test` are all that a fresh machine needs: git, make, curl, build-essential and
# rustup's cargo. What else is missing, `make deps` installs or names. RocksDB is compiled once for each machine: cargo
# finds it by .cargo/rocksdb.toml, which `make rocksdb` writes. One cargo profile everywhere but for `make dist`.

.DEFAULT_GOAL := help
.PHONY: help run build check test test-deps docs licences dist soak contrib scenarios rocksdb deps

export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)

help: ## this text
	@echo "kvorum, a replicated key-value store"
	@sed -n 's/^\([a-z]*\):.* ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: build ## three nodes on 127.0.0.1:8080, 8081 and 8082, their data under ./data; says what to try; Ctrl-C stops them
	@exec $(TARGET)/release/kvorum dev

build: rocksdb ## the binary, in release/kvorum of the target directory
	cargo build --release --locked --workspace

check: rocksdb ## format, lints and the tests inside the crates: for use while you change something
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo test --release --locked --workspace --lib --bins

test: test-deps build docs licences ## format, lints, documentation, licences, and every test
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --workspace --no-deps
	cargo test --release --locked --workspace
	cargo test --release --locked -p kvorum-sim --features mutants --test mutants
	$(INTERLEAVINGS)

# Each run draws its own seeds and prints them.
ROUNDS ?= 10
SEEDS ?= 20000
INTERLEAVINGS := cargo test --release --locked -p kvorum-base -p kvorum-storage -p kvorum-peer -p kvorum-replication --features interleavings --lib interleavings
PROCESS := cargo test --release --locked -p kvorum --test process --
soak: build ## SEEDS=20000 simulated clusters; ten minutes of attack; the crash tests, ROUNDS=10 times; the fuzz targets; the scenarios; more
	first=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') && \
		cargo run --release --locked -p kvorum-sim -- --seeds $$first..$$((first + $(SEEDS)))
	KVORUM_TEST_ATTACK_SECONDS=600 $(PROCESS) --nocapture through_every_fault
	KVORUM_TEST_KILL_ROUNDS=200 $(PROCESS) --nocapture killing_all_nodes
	KVORUM_TEST_RESURRECTION_ROUNDS=20 $(PROCESS) --nocapture no_deleted_key_returns
	for round in $$(seq $(ROUNDS)); do $(PROCESS) crash || exit 1; done
	scripts/fuzz 60
	KVORUM_TEST_INTERLEAVINGS=1000000 $(INTERLEAVINGS)
	KVORUM_TEST_MALFORMED=10000000 $(PROCESS) malformed::
	$(MAKE) scenarios

scenarios: build ## the five published measurements, quickly: five minutes; reports in target/scenarios
	$(TARGET)/release/kvorum bench scenario all --quick --out $(TARGET)/scenarios --data-dir $(TARGET)/scenarios/data

contrib: build ## everything in contrib/ against three nodes; needs wrk, and Maven for YCSB
	contrib/check

docs: ## the book, in book/ of the target directory, and the documents' links, names and sentences
	mdbook=$$(scripts/tool mdbook) && "$$mdbook" build docs --dest-dir "$(abspath $(TARGET))/book"
	cargo test --release --locked -p kvorum --test docs

licences: ## licences and sources of all dependencies, by deny.toml
	cargo fetch --locked
	deny=$$(scripts/tool cargo-deny) && "$$deny" --offline check licenses bans sources

dist: rocksdb ## a tarball for this machine's architecture, in dist/ of the target directory: binary, man pages, completions, licences
	@scripts/dist

rocksdb: deps ## RocksDB for all checkouts on this machine, in ~/.cache/kvorum/rocksdb
	@scripts/rocksdb

deps: ## what the build needs from the system: libclang; as root also iptables
	@scripts/deps

test-deps:
	@scripts/deps tests
