#!/usr/bin/env bash
# Installs the Debian packages that a build (or the tests) need, once, and says what it does.
#   scripts/setup.sh build    what `make` and `make demo` need
#   scripts/setup.sh check    that, and what the tests need
# A stamp in build/ keeps later calls silent and quick.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-build}
build=(gcc make cmake ninja-build pkg-config git curl ca-certificates python3-pip
    libuv1-dev node-llhttp libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev)
check=("${build[@]}" clang clang-format libclang-rt-14-dev libcmocka-dev python3 python3-jinja2 python3-numpy)

case $what in
build) packages=("${build[@]}") ;;
check) packages=("${check[@]}") ;;
*) echo "usage: scripts/setup.sh build|check" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
# A machine may have a tool that did not come from its package (a newer git, say).
for i in "${!missing[@]}"; do
    case ${missing[i]} in
    gcc | make | cmake | git | curl | python3) command -v "${missing[i]}" >/dev/null && unset "missing[i]" ;;
    ninja-build) command -v ninja >/dev/null && unset "missing[i]" ;;
    python3-pip) python3 -m pip --version >/dev/null 2>&1 && unset "missing[i]" ;;
    esac
done
((${#missing[@]})) || exit 0

as_root=()
if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || {
        echo "setup: not root and no sudo; ask an administrator for: apt-get install ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
command -v apt-get >/dev/null || {
    echo "setup: this script knows Debian and its kin; please install what matches: ${missing[*]}" >&2
    exit 1
}
echo "setup: installing Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
