#!/bin/sh
# Puts what the emulated machine is made of into a folder of this user: QEMU with its libraries, a Debian kernel, busybox.
#
#   tools/machine.sh        fills the folder unless it is complete, and prints its path on standard output
#
# The folder is $HOSTLER_MACHINE_CACHE, else hostler/machine in $XDG_CACHE_HOME or ~/.cache. Nothing is installed, upgraded or
# removed on this machine, and no root is needed: apt works with lists and a package status of its own, as if nothing were
# installed, so that every library comes along, and the packages are only unpacked. They come from the mirror that apt is
# configured for, out of this release, or of its backports where the release itself is too old.
#
# Exit codes: 0 it is there, 3 this machine cannot have it (the reason is on standard error), 1 something else went wrong.
set -eu

# What the scenarios need: QEMU with volatile CXL memory, and a kernel that turns such memory into NUMA nodes.
qemu_wanted=1:10
kernel_wanted=6.12
# Raise it when the folder's layout or the list of packages changes.
layout=3
packages="qemu-system-x86 busybox-static linux-image-amd64 e2fsprogs xfsprogs btrfs-progs libeatmydata1"

cache=${HOSTLER_MACHINE_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/hostler/machine}

cannot() {
    echo "test-machine: not run: $1" >&2
    exit 3
}

have_all() {
    [ -f "$cache/complete" ] && [ "$(head -n 1 "$cache/complete")" = "layout $layout" ]
}

# apt without this machine's own state. Its configuration stays in force: proxies and passwords are needed all the same.
private() {
    tool=$1
    shift
    "$tool" -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" \
        -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/apt/sources" \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$work/apt/preferences" \
        -o APT::Sandbox::User="$(id -un)" -o APT::Default-Release="$suite" -o APT::Install-Recommends=false \
        -o APT::Update::Error-Mode=any -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@"
}

# Reads the lists of the release, and of the suite whose packages are preferred.
read_lists() {
    suite=$1
    suites=$release
    [ "$suite" = "$release" ] || suites="$release $suite"
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/apt/sources" "$work/apt/preferences"
    : >"$work/apt/status"
    {
        printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$mirror" "$suites"
        [ ! -f "$keyring" ] || printf 'Signed-By: %s\n' "$keyring"
    } >"$work/apt/sources/debian.sources"
    private apt-get update >&2
}

candidate() {
    private apt-cache policy "$1" | sed -n 's/^  Candidate: //p'
}

new_enough() {
    qemu=$(candidate qemu-system-x86)
    kernel=$(candidate linux-image-amd64)
    dpkg --compare-versions "$qemu" ge "$qemu_wanted" 2>/dev/null \
        && dpkg --compare-versions "$kernel" ge "$kernel_wanted" 2>/dev/null
}

if have_all; then
    echo "$cache"
    exit 0
fi

for tool in apt-get apt-cache dpkg dpkg-deb flock; do
    command -v "$tool" >/dev/null 2>&1 || cannot "it takes $tool, as Debian has it"
done
[ "$(dpkg --print-architecture)" = amd64 ] || cannot "the machine is emulated on amd64 only"
# shellcheck disable=SC1091 # the file is this machine's
release=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || release=
[ -n "$release" ] || cannot "it takes packages of Debian, and this is no Debian with a release of its own"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$(apt-get --print-uris update 2>/dev/null | sed -n "s|^'\(.*\)/dists/$release/InRelease'.*|\1|p" | head -n 1)
[ -n "$mirror" ] || cannot "apt is configured for no mirror of $release"

mkdir -p "$(dirname "$cache")"
# Whoever comes second waits, and finds it done.
exec 9>"$cache.lock"
flock 9
if have_all; then
    echo "$cache"
    exit 0
fi

work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "test-machine: fetching QEMU, a kernel and busybox into $cache" >&2
read_lists "$release" || cannot "the mirror that apt is configured for does not answer"
if ! new_enough; then
    read_lists "$release-backports" || cannot "the mirror that apt is configured for has no backports"
    new_enough || cannot "neither $release nor its backports have QEMU ${qemu_wanted#*:} and Linux $kernel_wanted"
fi
# shellcheck disable=SC2086 # the list is words on purpose
private apt-get install --yes --download-only $packages >&2 || cannot "the packages cannot be downloaded"

mkdir "$work/root"
for package in "$work"/apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
rm -rf "$work/apt"
# Written last: a folder without it is one that somebody did not finish.
printf 'layout %s\nQEMU %s\nLinux %s\nfrom %s\n' "$layout" "$qemu" "$kernel" "$suite" >"$work/complete"
rm -rf "$cache"
chmod 0755 "$work"
mv "$work" "$cache"
trap - EXIT
echo "$cache"
