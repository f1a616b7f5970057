#!/usr/bin/env bash
# From a clone to text:
#   ./run.sh                  installs what is missing, builds, and lets the bundled model write
#   ./run.sh chat             any strata command and its options, on the bundled model unless -m
#                             names another
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$root/tools/setup.sh"
need_packages "${ENGINE_PACKAGES[@]}"

(
    cd "$root"
    [[ -f build/cpu/build.ninja ]] || cmake --preset cpu -DSTRATA_TESTS=OFF
    cmake --build --preset cpu --target strata
) >&2
strata="$root/build/cpu/strata"

models=("$root"/models/*.gguf)
bundled="${models[0]}"
bundled_or_end() {
    [[ -f "$bundled" ]] && return
    echo "models/ holds no GGUF file, wanted the bundled model" >&2
    exit 1
}

if (($# == 0)); then
    bundled_or_end
    echo '$ strata generate -p "def " -n 64' >&2
    "$strata" generate -m "$bundled" -p "def " -n 64
    echo '$ strata chat -p "what does grep do?"' >&2
    exec "$strata" chat -m "$bundled" -p "what does grep do?"
fi

command="$1"
shift
model=()
case "$command" in
generate | chat | logits | features | draft)
    if [[ ! " $* " =~ \ (-m|--model)[\ =] ]]; then
        bundled_or_end
        model=(-m "$bundled")
    fi
    ;;
esac
exec "$strata" "$command" "${model[@]}" "$@"
