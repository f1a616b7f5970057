#!/usr/bin/env bash
# Block drafts of Strata beside those of llama.cpp, on random features:
#
#   tools/reference/lattice/run.sh TARGET.gguf DRAFT.gguf [CHAINS [CONTEXT]]
#
# DRAFT has an embedding and a head of its own, all of it in F32, so that both compute the same
# products:
#
#   strata convert CHECKPOINT -o draft.gguf --type f32 --target TARGET.gguf
#   strata dflash-head draft.gguf --target TARGET.gguf -o own.gguf --type f32
#   widen.py own.gguf DRAFT.gguf
#
# (with BF16 weights llama.cpp rounds their inputs to BF16, with flash attention the attention to
# half precision; it is off here). bench/compare/run.sh has built llama.cpp; LLAMA_SOURCE and
# LLAMA_BUILD name another tree and build. Its draft's width must be at least K (K + 1), K the
# candidates a row.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
work="$root/build/compare"
llama_source="${LLAMA_SOURCE:-$work/llama_cpp_python-0.3.36/vendor/llama.cpp}"
llama_build="${LLAMA_BUILD:-$work/llama}"
cmake -S "$here" -B "$work/lattice" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DLLAMA_SOURCE="$llama_source" -DLLAMA_BUILD="$llama_build" >&2
cmake --build "$work/lattice" --target lattice >&2
exec "$work/lattice/lattice" "$@"
