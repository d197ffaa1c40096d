# hostler: what one does with the source tree. `make demo` and `make test` are enough to begin; `make help` lists the rest.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO ?= cargo
INSTALL ?= install
OBJCOPY ?= objcopy
# Where `make install` puts things: DESTDIR is in front of every path and appears in no file, PREFIX is part of the paths.
DESTDIR ?=
PREFIX ?= /usr
SYSCONFDIR ?= /etc
BINDIR := $(PREFIX)/bin
MANDIR := $(PREFIX)/share/man
UNITDIR := $(PREFIX)/lib/systemd/system
PRESETDIR := $(PREFIX)/lib/systemd/system-preset
# Drop-ins of the unit; a host links those that it needs, see docs/operations.md.
DROPINDIR := $(PREFIX)/share/hostler/systemd
# Where gdb and the backtraces of a panic look for the symbols of a stripped binary.
DEBUGDIR := $(PREFIX)/lib/debug$(BINDIR)
# Runs programs of another architecture while they write their man pages: RUN="qemu-aarch64 -L SYSROOT".
RUN ?=
# Cargo's own variable moves the build elsewhere; follow it.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET_DIR)/release/hostler
CONTROLLER := $(TARGET_DIR)/release/hostler-controller
FIGURES := $(TARGET_DIR)/figures
# Seconds that `make fuzz` gives each target.
FUZZ_SECONDS ?= 60
# Sections of the figures that `make bench COMPARE=...` takes: all, unless some are named.
SECTIONS ?=

.PHONY: help build demo demo-cluster test test-machine test-fabric test-power machine-shell lint unit-check bench fuzz docs install uninstall packages image test-packages clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(firstword $(MAKEFILE_LIST))

build: ## Build the optimised binaries
	@tools/deps.sh build
	HOSTLER_REVISION=$$(git rev-parse --short=12 HEAD 2>/dev/null) $(CARGO) build --release --locked --package hostler --package hostler-controller

demo: ## Install what is missing, build, and show a claim's whole life on this machine
	@tools/deps.sh test
	$(CARGO) build --locked --package hostler --package hostler-demo --no-default-features --bin hostler --bin demo
	$(TARGET_DIR)/debug/demo

demo-cluster: ## Show on this machine how a cluster keeps devices for a job, then its page until Ctrl-C (ONCE=1: ends by itself)
	@tools/deps.sh build
	$(CARGO) build --locked --package hostler --package hostler-controller --package hostler-demo \
		--bin hostler --bin hostler-controller --bin demo-cluster
	$(TARGET_DIR)/debug/demo-cluster $(if $(ONCE),--once)

# More than half of the time of tests is waiting for something to happen: with two threads for each processor, a third of the
# processors' time was idle.
TEST_THREADS ?= $(shell echo $$(($$(nproc) * 3)))

# Documentation tests go first: nextest does not run them, and the last lines should be the summary of all others. Programs that
# measure (controller/examples) have no tests, and would be linked for nothing: `make lint` compiles them.
test: ## Install what is missing and run every test
	@tools/deps.sh test
	$(CARGO) test --locked --workspace --doc
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --locked --workspace --tests --no-fail-fast --test-threads $(TEST_THREADS); \
	else \
		$(CARGO) test --locked --workspace --tests --no-fail-fast; \
	fi

# One machine after the other: each takes a processor, and is started anew for every test.
# A processor in software is slow, and a busy host makes it slower: a test that fails gets a second boot, and the summary says so.
test-machine: ## Test on an emulated machine with NUMA nodes, CXL memory and a network card (Debian; needs no root)
	@tools/deps.sh test
	HOSTLER_MACHINE=$$(tools/machine.sh); export HOSTLER_MACHINE; \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --locked --test machine --run-ignored only --test-threads 1 --no-fail-fast --retries 1 -E 'not test(/^(shell|power|storm|rack|fabric)::/)'; \
	else \
		$(CARGO) test --locked --test machine -- --ignored --test-threads 1 --skip shell:: --skip power:: --skip storm:: --skip rack:: --skip fabric::; \
	fi

# The emulated kernel stops for good in one run of four, while it takes memory offline: not for CI.
test-fabric: ## Test on emulated machines that share an enclosure: a card goes from one to the other (takes five minutes)
	@tools/deps.sh test
	$(CARGO) build --locked -p hostler-controller
	HOSTLER_MACHINE=$$(tools/machine.sh); export HOSTLER_MACHINE; \
	$(CARGO) nextest run --locked --test machine --run-ignored only --test-threads 1 --no-fail-fast --retries 3 -E 'test(/^fabric::/)'

test-power: ## Cut the power of an emulated machine at every flush of a storm of claims, on four file systems (takes half an hour)
	@tools/deps.sh test
	HOSTLER_MACHINE=$$(tools/machine.sh); export HOSTLER_MACHINE; \
	$(CARGO) test --locked --test machine -- --ignored --nocapture --test-threads 1 power::

machine-shell: ## Boot the emulated machine and type commands to it
	@tools/deps.sh test
	HOSTLER_MACHINE=$$(tools/machine.sh); export HOSTLER_MACHINE; \
	$(CARGO) test --locked --test machine -- --ignored --nocapture shell::

# The documentation is for those who change hostler: private items are part of it, and may be linked to.
lint: unit-check ## Formatting, clippy, documentation, import rules, licences and scripts
	@tools/deps.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
		$(CARGO) doc --locked --workspace --no-deps --document-private-items
	$(CARGO) test --locked --quiet --test architecture
	if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --workspace --locked check bans licenses sources; \
		if $(CARGO) deny --locked fetch db 2>/dev/null; then \
			$(CARGO) deny --workspace --locked check advisories; \
		else \
			echo "lint: the advisory database cannot be reached: known vulnerabilities are not checked"; \
		fi; \
	else \
		echo "lint: cargo-deny is not installed: licences, bans and sources are not checked"; \
	fi
	if command -v shellcheck >/dev/null 2>&1; then \
		shellcheck tools/*.sh .ci/run; \
	fi

# systemd-analyze looks for the binary that the unit names; a stand-in lets it check a tree where nothing is installed.
unit-check: ## Check the systemd unit and its exposure (where systemd-analyze is installed)
	@if ! command -v systemd-analyze >/dev/null 2>&1; then \
		echo "lint: systemd-analyze is not installed: the unit is not checked"; \
		exit 0; \
	fi; \
	work=$$(mktemp -d); \
	trap 'rm -rf "$$work"' EXIT; \
	sed 's|/usr/bin/hostler-controller|/bin/true|' systemd/hostler-controller.service >"$$work/hostler-controller.service"; \
	systemd-analyze verify --man=no "$$work/hostler-controller.service"; \
	systemd-analyze security --offline=true --threshold=20 --no-pager "$$work/hostler-controller.service" >"$$work/report" \
		|| { cat "$$work/report"; exit 1; }; \
	echo "controller: $$(tail -n 1 "$$work/report")"; \
	sed 's|/usr/bin/hostler|/bin/true|' systemd/hostler.service >"$$work/hostler.service"; \
	for dropin in none systemd/hostler-*.conf; do \
		rm -rf "$$work/hostler.service.d"; \
		if [ "$$dropin" != none ]; then $(INSTALL) -Dm 0644 "$$dropin" "$$work/hostler.service.d/10.conf"; fi; \
		systemd-analyze verify --man=no "$$work/hostler.service"; \
		systemd-analyze security --offline=true --threshold=40 --no-pager "$$work/hostler.service" >"$$work/report" \
			|| { cat "$$work/report"; exit 1; }; \
		echo "$$dropin: $$(tail -n 1 "$$work/report")"; \
	done

# For benches cargo builds a binary with the features of the tests, in the place of the released one: what is measured is a
# copy of what users get.
bench: ## Measure what docs/performance.md reports (UPDATE=1 writes it there; COMPARE=COMMIT measures both in turn)
	@tools/deps.sh bench
	$(CARGO) build --release --locked --bin hostler
	$(INSTALL) -D $(RELEASE) $(FIGURES)/hostler
ifdef COMPARE
	rm -rf $(FIGURES)/source
	mkdir -p $(FIGURES)/source
	git archive $(COMPARE) | tar -x -C $(FIGURES)/source
	cd $(FIGURES)/source && CARGO_TARGET_DIR=$(abspath $(FIGURES))/build $(CARGO) build --release --locked --bin hostler
	COMPARE_BIN=$(abspath $(FIGURES))/build/release/hostler HOSTLER_BIN=$(abspath $(FIGURES))/hostler \
		$(CARGO) bench --locked --bench figures -- $(SECTIONS)
else
	HOSTLER_BIN=$(abspath $(FIGURES))/hostler $(CARGO) bench --locked --bench figures
	$(CARGO) bench --locked --package hostler-allocator --bench allocator
	$(CARGO) build --release --locked --package hostler-controller
	$(CARGO) run --release --locked --package hostler-controller --example stock
	$(CARGO) test --release --locked --package hostler-controller --bin hostler-controller figures_of_the_core -- --ignored --nocapture
	HOSTLER_CONTROLLER_BIN=$(abspath $(CONTROLLER)) $(CARGO) run --release --locked --package hostler-controller --example figures
	HOSTLER_CONTROLLER_BIN=$(abspath $(CONTROLLER)) $(CARGO) run --release --locked --package hostler-controller --example classic
	HOSTLER_CONTROLLER_BIN=$(abspath $(CONTROLLER)) $(CARGO) run --release --locked --package hostler-controller --example provisioning
	HOSTLER_CONTROLLER_BIN=$(abspath $(CONTROLLER)) $(CARGO) run --release --locked --package hostler-controller --example reservations
	HOSTLER_CONTROLLER_BIN=$(abspath $(CONTROLLER)) $(CARGO) run --release --locked --package hostler-controller --example fabric
endif

# Links from docs/ to files beside it would be dead on the site: they lead to the repository there.
docs: ## Build the site of docs/ with search, and check its links (needs mdBook)
	@if ! command -v mdbook >/dev/null 2>&1; then \
		echo "docs: mdBook is not installed: cargo install mdbook --locked" >&2; \
		exit 1; \
	fi
	rm -rf $(TARGET_DIR)/docs $(TARGET_DIR)/docs-pages
	cp -R docs $(TARGET_DIR)/docs-pages
	repository=$$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml); \
	sed -i -e "s#](\.\./#]($$repository/blob/main/#g" -e "s#^\(\[[^]]*\]: \)\.\./#\1$$repository/blob/main/#" $(TARGET_DIR)/docs-pages/*.md; \
	sed -i "s#](\.\./\.\./#]($$repository/blob/main/#g" $(TARGET_DIR)/docs-pages/decisions/*.md
	mdbook build $(TARGET_DIR)/docs-pages --dest-dir $(abspath $(TARGET_DIR))/docs
	$(CARGO) test --locked --quiet --test suite -- --include-ignored pages::links pages::site
	@echo "docs: open $(abspath $(TARGET_DIR))/docs/index.html"

# cargo-fuzz links a sanitizer that only nightly compilers accept; nothing else in this tree needs nightly.
fuzz: ## Run each fuzz target for FUZZ_SECONDS (needs nightly Rust and cargo-fuzz)
	@if ! $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then \
		echo "fuzz: needs a nightly compiler and cargo-fuzz:" >&2; \
		echo "fuzz:   rustup toolchain install nightly && cargo install cargo-fuzz" >&2; \
		exit 1; \
	fi
	for target in $$($(CARGO) +nightly fuzz list); do \
		mkdir -p "fuzz/corpus/$$target"; \
		seeds="fuzz/seeds/$$target"; \
		[ -d "$$seeds" ] || seeds=; \
		$(CARGO) +nightly fuzz run "$$target" "fuzz/corpus/$$target" $$seeds -- \
			-max_total_time=$(FUZZ_SECONDS); \
	done

# Builds nothing: root under sudo often has no cargo on its PATH, and should not own the build's files.
# The symbols go beside the binary, linked by a checksum: half of the file is theirs, and only a debugger reads them.
install: ## Install what `make build` built: binaries, units, configuration, man pages and completions (DESTDIR, PREFIX, SYSCONFDIR)
	@for binary in $(RELEASE) $(CONTROLLER); do \
		[ -x $$binary ] || { echo "install: $$binary is not there: run \`make build\` first" >&2; exit 1; }; \
	done
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(DEBUGDIR)"
	place() { \
		new="$(DESTDIR)$(BINDIR)/.$$2.new"; \
		if command -v $(OBJCOPY) >/dev/null 2>&1; then \
			debug="$(DESTDIR)$(DEBUGDIR)/$$2.debug"; \
			$(OBJCOPY) --only-keep-debug "$$1" "$$debug"; \
			chmod 0644 "$$debug"; \
			$(OBJCOPY) --strip-unneeded --add-gnu-debuglink="$$debug" "$$1" "$$new"; \
		else \
			echo "install: no $(OBJCOPY) (binutils): the binary keeps its symbols" >&2; \
			cp "$$1" "$$new"; \
		fi; \
		chmod 0755 "$$new"; \
		mv -f "$$new" "$(DESTDIR)$(BINDIR)/$$2"; \
	}; \
	place $(RELEASE) hostler; \
	place $(CONTROLLER) hostler-controller
	ln -sf hostler-controller "$(DESTDIR)$(BINDIR)/kubectl-hostler"
	$(INSTALL) -d "$(DESTDIR)$(UNITDIR)"
	for unit in hostler hostler-controller; do \
		sed 's|/usr/bin/hostler|$(BINDIR)/hostler|g; s|/etc/hostler|$(SYSCONFDIR)/hostler|g' "systemd/$$unit.service" \
			>"$(DESTDIR)$(UNITDIR)/$$unit.service"; \
		chmod 0644 "$(DESTDIR)$(UNITDIR)/$$unit.service"; \
	done
	$(INSTALL) -Dm 0644 systemd/hostler.preset "$(DESTDIR)$(PRESETDIR)/90-hostler.preset"
	$(INSTALL) -d "$(DESTDIR)$(DROPINDIR)"
	$(INSTALL) -m 0644 systemd/hostler-*.conf "$(DESTDIR)$(DROPINDIR)"
	$(INSTALL) -Dm 0644 systemd/hostler.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/hostler.conf"
	$(INSTALL) -Dm 0644 systemd/hostler.tmpfiles "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/hostler.conf"
	$(INSTALL) -d -m 0755 "$(DESTDIR)$(SYSCONFDIR)/hostler"
	for config in hostler controller; do \
		file="$(DESTDIR)$(SYSCONFDIR)/hostler/$$config.toml"; \
		[ -e "$$file" ] && continue; \
		sed 's|/usr/bin/hostler|$(BINDIR)/hostler|g; s|/etc/hostler|$(SYSCONFDIR)/hostler|g' "systemd/$$config.toml" >"$$file"; \
		chmod 0644 "$$file"; \
	done
	$(INSTALL) -d "$(DESTDIR)$(MANDIR)"
	$(INSTALL) -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	for program in $(RELEASE) $(CONTROLLER); do \
		name=$$(basename $$program); \
		$(RUN) $$program man "$(DESTDIR)$(MANDIR)" && \
		$(RUN) $$program completions bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name" && \
		$(RUN) $$program completions zsh >"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$name" && \
		$(RUN) $$program completions fish >"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish" || exit 1; \
	done
	if [ -z "$(DESTDIR)" ]; then \
		echo "installed; now: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload \\"; \
		echo "                && systemctl enable --now hostler"; \
		echo "for a cluster's controller: systemctl enable --now hostler-controller (docs/controller.md)"; \
		echo "drop-ins for FPGAs, CXL and Kubernetes: $(DROPINDIR)"; \
	fi

uninstall: ## Remove what `make install` put there, except the configuration and the state
	rm -f "$(DESTDIR)$(BINDIR)/hostler" "$(DESTDIR)$(BINDIR)/hostler-controller" "$(DESTDIR)$(BINDIR)/kubectl-hostler" \
		"$(DESTDIR)$(PRESETDIR)/90-hostler.preset" \
		"$(DESTDIR)$(UNITDIR)/hostler.service" "$(DESTDIR)$(UNITDIR)/hostler-controller.service" \
		"$(DESTDIR)$(PREFIX)/lib/sysusers.d/hostler.conf" "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/hostler.conf" \
		"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hostler" \
		"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hostler-controller" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hostler" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hostler-controller" \
		"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hostler.fish" \
		"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hostler-controller.fish"
	rm -f "$(DESTDIR)$(MANDIR)"/man1/hostler.1 "$(DESTDIR)$(MANDIR)"/man1/hostler-*.1 \
		"$(DESTDIR)$(MANDIR)/man5/hostler.toml.5" "$(DESTDIR)$(MANDIR)/man5/controller.toml.5" \
		"$(DESTDIR)$(DEBUGDIR)/hostler.debug" \
		"$(DESTDIR)$(DEBUGDIR)/hostler-controller.debug"
	rm -rf "$(DESTDIR)$(PREFIX)/share/hostler"

packages: ## Build deb and rpm packages of both programs, the kubectl plugin, SBOM and checksums (ARCHES="amd64 arm64")
	@ARCHES="$(ARCHES)" tools/deps.sh packages
	tools/packages.sh $(ARCHES)

image: ## Build OCI archives of both programs out of what `make packages` built (ARCHES="amd64 arm64")
	tools/image.sh $(ARCHES)

test-packages: ## Install, upgrade and purge the packages on fresh hosts of Debian 11 and 12 (root, mmdebstrap, systemd-nspawn)
	HOSTLER_PACKAGES=$(abspath $(TARGET_DIR))/packages $(CARGO) test --locked --test packages -- --ignored --nocapture --test-threads 1

clean: ## Remove everything that was built
	$(CARGO) clean
