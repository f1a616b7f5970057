#!/usr/bin/env bash
# Every check of the project, from a clone:
#   ./test.sh         rules of the tree, format, all tests; the CUDA kernels compiled, where there
#                     is an nvcc; then the quick tests under AddressSanitizer with
#                     UndefinedBehaviorSanitizer, and those that use threads under ThreadSanitizer
#   ./test.sh quick   the quick tests alone
#   ./test.sh emulated
#                     the tests of the CUDA kernels, which run on the host, thread by thread
# Stops at the first failure with a status that is not 0. The last lines are ctest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/setup.sh
need_packages "${ENGINE_PACKAGES[@]}" "${TEST_PACKAGES[@]}"

jobs="$(nproc)"
# Sanitizers of GCC 12 want addresses that kernels with more random bits do not give.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed_addresses=(setarch "$(uname -m)" -R)
fi
export UBSAN_OPTIONS="print_stacktrace=1" TSAN_OPTIONS="halt_on_error=1"

# stage PRESET TARGET TEST_PRESET: configures, builds, tests.
stage() {
    local preset="$1" target="$2" tests="$3" start="$SECONDS" run=()
    [[ "$preset" == cpu ]] || run=("${fixed_addresses[@]}")
    echo "== $preset: build $target"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" --target "$target" -- --quiet
    echo "== $preset: built after $((SECONDS - start)) s; tests of preset $tests"
    "${run[@]}" ctest --preset "$tests" --parallel "$jobs" --no-tests=error
}

case "${1-all}" in
all)
    stage cpu all cpu
    if command -v nvcc >/dev/null; then
        # That they compile: for one chip, without the optimisations that take most of the time.
        echo "== cuda: build the kernels"
        cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 \
            -DCMAKE_CUDA_FLAGS="-Xcicc -O0 -Xptxas -O0" >/dev/null
        cmake --build --preset cuda --target strata_backend_cuda -- --quiet
    fi
    stage cpu-asan quick_tests cpu-asan
    stage cpu-tsan threaded_tests cpu-tsan
    ;;
quick)
    stage cpu quick_tests quick
    ;;
emulated)
    stage cuda-emulated gpu_tests cuda-emulated
    ;;
*)
    echo "usage: ./test.sh [quick|emulated]" >&2
    exit 2
    ;;
esac
