#!/bin/sh
# Builds the images of both programs as OCI archives, each an index of all architectures that are asked for.
#
#   tools/image.sh [ARCH]...     ARCH as Debian names it, amd64 or arm64; without one that of this machine
#
# Takes the programs that packages.sh has built. An image has the program, the C library and libudev of Debian 12, and nothing else:
# no shell, no package manager. Needs buildah, root or a user with subordinate IDs, and neither a daemon nor a registry.
#   skopeo copy --all oci-archive:FILE docker://REGISTRY/hostler:VERSION     podman load -i FILE     ctr -n k8s.io images import FILE
set -eu
cd "$(dirname "$0")/.."

say() { echo "image: $*" >&2; }
command -v buildah >/dev/null 2>&1 || { say "buildah is not installed: apt-get install buildah"; exit 1; }

out=${HOSTLER_PACKAGES:-$PWD/target/packages}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
url=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
revision=$(git rev-parse HEAD)
epoch=$(git log -1 --format=%ct)
work=$(mktemp -d)
storage="--root $work/storage --runroot $work/run --storage-driver vfs"
build() {
    # shellcheck disable=SC2086 # the options are words on purpose
    buildah $storage "$@"
}
trap 'rm -rf "$work"' EXIT
umask 022

# Names of the libraries that a program or library loads. The loader is named by some, and comes by itself.
needs() {
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux'
}

# Puts the libraries of a program below the folder of libraries, and those that they load.
add_libraries() {
    for library in $(needs "$1"); do
        [ ! -e "$root/lib/$machine-linux-gnu/$library" ] || continue
        found=$(find "$libraries/lib" "$libraries/usr/lib" -name "$library" | head -n 1)
        [ -n "$found" ] || { say "$library is in none of the packages: add its package to tools/image.sh"; exit 1; }
        install -m 0755 "$(realpath "$found")" "$root/lib/$machine-linux-gnu/$library"
        add_libraries "$found"
    done
}

# The loader stands where programs look for it, the libraries where the loader does.
root() {
    libraries=$(tools/debian.sh "$PWD/target/sysroot" bookworm "$arch" libc6 libgcc-s1 libudev1)
    mkdir -p "$root/usr/bin" "$root/lib/$machine-linux-gnu"
    install -m 0755 "$out/stage-$arch/$program/usr/bin/$program" "$root/usr/bin/$program"
    add_libraries "$root/usr/bin/$program"
    loader=$(cd "$libraries" && find lib lib64 -maxdepth 1 -name 'ld-linux*' 2>/dev/null | head -n 1)
    mkdir -p "$root/$(dirname "$loader")"
    install -m 0755 "$(realpath "$(find "$libraries/lib" -name 'ld-linux*.so.?' -type f | head -n 1)")" "$root/$loader"
    find "$root" -exec touch -h -d "@$epoch" {} +
}

image() {
    container=$(build from --arch "$arch" scratch)
    build add "$container" "$root" / >/dev/null
    build config --arch "$arch" --os linux --entrypoint "[\"$program\"]" --cmd '' --env PATH=/usr/bin \
        --label "org.opencontainers.image.title=$program" --label "org.opencontainers.image.description=$description" \
        --label "org.opencontainers.image.source=$url" --label "org.opencontainers.image.version=$version" \
        --label "org.opencontainers.image.revision=$revision" --label org.opencontainers.image.licenses=Apache-2.0 "$container"
    # The daemon is root since the folders of the host that it writes to are root's.
    [ "$program" = hostler ] || build config --user 65532:65532 "$container"
    build commit --quiet --timestamp "$epoch" --format oci "$container" "localhost/$program:$arch" >/dev/null
    build manifest add "localhost/$program:index" "localhost/$program:$arch" >/dev/null
}

[ $# -gt 0 ] || set -- "$(dpkg --print-architecture)"
for program in hostler hostler-controller; do
    description="Prepares a host's hardware for the containers that run on it, and takes it back clean"
    [ "$program" = hostler ] || description="Counts, plans and keeps the hardware of a cluster for its pods"
    build manifest create "localhost/$program:index" >/dev/null
    for arch; do
        case $arch in
        amd64) machine=x86_64 ;;
        arm64) machine=aarch64 ;;
        *)
            say "there are images for amd64 and arm64, not for $arch"
            exit 2
            ;;
        esac
        root=$work/$program-$arch
        root
        image
    done
    archive=$out/${program}_$version.oci.tar
    rm -f "$archive"
    build manifest push --quiet --all "localhost/$program:index" "oci-archive:$archive:docker.io/library/$program:$version" >/dev/null
    say "$archive ($(du -k "$archive" | cut -f 1) KiB)"
done
