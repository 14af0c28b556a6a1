//! The sticky choice of keyless records: a late sender does not choose a previous partition again.

use std::sync::Arc;

use loom::thread;

use crate::{
    check,
    sticky::{Next, Sticky},
};

const BATCH: u32 = 100;

fn to(partition: u32) -> impl FnOnce(bool) -> Next {
    move |_| Next { partition, probe: false }
}

#[test]
fn a_partition_that_is_left_while_a_record_goes_there_takes_no_more() {
    check(|| {
        let sticky = Arc::new(Sticky::new(0, BATCH));
        let sending = sticky.clone();
        let sender = thread::spawn(move || sending.sent(0, 10, false, to(9)));
        sticky.leave(0, to(1));
        assert_eq!(sticky.current(), 1);
        sender.join().expect("no thread panics");
        assert_eq!(sticky.current(), 1);
    });
}

#[test]
fn one_of_two_senders_that_fill_a_batch_moves_the_choice() {
    check(|| {
        let sticky = Arc::new(Sticky::new(0, BATCH));
        let sending = sticky.clone();
        let probe = |_| Next { partition: 1, probe: true };
        let sender = thread::spawn(move || sending.sent(0, BATCH, true, probe));
        sticky.sent(0, BATCH, true, to(2));
        sender.join().expect("no thread panics");
        // The bytes belong to the partition: only a probe begins with its bytes used up.
        assert!([1, 2].contains(&sticky.current()));
        assert_eq!(sticky.is_probing(), sticky.current() == 1);
    });
}
