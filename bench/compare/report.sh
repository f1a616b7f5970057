#!/usr/bin/env bash
# Everything that bench/results/*-cpu holds, in one run of an hour or so:
#
#   bench/compare/report.sh OUT [SYNTH8.gguf]
#
# OUT is a folder for the raw numbers; what is printed goes to OUT/report.txt too. SYNTH8.gguf, 1.9
# GB, is written first where it is not there (default: build/compare/synth8.gguf). THREADS, ROUNDS,
# and what run.sh takes from the environment, change what is run. Best on a machine with nothing
# else to do; on another, `chrt -r 20 bench/compare/report.sh ...` puts both programs first.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
[[ $# -ge 1 ]] || { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
out="$1"
synth8="${2:-$root/build/compare/synth8.gguf}"
bundled="$root/models/strata-mini.gguf"
threads="${THREADS:-2}"
rounds="${ROUNDS:-5}"
strata="${STRATA:-$root/build/cpu/strata}"
mkdir -p "$out" "$(dirname "$synth8")"
exec > >(tee "$out/report.txt")

compare() { "$here/run.sh" "$1" --threads "$threads" --out "$out/$2.json" "${@:3}"; }
strata_alone() {
    echo "== strata bench $1, $3"
    "$strata" bench "$1" -m "$2" -t "$threads" --json "${@:4}" > "$out/$3.json"
    "$strata" bench "$1" -m "$2" -t "$threads" "${@:4}"
}

# Builds what is missing.
"$here/run.sh" --help > /dev/null
[[ -f "$synth8" ]] || "$strata" synth "$synth8" --preset flash-next --layers 8 --experts 64 \
    --vocab 32768 --type q8_0 --experts-gate iq3_xxs --experts-down q2_0 --hyper bf16

# Loads first: they read the file from the disk, in pages as large as the system gives.
strata_alone load "$synth8" synth8_load
strata_alone load "$bundled" bundled_load
echo "== synth8, decode"
compare "$synth8" synth8_decode --rounds "$rounds" --prompts "" --depth 32 --tokens 16
echo "== synth8, prompt"
compare "$synth8" synth8_prompt --rounds 0 --prompts 512 --prompt-rounds 3
echo "== bundled"
compare "$bundled" bundled --rounds "$rounds" --prompts 512 --prompt-rounds "$rounds" --depth 64 \
    --tokens 32
strata_alone decode "$synth8" synth8_one_token --one-token --rows 1,4 --depth 32 -n 16
strata_alone decode "$bundled" bundled_one_token --one-token --rows 1,4
