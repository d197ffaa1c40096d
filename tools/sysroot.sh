#!/bin/sh
# Unpacks the C library and libudev that released programs are linked against, and prints the folder.
#
#   tools/sysroot.sh ARCH FOLDER     ARCH as Debian names it: amd64 or arm64
#
# A program needs the C library that it was linked against or a newer one. Debian 11 has the oldest one that a mirror still
# serves; packages.sh checks that nothing newer than RHEL 8's is asked of it. The packages come by apt, which checks their
# signatures, from the mirror that this machine uses; HOSTLER_MIRROR names another one. Nothing is installed.
set -eu

arch=$1
folder=$2/bullseye-$arch
suite=bullseye

if [ -e "$folder/.complete" ]; then
    echo "$folder"
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null 2>&1 || { echo "sysroot: $tool is not installed: packages are built on Debian or Ubuntu" >&2; exit 1; }
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || { echo "sysroot: $keyring is not there: install debian-archive-keyring" >&2; exit 1; }

# The first mirror of the machine's own lists that is Debian's main archive; Ubuntu's machines have none.
mirror=${HOSTLER_MIRROR:-$(sed -nE 's#^(URIs:|deb( \[[^]]*\])?) +(https?://[^ ]*/debian)/?( .*)?$#\3#p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)}
mirror=${mirror:-https://deb.debian.org/debian}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs"
: >"$work/status"
echo "deb [arch=$arch signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
# Root reads the folder of an ordinary user as well, so apt needs no user of its own for its downloads.
apt() {
    apt-get -qq -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Architecture="$arch" \
        -o APT::Architectures="$arch" -o APT::Sandbox::User="$(id -un)" -o Acquire::Check-Valid-Until=false "$@"
}
echo "sysroot: fetching the C library of Debian 11 for $arch" >&2
apt update >&2
(cd "$work/debs" && apt download libc6 libc6-dev linux-libc-dev libgcc-s1 libudev1 libudev-dev libcrypt1 >&2)
rm -rf "$folder"
mkdir -p "$folder"
for package in "$work"/debs/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
touch "$folder/.complete"
echo "$folder"
