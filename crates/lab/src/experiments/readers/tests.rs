use std::future::ready;

use super::{Progress, Work};

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
