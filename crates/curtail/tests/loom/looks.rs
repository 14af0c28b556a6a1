//! Looks for overdue records: a look sees each record's deadline in time.

use std::{future::pending, sync::Arc};

use loom::thread;

use crate::{block_on, check, schedule::Schedule, sync::Mutex};

#[test]
fn a_deadline_announced_under_the_queue_lock_is_never_missed() {
    check(|| {
        let schedule = Arc::new(Schedule::new());
        let queue = Arc::new(Mutex::new(None));
        let (announcing, entered) = (schedule.clone(), queue.clone());
        let returning = thread::spawn(move || {
            let mut queue = entered.lock();
            announcing.no_later_than(3);
            *queue = Some(3);
        });
        schedule.begin();
        let seen = *queue.lock();
        schedule.no_later_than(seen.unwrap_or(100));
        returning.join().expect("no thread panics");
        assert!(schedule.next() <= 3);
    });
}

#[test]
fn an_earlier_deadline_ends_the_wait_for_a_later_one() {
    check(|| {
        let schedule = Arc::new(Schedule::new());
        schedule.begin();
        schedule.no_later_than(100);
        let announcing = schedule.clone();
        let returning = thread::spawn(move || announcing.no_later_than(3));
        block_on(schedule.due(sleep_until));
        returning.join().expect("no thread panics");
    });
}

/// Sleeps by a clock that always shows 3.
async fn sleep_until(at: u64) {
    if at > 3 {
        pending::<()>().await;
    }
}
