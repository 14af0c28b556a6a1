//! Mailboxes: a value is received or dropped, and its receiver is woken for it.

use std::task::Context;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{block_on, check, flag, is_woken, mailbox::mailbox};

/// Counts its end.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// **Was a bug**, with tokio's channel: batches that ended while the runtime shut down had no outcome, because a clone
/// of the sender stayed.
#[test]
fn a_value_sent_while_the_receiver_ends_is_dropped_although_a_sender_stays() {
    check(|| {
        let (stays, receiver) = mailbox();
        let (ended, sender) = (Arc::new(AtomicUsize::new(0)), stays.clone());
        let value = Counted(ended.clone());
        let sending = thread::spawn(move || sender.send(value));
        drop(receiver);
        sending.join().expect("no thread panics");
        assert_eq!(ended.load(Ordering::Acquire), 1);
        drop(stays);
    });
}

#[test]
fn a_receiver_that_finds_no_value_is_woken_by_the_next() {
    check(|| {
        let (sender, mut receiver) = mailbox();
        let sending = thread::spawn(move || {
            sender.send(7);
            sender
        });
        let (flag, waker) = flag();
        let pending = receiver.poll_recv(&mut Context::from_waker(&waker)).is_pending();
        let _sender = sending.join().expect("no thread panics");
        assert!(!pending || is_woken(&flag));
    });
}

#[test]
fn a_receiver_that_waits_is_woken_by_the_end_of_the_last_sender() {
    check(|| {
        let (sender, mut receiver) = mailbox::<()>();
        let other = sender.clone();
        let threads = [sender, other].map(|sender| thread::spawn(move || drop(sender)));
        assert_eq!(block_on(receiver.recv()), None);
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
}

#[test]
fn a_receiver_gets_all_values_and_then_the_end_of_the_last_sender() {
    check(|| {
        let (sender, mut receiver) = mailbox();
        let other = sender.clone();
        let threads = [(sender, 1), (other, 2)]
            .map(|(sender, value)| thread::spawn(move || sender.send(value)));
        let mut sum = 0;
        while let Some(value) = block_on(receiver.recv()) {
            sum += value;
        }
        assert_eq!(sum, 3);
        assert!(receiver.is_ended());
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
}
