# attnd: multi-head attention over HTTP. `make help` lists the targets.

MAKEFLAGS += --no-print-directory
ifeq ($(MAKELEVEL),0) # a make below takes its jobs from the one above
MAKEFLAGS += -j$(shell nproc)
endif

BUILD    ?= build
SANITIZE ?=
PREFIX   ?= /usr/local
CC       ?= cc
VERSION  := 0.1.0

LIBS     := libmicrohttpd gnutls openblas zlib libzstd
CPPFLAGS += -D_GNU_SOURCE -DATTND_VERSION='"$(VERSION)"' -I. $(shell pkg-config --cflags $(LIBS) 2>/dev/null)
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wmissing-prototypes -Werror
HARDEN   := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2) -fstack-protector-strong
CFLAGS   ?= -O2 -g
ALL_CFLAGS := -std=gnu11 $(CFLAGS) $(WARN) $(HARDEN) -fPIE -pthread -MMD -MP
LDFLAGS  += $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pie -pthread -Wl,-z,relro,-z,now
LDLIBS   += $(shell pkg-config --libs $(LIBS) 2>/dev/null) -lm

SOURCES  := $(filter-out server/main.c,$(wildcard core/*.c core/kernels/*.c api/*.c config/*.c server/*.c))
OBJECTS  := $(SOURCES:%.c=$(BUILD)/%.o)
ASAN     := BUILD=build/asan SANITIZE=address,undefined
COVERAGE := BUILD=build/coverage GCOV=1
VALGRIND := BUILD=build/valgrind CC="cc -DVALGRIND"
TSAN     := BUILD=build/tsan SANITIZE=thread

# __SANITIZE_ADDRESS__, by which gcc tells that it is there, clang does not define.
ENGINE   ?= libfuzzer
SECONDS  ?= 60
TARGET   ?=
FUZZ     := BUILD=build/fuzz/$(ENGINE) SANITIZE=address,undefined WARN=-w FUZZER=-fsanitize=fuzzer
ifeq ($(ENGINE),afl)
FUZZ     += CC=afl-clang-fast CFLAGS="-O2 -g -D__SANITIZE_ADDRESS__"
FUZZ_PACKAGES := clang libclang-rt-14-dev llvm afl++
else
FUZZ     += CC=clang CFLAGS="-O2 -g -D__SANITIZE_ADDRESS__ -fsanitize=fuzzer-no-link"
FUZZ_PACKAGES := clang libclang-rt-14-dev llvm
endif

.PHONY: all run test test-unit test-asan test-tsan fuzz coverage valgrind lint bench peers proof load overload soak crowd proxy restarts install image deps clean help
.SECONDARY:

all: $(BUILD)/attnd ## build build/attnd

-include tests/tests.mk # what the image is built without

run: deps ## install what is missing, build, and serve on 127.0.0.1:8080
	@$(MAKE) all
	$(BUILD)/attnd

test: deps ## install what is missing, build, and run all tests
	@$(MAKE) test-built

test-unit: $(UNITS) ## the unit and kernel tests alone
	@tests/run.sh $(UNITS)

test-built: $(BUILD)/attnd $(UNITS) $(EMULATED) $(E2E) $(FUZZERS) $(EXAMPLES)
	@BUILD=$(BUILD) tests/run.sh --fuzz "$(FUZZERS)" $(UNITS) $(EMULATED) $(E2E)

test-asan: deps ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) $(ASAN) test-built

test-tsan: deps ## all tests under ThreadSanitizer
	@$(MAKE) $(TSAN) test-built

fuzz: deps ## SECONDS (60) of each fuzz target or of TARGET, by ENGINE, libfuzzer or afl: tests/README.md
	@tests/deps.sh $(FUZZ_PACKAGES)
	@$(MAKE) $(FUZZ) fuzz-built

fuzz-built: $(if $(TARGET),$(BUILD)/tests/fuzz/$(TARGET)_fuzz,$(FUZZERS))
	@tests/fuzz/fuzz.sh $(ENGINE) $(SECONDS) $^

coverage: deps ## run all tests on a build for gcov; prints what they reach of lines and branches
	@find build/coverage -name '*.gcda' -delete 2>/dev/null || true
	@BREAK_EVERY=1 $(MAKE) $(COVERAGE) test-built; passed=$$?; tests/coverage.sh build/coverage && exit $$passed

valgrind: deps ## the unit and kernel tests under valgrind, up to AVX2; some half an hour
	@tests/deps.sh valgrind
	@$(MAKE) $(VALGRIND) valgrind-built

valgrind-built: $(UNITS)
	@tests/run.sh --under "valgrind -q --error-exitcode=99 --leak-check=full" $(UNITS)

lint: ## the house rules: include arrows, homes of libraries, lengths, shell scripts
	@tests/lint/lint.sh

bench: deps ## measure the core, the codec and the service; prints a table
	@$(MAKE) bench-built

bench-built: $(BUILD)/attnd $(BENCHES) $(BUILD)/tests/bench/bare/bare $(BUILD)/tests/load/load
	@BUILD=$(BUILD) tests/bench/run.sh $(BENCHES)

peers: $(BUILD)/attnd ## attnd beside PyTorch and ONNX Runtime, which it installs from PyPI: 6 GB
	@BUILD=$(BUILD) tests/bench/peers.sh

proof: $(BUILD)/tests/proof/number_proof ## all 2^32 float32, 10^8 float64 and 10^8 decimals through the codec, about half an hour
	$(BUILD)/tests/proof/number_proof floats
	$(BUILD)/tests/proof/number_proof doubles
	$(BUILD)/tests/proof/number_proof numbers

overload load soak crowd: $(BUILD)/attnd $(BUILD)/tests/load/load ## a daemon under load, and what it must not cost: tests/load/README.md
	@BUILD=$(BUILD) tests/load/scenario.sh $@

proxy: $(BUILD)/attnd $(PROXIED) ## the rows of bad HTTP, JSON, keys and bodies through HAProxy, which it installs
	@tests/deps.sh haproxy
	@THROUGH=haproxy BUILD=$(BUILD) tests/run.sh $(PROXIED)

restarts: $(BUILD)/attnd $(BUILD)/tests/load/load ## RESTARTS (100) by SIGTERM of two instances behind HAProxy under load: no request fails
	@tests/deps.sh haproxy
	@BUILD=$(BUILD) tests/faults/restarts.sh

install: all ## install the daemon and its sample configuration under PREFIX
	install -D $(BUILD)/attnd $(DESTDIR)$(PREFIX)/bin/attnd
	install -D -m 644 config/attnd.conf $(DESTDIR)$(PREFIX)/share/attnd/attnd.conf

image: ## build the container image, start it, post a request, stop it
	@tests/e2e/image.sh

deps: ## install the Debian packages that are missing
	@tests/deps.sh

clean: ## remove what was built
	rm -rf build

help: ## list the targets
	@sed -n 's/^\([a-z -]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 28

$(BUILD)/attnd: $(BUILD)/server/main.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libattnd.a: $(OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/api/openapi.o: api/openapi.json

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

-include $(OBJECTS:.o=.d) $(wildcard $(BUILD)/server/main.d $(BUILD)/tests/*/*.d)
