#!/usr/bin/env bash
# From a clone to text:
#   ./run.sh                  installs what is missing, builds, and lets the bundled model write
#   ./run.sh chat             any strata command and its options, on the bundled model unless
#                             another is named; with its draft and MTP layer where it writes text
set -euo pipefail
root="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
source "$root/tools/setup.sh"
need_packages "${ENGINE_PACKAGES[@]}"

strata="$root/build/cpu/strata"
(
    cd "$root"
    quiet=()
    [[ ! -x "$strata" ]] || quiet=(-- --quiet)
    [[ -f build/cpu/build.ninja ]] || cmake --preset cpu -DSTRATA_TESTS=OFF
    cmake --build --preset cpu --target strata "${quiet[@]}"
) >&2

bundled="$root/models/strata-mini.gguf"
draft=(--dflash "$root/models/strata-mini-draft.gguf")
layer=(--mtp "$root/models/strata-mini-mtp.gguf")

if (($# == 0)); then
    echo '$ strata generate -p "class Command" -n 43' >&2
    "$strata" generate -m "$bundled" "${draft[@]}" "${layer[@]}" -p "class Command" -n 43
    echo '$ strata chat -p "what does grep do?"' >&2
    exec "$strata" chat -m "$bundled" "${draft[@]}" "${layer[@]}" -p "what does grep do?"
fi

# given OPTION ARGUMENT...: whether an argument is the option, its value joined to it or not.
given() {
    local option="$1" argument
    shift
    for argument in "$@"; do
        [[ "$argument" != "$option" && "$argument" != "$option"=* ]] || return 0
        [[ "$option" != -? || "$argument" != "$option"?* ]] || return 0
    done
    return 1
}

command=("$1")
shift
case "${command[0]}" in
eval | bench)
    if (($# > 0)) && [[ "$1" != -* ]]; then
        command+=("$1")
        shift
    fi
    ;;
esac

model=()
case "${command[*]}" in
generate | chat | logits | features | draft | eval\ * | bench\ decode | bench\ draft | \
    bench\ load | bench\ prompt)
    given -m "$@" || given --model "$@" || model=(-m "$bundled")
    ;;
inspect)
    [[ " $*" =~ \ [^-] ]] || model=("$bundled")
    ;;
esac
case "${command[*]}" in
generate | chat)
    # Windows of one row, which --spec may ask for, and a draft refuse each other.
    if ((${#model[@]} > 0)) && ! given --spec "$@"; then
        given --dflash "$@" || model+=("${draft[@]}")
        # --draft dflash takes no layer, and the others find the model's own.
        given --mtp "$@" || given --draft "$@" || model+=("${layer[@]}")
    fi
    ;;
bench\ draft)
    if ((${#model[@]} > 0)); then
        given --dflash "$@" || model+=("${draft[@]}")
        given --mtp "$@" || model+=("${layer[@]}")
    fi
    ;;
esac
exec "$strata" "${command[@]}" "${model[@]}" "$@"
