#!/bin/sh
# Installs the system packages that a step needs and this machine lacks.
#
#   tools/deps.sh build    what compiling needs: a C linker, pkg-config, libudev's headers; missing ones are an error
#   tools/deps.sh test     the same, runc for the container tests, and promtool, prometheus and kubectl, which are only unpacked into
#                          the user's cache; without one of them the tests that need it say that they skip
#   tools/deps.sh packages as build, and what packages are made with: dpkg, rpm, the cross compiler of the other architecture
#   tools/deps.sh bench    as build, and hwloc's lstopo to compare with; without it those figures say that they skip
#
# Root installs directly, others through sudo where it asks no password. Nothing is touched when nothing is missing.
set -eu

step=${1:-build}
# Architectures of packages, as Debian names them.
arches=${ARCHES:-}

have_udev() {
    command -v pkg-config >/dev/null 2>&1 && pkg-config --exists libudev
}

# Names of Debian packages; the other families' names stand in the message of `explain`.
missing_build() {
    command -v cc >/dev/null 2>&1 || printf ' gcc libc6-dev'
    command -v pkg-config >/dev/null 2>&1 || printf ' pkg-config'
    have_udev || printf ' libudev-dev'
}

# runc lives in /usr/sbin, which is not on every user's PATH. The tests that need it need root as well.
missing_test() {
    [ "$(id -u)" -eq 0 ] || return 0
    PATH="$PATH:/usr/sbin:/sbin" command -v runc >/dev/null 2>&1 || printf ' runc'
}

missing_packages() {
    command -v dpkg-deb >/dev/null 2>&1 || printf ' dpkg'
    command -v rpmbuild >/dev/null 2>&1 || printf ' rpm'
    command -v jq >/dev/null 2>&1 || printf ' jq'
    for arch in $arches; do
        case $arch in
        arm64) command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 || printf ' gcc-aarch64-linux-gnu libc6-dev-arm64-cross' ;;
        amd64) command -v x86_64-linux-gnu-gcc >/dev/null 2>&1 || printf ' gcc-x86-64-linux-gnu libc6-dev-amd64-cross' ;;
        esac
    done
}

missing_bench() {
    command -v lstopo-no-graphics >/dev/null 2>&1 || printf ' hwloc-nox'
}

# Where programs are unpacked that only tests run; an installed promtool would bring Prometheus along, and start it.
tools=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/hostler/tools

# A program out of Debian's package, where the mirror that apt is configured for has it at least in this version.
unpack() {
    package=$1
    program=$2
    wanted=$3
    PATH="$PATH:$tools/usr/bin" command -v "$program" >/dev/null 2>&1 && return 0
    command -v apt-get >/dev/null 2>&1 || return 1
    candidate=$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^  Candidate: //p')
    dpkg --compare-versions "$candidate" ge "$wanted" 2>/dev/null || return 1
    work=$(mktemp -d)
    echo "deps: fetching $program" >&2
    status=0
    (cd "$work" && apt-get -qq download "$package" >&2 && mkdir -p "$tools" \
        && dpkg-deb --fsys-tarfile "$package"_*.deb | tar -x -C "$tools" "./usr/bin/$program") 2>/dev/null || status=1
    rm -rf "$work"
    return "$status"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# A fresh machine or container has no package lists, and old lists name versions that are gone: update first.
install() {
    command -v apt-get >/dev/null 2>&1 && as_root true || return 1
    echo "deps: installing$*" >&2
    # shellcheck disable=SC2048,SC2086 # the list is words on purpose
    as_root apt-get -qq update >&2 \
        && as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $* >&2
}

explain() {
    cat >&2 <<TEXT
deps: missing:$1
deps: install it, then run the command again:
deps:   Debian, Ubuntu   sudo apt-get install gcc libc6-dev pkg-config libudev-dev
deps:   Fedora, RHEL     sudo dnf install gcc pkgconf-pkg-config systemd-devel
deps:   Arch             sudo pacman -S gcc pkgconf systemd-libs
TEXT
    exit 1
}

case "$step" in
build | test | packages | bench) ;;
*)
    echo "usage: tools/deps.sh build|test|packages|bench" >&2
    exit 2
    ;;
esac

if ! command -v cargo >/dev/null 2>&1; then
    echo "deps: cargo is not on the PATH: install Rust, https://rustup.rs" >&2
    exit 1
fi

missing=$(missing_build)
if [ -n "$missing" ]; then
    install "$missing" || explain "$missing"
    still=$(missing_build)
    [ -z "$still" ] || explain "$still"
fi

if [ "$step" = test ]; then
    missing=$(missing_test)
    if [ -n "$missing" ]; then
        install "$missing" || echo "deps: could not install$missing: the container tests will be skipped" >&2
    fi
    unpack prometheus promtool 2.30 || echo "deps: no promtool: figures are not checked by it" >&2
    unpack prometheus prometheus 2.30 || echo "deps: no prometheus: none scrapes the programs" >&2
    # Older ones know nothing of components.
    unpack kubernetes-client kubectl 1.27 || echo "deps: no kubectl: deploy/ is not built by a real kustomize" >&2
fi

if [ "$step" = packages ]; then
    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        install "$missing" || explain "$missing"
    fi
fi

if [ "$step" = bench ]; then
    missing=$(missing_bench)
    if [ -n "$missing" ]; then
        install "$missing" || echo "deps: could not install$missing: nothing is compared with lstopo" >&2
    fi
fi
