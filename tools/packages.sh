#!/bin/sh
# Builds the packages of a release: deb and rpm of both programs, their symbols apart, an archive of the kubectl plugin, a list
# of what they are made of (CycloneDX) and checksums.
#
#   tools/packages.sh [ARCH]...     ARCH as Debian names it, amd64 or arm64; without one that of this machine
#
# HOSTLER_PACKAGES names the folder for what is built (target/packages). Programs of another architecture write their man pages
# under QEMU (Debian's qemu-user or qemu-user-static). The result depends on the commit, the compiler and the packages of Debian 11 alone: two builds of
# a commit, in two folders, are equal byte by byte.
set -eu
cd "$(dirname "$0")/.."

say() { echo "packages: $*" >&2; }
need() { command -v "$1" >/dev/null 2>&1 || { say "$1 is not installed: apt-get install $2"; exit 1; }; }
need dpkg-deb dpkg
need rpmbuild rpm
need objdump binutils
need jq jq

out=${HOSTLER_PACKAGES:-$PWD/target/packages}
# What the oldest distribution that is supported has: RHEL 8.
newest_libc=2.28
cyclonedx=0.5.9
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
url=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
revision=$(git rev-parse --short=12 HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
git diff --quiet HEAD || { revision=$revision-dirty; say "the tree has changes that are not committed"; }

# A linker for old hosts: the folders of the old library go first, also for the code that starts a program.
# The compiler brings a libgcc_s of its own, which may need a newer C library; the host's is loaded.
# The standard library does without some functions where they are missing. Asking for them by the version that has them would keep
# a program from starting on an older host: --wrap has it ask for names that no library has, so they are missing on every host.
linker() {
    link=$PWD/target/packages/link
    mkdir -p "$link"
    "$tools-gcc" --sysroot="$sysroot" -O2 -fPIC -DOLDEST="\"$1\"" -c tools/packages/old-libc.c -o "$link/$tools.o"
    cat >"$link/$tools" <<TEXT
#!/bin/sh
exec $tools-gcc --sysroot=$sysroot -B$sysroot/usr/lib/$tools -L$sysroot/usr/lib/$tools -L$sysroot/lib/$tools \\
    -Wl,--allow-shlib-undefined -Wl,--wrap=gettid -Wl,--wrap=posix_spawn_file_actions_addchdir_np $link/$tools.o "\$@"
TEXT
    chmod +x "$link/$tools"
}

build() {
    arch=$1
    triple=$2-unknown-linux-gnu
    tools=$2-linux-gnu
    need "$tools-gcc" "gcc-$2-linux-gnu"
    if ! rustc --print target-libdir --target "$triple" 2>/dev/null | xargs test -d; then
        say "the Rust toolchain has no library for $triple: rustup target add $triple"
        exit 1
    fi
    sysroot=$(tools/debian.sh "$PWD/target/sysroot" bullseye "$arch" libc6 libc6-dev linux-libc-dev libgcc-s1 libudev1 libudev-dev)
    name=$(echo "$triple" | tr a-z- A-Z_)
    variable=$(echo "$triple" | tr - _)
    linker "$3"
    maps="--remap-path-prefix=$PWD=/hostler --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    env "CARGO_TARGET_${name}_LINKER=$link/$tools" "CARGO_TARGET_${name}_RUSTFLAGS=$maps" \
        "CC_$variable=$tools-gcc" \
        "CFLAGS_$variable=--sysroot=$sysroot $(echo "$maps" | sed 's/--remap-path-prefix/-ffile-prefix-map/g')" \
        PKG_CONFIG_ALLOW_CROSS=1 "PKG_CONFIG_SYSROOT_DIR=$sysroot" "PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$tools/pkgconfig" \
        HOSTLER_OLD_LIBC=1 "HOSTLER_REVISION=$revision" "CARGO_TARGET_DIR=$PWD/target/packages/build" CARGO_INCREMENTAL=0 \
        "${CARGO:-cargo}" build --release --locked --target "$triple" --package hostler --package hostler-controller --bins
    built=$PWD/target/packages/build/$triple/release
    for program in hostler hostler-controller; do
        libc=$(objdump -T "$built/$program" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
        say "$program ($arch) needs glibc $libc"
        if [ "$(printf '%s\n' "$newest_libc" "$libc" | sort -V | tail -n 1)" != "$newest_libc" ]; then
            say "$program must run with glibc $newest_libc"
            exit 1
        fi
    done
}

# One folder for each package, out of what `make install` installs.
stage() {
    run=
    if [ "$(uname -m)" != "$1" ]; then
        run=$(command -v "qemu-$1-static" || command -v "qemu-$1") || { say "qemu-$1 is not installed: apt-get install qemu-user"; exit 1; }
        run="$run -L $sysroot"
    fi
    stage=$out/stage-$arch
    rm -rf "$stage"
    mkdir -p "$stage/all"
    umask 022
    make -s install DESTDIR="$stage/all" RELEASE="$built/hostler" CONTROLLER="$built/hostler-controller" OBJCOPY="$tools-objcopy" RUN="$run"
    (cd "$stage/all" && gzip -9n usr/share/man/man?/*)
    (cd "$stage/all" && find . ! -type d | sed 's|^\./||' | sort) | while read -r file; do
        case $file in
        usr/lib/debug/*controller*) package=hostler-controller-dbgsym ;;
        usr/lib/debug/*) package=hostler-dbgsym ;;
        *controller* | *kubectl*) package=hostler-controller ;;
        *) package=hostler ;;
        esac
        mkdir -p "$stage/$package/$(dirname "$file")"
        mv "$stage/all/$file" "$stage/$package/$file"
    done
    rm -rf "$stage/all"
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

control() {
    cat <<TEXT
Package: $1
Version: $version
Architecture: $arch
Maintainer: hostler developers <packages@hostler.dev>
Homepage: $url
Section: ${section:-admin}
Priority: optional
Installed-Size: $(du -sk --apparent-size "$stage/$1" | cut -f 1)
Depends: $2
Description: $3
$4
TEXT
}

deb() {
    root=$stage/deb/$1
    mkdir -p "$stage/deb"
    cp -a "$stage/$1" "$root"
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
    cp LICENSE "$root/usr/share/doc/$1/copyright"
    control "$@" >"$root/DEBIAN/control"
    for script in preinst postinst prerm postrm; do
        [ ! -e "tools/packages/$1.$script" ] || install -m 0755 "tools/packages/$1.$script" "$root/DEBIAN/$script"
    done
    (cd "$root" && find etc -type f 2>/dev/null | sed 's|^|/|' | sort) >"$root/DEBIAN/conffiles"
    [ -s "$root/DEBIAN/conffiles" ] || rm "$root/DEBIAN/conffiles"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$1_${version}_$arch.deb" >/dev/null
}

debs() {
    base="libc6 (>= $newest_libc), libgcc-s1"
    deb hostler "$base, libudev1, systemd, init-system-helpers (>= 1.52)" \
        "prepare a host's hardware for containers and take it back clean" \
        " A daemon that enumerates NUMA nodes, CPUs, memory, FPGAs and CXL devices,
 prepares parts of them for containers by CDI files, and serves the kubelet's
 Dynamic Resource Allocation API."
    deb hostler-controller "$base, systemd, init-system-helpers (>= 1.52)" \
        "count, plan and keep the hardware of a cluster for its pods" \
        " The controller of a cluster whose nodes run hostler, its command line, and
 the plugin of kubectl."
    section=debug
    deb hostler-dbgsym "hostler (= $version)" "symbols of hostler" " What a debugger and a backtrace need to name functions and lines."
    deb hostler-controller-dbgsym "hostler-controller (= $version)" "symbols of hostler-controller" \
        " What a debugger and a backtrace need to name functions and lines."
    section=
}

rpms() {
    for package in hostler hostler-controller hostler-dbgsym hostler-controller-dbgsym; do
        # Folders that belong to the distribution are not ours to list. A configuration that was edited is never replaced.
        (cd "$stage/$package" && find . ! -type d | sed 's|^\.||; s|^/etc/|%config(noreplace) /etc/|' | sort) >"$stage/$package.files"
    done
    rpmbuild -bb --quiet --target "$1" --define "_topdir $stage/rpm" --define "_rpmdir $out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "_hostler_version $version" --define "_hostler_url $url" --define "_hostler_libc GLIBC_$newest_libc" \
        --define "_hostler_stage $stage" --define "_prefix /usr" tools/packages/packages.spec
}

plugin() {
    mkdir -p "$stage/plugin"
    cp "$stage/hostler-controller/usr/bin/hostler-controller" "$stage/plugin/kubectl-hostler"
    cp LICENSE "$stage/plugin/LICENSE"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$stage/plugin" -c . |
        gzip -9n >"$out/kubectl-hostler_${version}_linux_$arch.tar.gz"
}

# cargo-cyclonedx writes beside each Cargo.toml; its lists differ between builds in a serial number, the time and the folder alone.
parts() {
    PATH="$PWD/target/tools/bin:$PATH"
    if ! cargo-cyclonedx --version >/dev/null 2>&1 && ! cargo cyclonedx --version >/dev/null 2>&1; then
        "${CARGO:-cargo}" install --quiet --locked --root target/tools "cargo-cyclonedx@$cyclonedx"
    fi
    work=$(mktemp -d)
    git archive HEAD | tar -x -C "$work"
    (cd "$work" && "${CARGO:-cargo}" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename parts >&2)
    jq --sort-keys 'del(.serialNumber)' "$work/parts.json" | sed "s|$work|/hostler|g" >"$out/hostler_$version.cdx.json"
    jq --sort-keys 'del(.serialNumber)' "$work/controller/parts.json" | sed "s|$work|/hostler|g" >"$out/hostler-controller_$version.cdx.json"
    rm -rf "$work"
}

# krew takes a plugin only with the checksum of each archive.
manifest() {
    cp deploy/krew/hostler.yaml "$out/hostler.krew.yaml"
    for archive in "$out"/kubectl-hostler_"${version}"_linux_*.tar.gz; do
        arch=${archive##*_linux_}
        arch=${arch%.tar.gz}
        sed -i "s/SHA256-linux-$arch/$(sha256sum "$archive" | cut -d ' ' -f 1)/" "$out/hostler.krew.yaml"
    done
    sed -i "s/VERSION/$version/g" "$out/hostler.krew.yaml"
}

mkdir -p "$out"
[ $# -gt 0 ] || set -- "$(dpkg --print-architecture)"
for each; do
    case $each in
    # The first version of the C library on the machine stands for all that it has always had.
    amd64) machine=x86_64 oldest=2.2.5 ;;
    arm64) machine=aarch64 oldest=2.17 ;;
    *)
        say "there are packages for amd64 and arm64, not for $each"
        exit 2
        ;;
    esac
    build "$each" "$machine" "$oldest"
    stage "$machine"
    debs
    rpms "$machine"
    plugin
done
parts
manifest
(cd "$out" && sha256sum -- *"$version"*.deb *"$version"*.rpm *"$version"*.tar.gz *"$version"*.cdx.json >SHA256SUMS)
say "built in $out:"
(cd "$out" && ls -l -- *.deb *.rpm *.tar.gz *.cdx.json SHA256SUMS)
