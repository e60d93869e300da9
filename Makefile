# Thin: every rule is one call. `make help` lists them.
.DEFAULT_GOAL := all
BUILD := build/release
Q := @

all: ## optimised binary: build/release/cascadia
	$(Q)scripts/setup.sh build
	$(Q)cmake --preset release >/dev/null
	$(Q)cmake --build $(BUILD) --target cascadia

demo: ## sets the machine up if needed, then runs the main job on a real model (MODEL=file.gguf)
	$(Q)scripts/demo.sh $(MODEL)

check: ## what CI runs
	$(Q)scripts/check.sh

check-kernels: ## every instruction set of this CPU against the scalar one, then the bars
	$(Q)cmake --preset check >/dev/null && cmake --build build/check --target check_kernels
	$(Q)build/check/check_kernels && cmake --build build/check --target cascadia && build/check/cascadia bench kernels

check-rungs: ## instruction sets that this CPU lacks, on emulated ones
	$(Q)scripts/check-rungs.sh

check-peers: ## long differential runs against llama.cpp, transformers, tokenizers, the openai client
	$(Q)scripts/check-peers.sh

tests: ## the release build's unit tests
	$(Q)cmake --preset check >/dev/null && cmake --build build/check && ctest --test-dir build/check --output-on-failure

asan tsan: ## the tests, rebuilt with a sanitizer
	$(Q)cmake --preset $@ >/dev/null && cmake --build build/$@ && ctest --test-dir build/$@ --output-on-failure

fuzz: ## libFuzzer with asan, a minute a target (F=name for one, S=seconds)
	$(Q)scripts/fuzz.sh "$(F)" "$(S)"

bench: all ## interleaved against llama.cpp and OpenVINO; table, picture, raw data to build/ (ARGS="--help")
	$(Q)python3 bench/compare $(ARGS)

accuracy: ## the tables of docs/accuracy.md: KL and perplexity of every format, half an hour (SmolLM2)
	$(Q)bench/accuracy/accuracy.py $(BUILD)/cascadia

format: ## clang-format in place
	$(Q)scripts/format.sh --fix

tidy: ## clang-tidy over the whole tree
	$(Q)cmake --preset check >/dev/null && run-clang-tidy -quiet -p build/check 'src/.*\.c$$'

docs: ## pages that the program prints
	$(Q)$(BUILD)/cascadia help --markdown > docs/cli.md

clean:
	rm -rf build

help: ## this list
	$(Q)sed -n 's/^\([a-z -]*\):.*## /\1\t/p' Makefile

.PHONY: all demo check check-kernels check-rungs check-peers tests asan tsan fuzz bench accuracy format tidy docs clean help
