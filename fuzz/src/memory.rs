//! Memory caps, proved by a counting allocator.
//!
//! The allocator is that of the crate `allocation-counter`: it counts the calling thread's allocations while
//! [`within`] runs. Memory that C code takes (zstd's window) is not counted.

/// Bytes that any decode may take besides what its input justifies.
pub const SLACK: usize = 256 * 1024;

/// Runs `decode` and checks that it never holds more than `cap` bytes that it allocated itself.
///
/// # Panics
/// If it does.
pub fn within<T>(what: &str, cap: usize, decode: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(decode()));
    assert!(used.bytes_max <= cap as u64, "{what} held {} bytes, the cap is {cap}", used.bytes_max);
    result.expect("the closure ran")
}
