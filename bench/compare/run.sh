#!/usr/bin/env bash
# Strata beside llama.cpp on the same file, in turn, on the same threads or the same GPU:
#
#   bench/compare/run.sh MODEL.gguf [--threads N] [--rounds N] [--out FILE.json] ...
#   DEVICE=cuda bench/compare/run.sh MODEL.gguf ...
#
# The second way both programs keep all of the model on the GPU, and are built for it. compare.py
# --help lists all options. Needs what Strata's build needs, and python3 with pip and venv. The
# first run builds Strata, and llama.cpp from the source package of llama-cpp-python, which holds
# it; LLAMA_SOURCE and LLAMA_BUILD name a tree and a build that are there already.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
work="$root/build/compare"
package="llama-cpp-python"
version="0.3.36"
device="${DEVICE:-cpu}"
if [[ "$device" != cpu && "$device" != cuda ]]; then
    echo "DEVICE is $device, wanted cpu or cuda" >&2
    exit 2
fi
source "$root/tools/setup.sh"
need_packages "${ENGINE_PACKAGES[@]}" python3 python3-venv

fetch() {
    mkdir -p "$work"
    python3 -m venv "$work/venv"
    # The package's own build is not wanted, but pip reads a source package's metadata through it.
    "$work/venv/bin/pip" download --quiet --no-deps --no-binary "$package" --dest "$work" \
        "$package==$version"
    tar -xzf "$work/${package//-/_}-$version.tar.gz" -C "$work"
}

build_llama() {
    local gpu=()
    [[ "$device" == cpu ]] || gpu=(-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native)
    cmake -S "$1" -B "$2" -G Ninja "${gpu[@]}" \
        -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_COMMON=OFF -DGGML_OPENMP=OFF
    cmake --build "$2" --target llama
}

llama_source="${LLAMA_SOURCE:-$work/${package//-/_}-$version/vendor/llama.cpp}"
llama_build="${LLAMA_BUILD:-$work/llama-$device}"
{
    [[ -d "$llama_source" ]] || fetch
    [[ -f "$llama_build/bin/libllama.so" ]] || build_llama "$llama_source" "$llama_build"
    cmake -S "$here" -B "$work/timer-$device" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DLLAMA_SOURCE="$llama_source" -DLLAMA_BUILD="$llama_build"
    cmake --build "$work/timer-$device"
    strata="${STRATA:-$root/build/$device/strata}"
    if [[ -z "${STRATA:-}" && "$device" == cuda ]]; then
        "$root/tools/test_cuda.sh" build
    elif [[ -z "${STRATA:-}" ]]; then
        [[ -f "$root/build/cpu/build.ninja" ]] || cmake --preset cpu -S "$root"
        cmake --build "$root/build/cpu" --target strata
    fi
} >&2
exec python3 "$here/compare.py" --strata "$strata" --llama "$work/timer-$device/llama_timer" \
    --device "$device" \
    --llama-version "$package $version" "$@"
