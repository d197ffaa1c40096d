#!/bin/sh
# Unpacks packages of a release of Debian into a folder, and prints the folder. Nothing is installed, and no root is needed.
#
#   tools/debian.sh FOLDER SUITE ARCH PACKAGE...     debian.sh target/sysroot bullseye arm64 libc6-dev libudev-dev
#
# ARCH is amd64 or arm64; what a package depends on is not fetched. Packages come by apt, which checks their signatures, from
# the mirror that this machine uses; HOSTLER_MIRROR names another one. A folder that is complete is left as it is.
set -eu

suite=$2
arch=$3
folder=$1/$suite-$arch
shift 3

if [ "$(cat "$folder/.complete" 2>/dev/null)" = "$*" ]; then
    echo "$folder"
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null 2>&1 || { echo "debian: $tool is not installed: this step runs on Debian or Ubuntu" >&2; exit 1; }
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || { echo "debian: $keyring is not there: install debian-archive-keyring" >&2; exit 1; }

# The first mirror in the machine's own lists that is Debian's main archive; Ubuntu's machines have none.
mirror=${HOSTLER_MIRROR:-$(sed -nE 's#^(URIs:|deb( \[[^]]*\])?) +(https?://[^ ]*/debian)/?( .*)?$#\3#p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)}
mirror=${mirror:-https://deb.debian.org/debian}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs"
: >"$work/status"
echo "deb [arch=$arch signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
apt() {
    apt-get -qq -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Architecture="$arch" \
        -o APT::Architectures="$arch" -o APT::Sandbox::User="$(id -un)" -o APT::Update::Error-Mode=any \
        -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}
echo "debian: fetching from $suite for $arch: $*" >&2
apt update >&2
(cd "$work/debs" && apt download "$@" >&2)
rm -rf "$folder"
mkdir -p "$folder"
for package in "$work"/debs/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
# Links to absolute paths lead out of the folder.
find "$folder" -type l -lname '/*' | while read -r link; do
    ln -sfr "$folder$(readlink "$link")" "$link"
done
echo "$*" >"$folder/.complete"
echo "$folder"
