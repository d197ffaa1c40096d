//! Makes the C library's allocator keep little. A no-op with other C libraries.
//!
//! The calls are `unsafe` in the C library's interface, and safe here: they take no memory of the caller's.

/// Makes all threads share one arena. By default each gets its own, and what one thread has freed is of no use to
/// another: a daemon that allocates much, seldom, and on changing threads, would grow to a multiple of what it needs.
/// Call this before threads are started.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes a limit of the allocator under the allocator's own lock.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

/// Gives free memory back to the kernel. Takes about a millisecond for ten megabytes.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim touches free memory only, under the allocator's own lock.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

#[cfg(test)]
#[cfg(target_env = "gnu")]
mod tests {
    use std::fs;

    /// Bytes of memory that belong to this process alone.
    fn anonymous() -> u64 {
        let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn what_is_free_goes_back_to_the_kernel() {
        super::share_one_arena();
        // Small pieces stay in the arena when they are freed, below one that is still in use.
        let pieces: Vec<Vec<u8>> = (0..200_000).map(|_| vec![1; 100]).collect();
        let last = "x".repeat(100);
        drop(pieces);
        let before = anonymous();
        super::trim();
        let after = anonymous();
        assert!(before > after + (10 << 20), "{before} before, {after} after, {}", last.len());
    }
}
