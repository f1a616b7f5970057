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
# Half of the time that tests take to compile is what their files make of the same templates.
tests_together=(-DSTRATA_UNITY=TESTS)
export UBSAN_OPTIONS="print_stacktrace=1" TSAN_OPTIONS="halt_on_error=1"

# stage PRESET TARGET TEST_PRESET OPTION...: configures, builds, tests.
stage() {
    local preset="$1" target="$2" tests="$3" start="$SECONDS" run=()
    shift 3
    [[ "$preset" == cpu ]] || run=("${fixed_addresses[@]}")
    echo "== $preset: build $target"
    cmake --preset "$preset" "$@" >/dev/null
    cmake --build --preset "$preset" --target "$target" -- --quiet
    echo "== $preset: built after $((SECONDS - start)) s; tests of preset $tests"
    "${run[@]}" ctest --preset "$tests" --parallel "$jobs" --no-tests=error
}

case "${1-all}" in
all)
    stage cpu all cpu "${tests_together[@]}"
    if command -v nvcc >/dev/null; then
        # That they compile: for one chip, and with few optimisations. With none there is so much
        # more code that the last pass takes twice the time of all. In a folder of its own: such
        # kernels are not to be run.
        echo "== cuda: build the kernels"
        cmake --preset cuda -B build/cuda-check -DCMAKE_CUDA_ARCHITECTURES=90 -DSTRATA_TESTS=OFF \
            -DCMAKE_CUDA_FLAGS="-Xcicc -O1 -Xptxas -O0" \
            -DCMAKE_OPTIMIZE_DEPENDENCIES=ON >/dev/null
        cmake --build build/cuda-check --target strata_backend_cuda -- --quiet
    fi
    stage cpu-asan quick_tests cpu-asan
    stage cpu-tsan threaded_tests cpu-tsan
    ;;
quick)
    stage cpu quick_tests quick "${tests_together[@]}"
    ;;
emulated)
    stage cuda-emulated gpu_tests cuda-emulated "${tests_together[@]}"
    ;;
*)
    echo "usage: ./test.sh [quick|emulated]" >&2
    exit 2
    ;;
esac
