#!/usr/bin/env bash
# From a clone to text:
#   ./run.sh                  installs what is missing, builds, and lets the bundled model write
#   ./run.sh chat             any strata command and its options, on the bundled model unless -m
#                             names another; with its draft where it writes text
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

bundled="$root/models/strata-mini.gguf"
guesser="$root/models/strata-mini-draft.gguf"
layer="$root/models/strata-mini-mtp.gguf"

if (($# == 0)); then
    echo '$ strata generate -p "class Command" -n 43' >&2
    "$strata" generate -m "$bundled" --dflash "$guesser" --mtp "$layer" -p "class Command" -n 43
    echo '$ strata chat -p "what does grep do?"' >&2
    exec "$strata" chat -m "$bundled" --dflash "$guesser" --mtp "$layer" -p "what does grep do?"
fi

command="$1"
shift
model=()
case "$command" in
generate | chat | logits | features | draft)
    [[ " $* " =~ \ (-m|--model)[\ =] ]] || model=(-m "$bundled")
    ;;
esac
case "$command" in
generate | chat)
    [[ ${#model[@]} -eq 0 || " $* " =~ \ --dflash[\ =] ]] || model+=(--dflash "$guesser")
    [[ ${#model[@]} -eq 0 || " $* " =~ \ --mtp[\ =] ]] || model+=(--mtp "$layer")
    ;;
esac
exec "$strata" "$command" "${model[@]}" "$@"
