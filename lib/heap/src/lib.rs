//! Makes the C library's allocator keep little. A no-op with other C libraries.
//!
//! The calls are `unsafe` in the C library's interface, and safe here: they take no memory of the caller's.

/// Size from which an allocation is a mapping of its own: that of the C library, before it has seen one freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: nix::libc::c_int = 128 << 10;

/// Makes the allocator keep little. All threads share one arena: by default each gets its own, and what one thread has freed
/// is of no use to another, so that a daemon that allocates much, seldom, and on changing threads, would grow to a multiple of
/// what it needs. And large blocks stay mappings of their own, which go back to the kernel when they are freed: by default
/// the library takes them from the heap once it has seen one freed, where they leave holes among what stays.
///
/// Call this before threads are started.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes a limit of the allocator under the allocator's own lock.
    #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, OWN_MAPPING);
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
    use std::{
        fs,
        sync::{Mutex, MutexGuard, PoisonError},
    };

    /// Keeps other tests from running: `cargo test` has them in one process, and the memory of all is counted.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of memory that belong to this process alone.
    fn anonymous() -> u64 {
        let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn a_large_block_that_is_freed_leaves_no_hole_below_what_stays() {
        let _alone = alone();
        super::keep_little();
        // Of one that is freed the library learns to take the next from the heap.
        drop(std::hint::black_box(vec![1_u8; 8 << 20]));
        let before = anonymous();
        let large = std::hint::black_box(vec![1_u8; 8 << 20]);
        let stays = std::hint::black_box(Box::new([1_u8; 100]));
        drop(large);
        let after = anonymous();
        assert!(after < before + (1 << 20), "{before} before, {after} after, {}", stays.len());
    }

    #[test]
    fn what_is_free_goes_back_to_the_kernel() {
        let _alone = alone();
        super::keep_little();
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
