use std::future::ready;

use super::{Order, OutOfOrder, Progress, Work};

#[test]
fn all_that_one_poll_gives_out_has_caught_up_with_the_poll_before() {
    let mut progress = Progress::default();
    assert_eq!([5, 5, 9, 9, 12].map(|at| progress.poll(at)), [0, 0, 5, 5, 9]);
}

#[tokio::test]
async fn work_of_no_time_takes_none() {
    let others_ran_first = tokio::select! {
        biased;
        () = Work::Nothing.done() => false,
        () = ready(()) => true,
    };
    assert!(!others_ran_first);
}

#[test]
fn keyless_records_that_have_moved_are_in_order_by_offset() {
    let (mut progress, mut counts) = (Progress::default(), OutOfOrder::default());
    // The record 3 has moved here behind the record 5.
    for (number, offset) in [(1, 0), (5, 1), (3, 2), (6, 3)] {
        progress.follow(number, offset, &mut counts);
    }
    assert_eq!(counts.violating(Order::Acknowledged), 0);
    assert_eq!(counts.violating(Order::Sent), 1, "records with keys stay in order");
    progress.follow(7, 2, &mut counts);
    assert_eq!(counts.violating(Order::Acknowledged), 1);
}
