#!/usr/bin/env bash
# The checks that want a GPU, on a machine that has one with its driver and nvcc:
#   tools/test_cuda.sh            builds the preset cuda for this machine's GPU and runs the tests
#                                 of the ops, the model and the drafters on it
#   tools/test_cuda.sh build      builds alone
# Packages are those of ./test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Cards of 9.0 have instructions that only code for exactly them may use.
card=native
if [[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1) == 9.0 ]]; then
    card=90a-real
fi
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$card" >/dev/null
cmake --build --preset cuda --target strata gpu_tests -- --quiet
[[ "${1-}" == build ]] && exit
ctest --test-dir build/cuda -L gpu --output-on-failure --no-tests=error
