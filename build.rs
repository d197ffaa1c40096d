//! How the programs are linked; nothing is generated.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HOSTLER_OLD_LIBC");
    // A program that can be loaded anywhere carries a table of every address in it, a megabyte of 24 bytes for each, which is
    // read whole at each start and stays resident. Packed, it is a thirtieth of that. Linkers and C libraries before 2022 do
    // not know it: the linker then says so and goes on as before. What is built for older C libraries goes without.
    let old_libc = std::env::var_os("HOSTLER_OLD_LIBC").is_some();
    if !old_libc && std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
