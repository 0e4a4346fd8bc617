# Two commands do everything on a fresh Debian or Ubuntu machine: make demo, make test.
PRESET ?= release
# Open MPI itself is not clean under the sanitizers, so ranks as processes are left to the other builds.
LABELS = fast|style|gpu$(if $(filter asan tsan,$(PRESET)),,|mpi)
JOBS ?= $(shell nproc)

.PHONY: build-gpus campaign campaign-program recovery-times soak configure program build demo test test-slow test-web test-slurm test-gpu sanitize-gpu test-asan test-tsan test-avx2 bench fuzz format setup clean help

help:
	@echo "make demo         install what is missing, build the program, show in two minutes what it does"
	@echo "make program      install what is missing, build build/release/lockstep alone"
	@echo "make build        install what is missing, build everything"
	@echo "make build-gpus   the program alone with code for several GPUs (sm_80, sm_90a, sm_100): build/gpus/lockstep"
	@echo "make test         build everything, then run the tests (those of a GPU are skipped where there is none)"
	@echo "make test-slow    whole matrices of layouts, drills by the dozen, a loss to reach: about an hour and a half on two cores"
	@echo "make campaign     a thousand faults of every kind, injected into runs: at most three hours; goes on where it was (as root)"
	@echo "make recovery-times  how long runs take to train again after a fault (as root)"
	@echo "make soak         an hour with a fault every 20 s: goodput beside the simulator's (as root)"
	@echo "make test-web     the dashboard in a real Chromium, scraped by a real Prometheus (installs both)"
	@echo "make test-slurm   lockstep launch in jobs of a real Slurm on this machine (installs it; needs root)"
	@echo "make test-gpu     the tests that need a GPU"
	@echo "make sanitize-gpu kernels and steps under compute-sanitizer: memory, races, values never written"
	@echo "make test-asan    the tests under the address and undefined-behaviour sanitizers"
	@echo "make test-tsan    the tests under the thread sanitizer"
	@echo "make test-avx2    the tests in a build without AVX-512, and its numbers equal to the release build's"
	@echo "make bench        kernel rates against this machine's own ceilings"
	@echo "make fuzz         a minute of fuzzing of what parses files (needs clang)"
	@echo "make format       lay out the sources with clang-format"

setup:
	@tools/setup

configure: setup
	@cmake --preset $(PRESET) >build/cmake-$(PRESET).log 2>&1 || { cat build/cmake-$(PRESET).log; exit 1; }

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

# Code for GPUs of three generations; only sm_90a was ever run (docs/cuda.md).
build-gpus:
	@$(MAKE) --no-print-directory program PRESET=gpus

# The program alone, without the tests.
program: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target lockstep

demo: program
	@tools/demo build/$(PRESET)/lockstep

test: build
	@ctest --test-dir build/$(PRESET) -L '$(LABELS)' --output-on-failure -j $(JOBS)

test-slow: build
	@ctest --test-dir build/$(PRESET) -L slow --output-on-failure

CAMPAIGN = build/$(PRESET)/campaign
campaign-program:
	@tools/setup
	@$(MAKE) --no-print-directory program
	@cmake --build --preset $(PRESET) -j $(JOBS) --target campaign

# Results are added to build/campaign.jsonl; cases that are in it are not run again.
campaign: campaign-program
	@$(CAMPAIGN) run --file build/campaign.jsonl

recovery-times: campaign-program
	@$(CAMPAIGN) recovery

soak: campaign-program
	@$(CAMPAIGN) soak

# LOCKSTEP_PICTURES=$$PWD/docs/pictures make test-web writes pictures of the page there.
test-web:
	@tools/setup chromium chromium-driver prometheus
	@$(MAKE) --no-print-directory program
	@cmake --build --preset $(PRESET) -j $(JOBS) --target test_web
	@ctest --test-dir build/$(PRESET) -L web --output-on-failure

test-slurm:
	@tools/setup slurm-wlm munge
	@$(MAKE) --no-print-directory program
	@cmake --build --preset $(PRESET) -j $(JOBS) --target test_slurm
	@ctest --test-dir build/$(PRESET) -L slurm --output-on-failure

test-gpu: build
	@ctest --test-dir build/$(PRESET) -L gpu -j 8 --output-on-failure

sanitize-gpu: build
	@tools/sanitize_gpu build/$(PRESET)/test_gpu

test-asan:
	@$(MAKE) test PRESET=asan

test-avx2:
	@$(MAKE) build
	@$(MAKE) test PRESET=avx2
	@tools/same_bits build/release/lockstep build/avx2/lockstep

test-tsan:
	@$(MAKE) test PRESET=tsan

bench: build
	@build/$(PRESET)/bench_kernels

fuzz:
	@tools/fuzz

format:
	@find src tests bench \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 clang-format -i

clean:
	@rm -rf build
