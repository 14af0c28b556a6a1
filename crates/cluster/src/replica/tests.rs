use std::time::Duration;

use tokio::time::Instant;

use super::progress::Progress;

const LAG: Duration = Duration::from_secs(10);

fn after(begin: Instant, seconds: u64) -> Instant {
    begin + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_slowest_in_sync_replica_sets_the_committed_offset() {
    let begin = Instant::now();
    let mut progress = Progress::new([2, 3].into_iter(), 5, begin);
    assert_eq!(progress.committed(1, 9, &[1, 2, 3]), -1, "nobody has fetched yet");
    progress.fetched(2, (0, 9), 9, None, begin);
    progress.fetched(3, (0, 7), 9, None, begin);
    assert_eq!(progress.committed(1, 9, &[1, 2, 3]), 7);
    assert_eq!(progress.committed(1, 9, &[1, 2]), 9);
    assert_eq!(progress.committed(1, 9, &[1]), 9);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_keeps_up_with_a_moving_end_stays_in_sync() {
    let begin = Instant::now();
    let mut progress = Progress::new([2, 3].into_iter(), 0, begin);
    for second in 1..=20 {
        // Follower 2 always reaches the end of the log as of its previous fetch; follower 3 makes
        // no progress.
        let now = after(begin, second);
        progress.fetched(2, (0, (second as i64 - 1) * 10), second as i64 * 10, None, now);
        progress.fetched(3, (0, 0), second as i64 * 10, None, now);
    }
    assert_eq!(progress.lagging(&[1, 2, 3], 200, LAG, after(begin, 20)), [3]);
    // A follower at the end does not lag, however long nothing is appended.
    progress.fetched(3, (0, 200), 200, None, after(begin, 20));
    assert!(progress.lagging(&[1, 3], 200, LAG, after(begin, 100)).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_follower_rejoins_the_isr_at_the_high_watermark_and_the_epochs_start() {
    let begin = Instant::now();
    let mut progress = Progress::new([2].into_iter(), 8, begin);
    assert!(!progress.may_join(2, 0), "it has not fetched in this epoch");
    progress.fetched(2, (0, 7), 10, None, begin);
    assert!(!progress.may_join(2, 5), "older leaders wrote up to 8");
    progress.fetched(2, (0, 8), 10, None, begin);
    assert!(progress.may_join(2, 8));
    assert!(!progress.may_join(2, 9));
    assert!(!progress.may_join(4, 0), "not a replica");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_of_an_earlier_incarnation_is_ignored() {
    let begin = Instant::now();
    let mut progress = Progress::new([2].into_iter(), 0, begin);
    progress.fetched(2, (0, 10), 10, Some(4), begin);
    progress.fetched(2, (0, 6), 10, Some(5), begin);
    assert_eq!(progress.committed(1, 10, &[1, 2]), 6, "the next one has lost something");
    progress.fetched(2, (0, 10), 10, Some(4), begin);
    assert_eq!(progress.committed(1, 10, &[1, 2]), 6);
    assert_eq!(progress.broker_epoch(2), Some(5));
}

#[tokio::test(start_paused = true)]
async fn the_low_watermark_is_the_smallest_log_start_of_the_in_sync_replicas() {
    let begin = Instant::now();
    let mut progress = Progress::new([2, 3].into_iter(), 0, begin);
    assert_eq!(progress.low_watermark(1, 4, &[1, 2, 3]), -1, "nobody has said");
    progress.fetched(2, (4, 9), 9, None, begin);
    progress.fetched(3, (2, 9), 9, None, begin);
    assert_eq!(progress.low_watermark(1, 4, &[1, 2, 3]), 2);
    assert_eq!(progress.low_watermark(1, 4, &[1, 2]), 4, "one out of sync is not waited for");
    assert_eq!(progress.low_watermark(1, 4, &[1]), 4);
}
