use super::*;

/// Largest distance at which lz4 and snappy find repetitions.
const WINDOW: usize = 64 * 1024;

#[test]
fn values_within_the_window_of_lz4_do_not_overlap() {
    for size in [100, 512, 1000] {
        let within = (WINDOW / size) as u64;
        for index in 0..10_000_u64 {
            let at = position(index);
            for earlier in index.saturating_sub(within)..index {
                let apart = at.abs_diff(position(earlier));
                assert!(apart >= size, "values {earlier} and {index} of {size} bytes overlap");
            }
        }
    }
}

#[test]
fn values_have_their_size_and_differ() {
    let letters = Letters::new(100, 7);
    assert_eq!(letters.get(0).len(), 100);
    assert_ne!(letters.get(0), letters.get(1));
    assert!(letters.get(u64::MAX).iter().all(u8::is_ascii_uppercase));
}
