# SPDX-License-Identifier: GPL-2.0-or-later
# Ochre's front door. `make help` says what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

CACHE := $(if $(OCHRE_CACHE),$(OCHRE_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/ochre)
ENTER := scripts/enter.sh
LAB := $(ENTER) $(CACHE)/target/release/ochre-lab
# What VMs need: KERNEL=debug boots them on the debug kernel, with the module for it.
PARTS := workspace qemu $(if $(filter debug,$(KERNEL)),moduledebug,module)

.PHONY: help
help: ## say what can be made
	@echo "Ochre: a virtual InfiniBand host channel adapter. What can be made:"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'
	@echo
	@echo "OCHRE_CACHE (now $(CACHE)) holds what is not of the checkout;"
	@echo "OCHRE_MIRROR names a Debian mirror; KDIR another kernel tree (make modules);"
	@echo "KERNEL=debug boots the debug kernel (demo, vm, pair, test)."

.PHONY: setup
setup: ## make or bring up to date everything: root file system, kernel tree, QEMU, programs, module
	@scripts/setup.sh

.PHONY: demo
demo: ## two VMs form an InfiniBand subnet and run RDMA programs; report in build/demo
	@OCHRE_QUIET=1 scripts/setup.sh $(PARTS)
	@$(LAB) demo

.PHONY: vm
vm: ## a shell in a VM that has an ochre_0
	@OCHRE_QUIET=1 scripts/setup.sh $(PARTS)
	@$(LAB) vm

.PHONY: pair
pair: ## shells in two VMs whose HCAs are joined
	@OCHRE_QUIET=1 scripts/setup.sh $(PARTS)
	@$(LAB) pair

.PHONY: bench
bench: ## measure Ochre beside software RoCE; QUICK=1 takes 5 minutes, RECORD=1 keeps the figures in tests/bench
	@OCHRE_QUIET=1 scripts/setup.sh
	@$(LAB) bench $(if $(QUICK),--quick) $(if $(RECORD),--record)

.PHONY: count
count: ## hold the engine's instructions for a message to their record; RECORD=1 makes a new one
	@OCHRE_QUIET=1 scripts/setup.sh root headers workspace
	@$(LAB) count $(if $(RECORD),--record)

.PHONY: test
test: ## all tests: unit, simulation, device without a guest, VMs; ROUNDS=n of each way of the life cycle
	@OCHRE_QUIET=1 scripts/setup.sh $(PARTS)
	@$(if $(ROUNDS),OCHRE_ROUNDS=$(ROUNDS)) scripts/test.sh $(if $(filter debug,$(KERNEL)),vm)

.PHONY: test-unit
test-unit: ## the tests that need no VM
	@OCHRE_QUIET=1 scripts/setup.sh root headers qemu
	@scripts/test.sh unit

.PHONY: soak
soak: ## simulation and fuzzing with new seeds for SOAK=minutes (10), SEED=n from that seed on; then ROUNDS=n (100, 0 for none) of each way of the life cycle
	@OCHRE_QUIET=1 scripts/setup.sh
	@scripts/soak.sh $(or $(SOAK),10) $(or $(ROUNDS),100)

.PHONY: check
check: ## formatting, lints and the layout of the sources
	@OCHRE_QUIET=1 scripts/setup.sh root kernel headers
	@scripts/check.sh

.PHONY: modules
modules: ## the kernel module, against the stock kernel's tree or KDIR=/path/to/a/7.3/tree
	@scripts/modules.sh "$(KDIR)"

.PHONY: kernel-debug
kernel-debug: ## a kernel with KASAN, lockdep, kmemleak and KUnit, for KERNEL=debug
	@scripts/setup.sh kerneldebug

.PHONY: qemu
qemu: ## QEMU with the device (after an edit of it)
	@scripts/setup.sh qemu

.PHONY: fmt
fmt: ## format the Rust sources
	@OCHRE_QUIET=1 scripts/setup.sh root kernel
	@$(ENTER) cargo fmt --all
	@$(ENTER) rustfmt --edition 2021 --config-path $(CACHE)/linux/.rustfmt.toml drivers/infiniband/hw/ochre/ochre_main.rs

.PHONY: clean
clean: ## drop what was built in the checkout (the cache stays)
	@rm -rf build
