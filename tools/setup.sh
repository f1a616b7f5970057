# Sourced by run.sh and test.sh: Debian packages, installed where that is possible without asking.
# shellcheck shell=bash

# need_packages NAME...: returns when all are installed. Else, without root or a sudo that asks for
# nothing, prints the list and ends the script.
need_packages() {
    local package missing=() as_root=()
    if ! command -v dpkg-query >/dev/null; then
        echo "Not a Debian system, so nothing is installed; Strata needs what these Debian" \
             "packages hold: $*" >&2
        return 0
    fi
    for package in "$@"; do
        if [[ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" != "install ok installed" ]]
        then
            missing+=("$package")
        fi
    done
    ((${#missing[@]} == 0)) && return 0

    if ((EUID != 0)); then
        if ! sudo -n true 2>/dev/null; then
            echo "These Debian packages are missing, and installing them takes root:" >&2
            printf '%s\n' "${missing[@]}"
            exit 1
        fi
        as_root=(sudo -n)
    fi
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
                   apt-get install -y -q --no-install-recommends "${missing[@]}")
    echo "Installing ${missing[*]}" >&2
    # A system without package lists, or with old ones, fails here and gets new ones.
    if ! "${install[@]}" >/dev/null 2>&1; then
        "${as_root[@]}" apt-get update -q >&2
        "${install[@]}" >&2
    fi
}

# What the engine needs; and what tests, benches and the checks of the tree need besides.
ENGINE_PACKAGES=(g++ cmake ninja-build pkgconf nlohmann-json3-dev libcli11-dev libutf8proc-dev)
TEST_PACKAGES=(libgtest-dev libbenchmark-dev python3 clang-format)
