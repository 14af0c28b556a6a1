//! A lane's driver and the tasks that queue work: queued work is sent, or the driver is woken.

use std::{
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use loom::thread;

use crate::{
    check, flag, is_woken,
    turnstile::{Armed, Left, Lists, Turnstile},
};

type Lane = Turnstile<u32, Link>;

/// A connection that carries any number of work items in a request.
#[derive(Default)]
struct Link {
    ready: Vec<u32>,
    timed: Vec<(Instant, u32)>,
    sent: usize,
    in_flight: usize,
    armed: Armed,
}

impl Lists<u32> for Link {
    fn add_ready(&mut self, work: u32) {
        self.ready.push(work);
    }

    fn add_timed(&mut self, at: Instant, work: u32) {
        self.timed.push((at, work));
    }

    fn next_timed(&self) -> Option<Instant> {
        self.timed.iter().map(|(at, _)| *at).min()
    }
}

/// Sends all ready work.
fn pump(lane: &Lane, link: &mut Link) {
    lane.receive(link);
    link.sent += take(&mut link.ready).len();
}

#[test]
fn queued_work_is_sent_or_the_driver_is_woken() {
    check(|| {
        let lane = Arc::new(Lane::new(Link::default()));
        let senders = [1, 2].map(|work| {
            let lane = lane.clone();
            thread::spawn(move || {
                lane.push(work, |link| {
                    pump(&lane, link);
                    // A second look, as for the next deadline. Loom switches threads at a lock, but not at its
                    // release. Here the other sender can find the link taken after the inbox was emptied.
                    lane.receive(link);
                    match link.timed.is_empty() {
                        true => Left::Nothing,
                        false => Left::ToDriver,
                    }
                });
            })
        });
        let (woken, waker) = flag();
        lane.register(&waker);
        pump(&lane, &mut lane.link());
        for sender in senders {
            sender.join().expect("no thread panics");
        }
        assert!(lane.link().sent == 2 || is_woken(&woken));
    });
}

#[test]
fn work_left_under_the_link_wakes_the_driver() {
    check(|| {
        let lane = Arc::new(Lane::new(Link::default()));
        let sending = lane.clone();
        let sender = thread::spawn(move || sending.push(1, |_| Left::ToDriver));
        let (woken, waker) = flag();
        lane.register(&waker);
        pump(&lane, &mut lane.link());
        sender.join().expect("no thread panics");
        assert!(lane.link().sent == 1 || is_woken(&woken));
    });
}

#[test]
fn work_left_for_a_response_is_sent_after_it() {
    check(|| {
        let lane = Arc::new(Lane::new(Link { in_flight: 1, ..Link::default() }));
        let sending = lane.clone();
        let sender = thread::spawn(move || {
            sending.push(1, |link| {
                if link.in_flight == 0 {
                    pump(&sending, link);
                }
                Left::Nothing
            });
        });
        let (woken, waker) = flag();
        lane.register(&waker);
        lane.link().in_flight -= 1;
        pump(&lane, &mut lane.link());
        sender.join().expect("no thread panics");
        assert!(lane.link().sent == 1 || is_woken(&woken));
    });
}

#[test]
fn the_timer_fires_for_the_earliest_work_or_the_driver_is_woken() {
    let now = Instant::now();
    check(move || {
        let lane = Arc::new(Lane::new(Link::default()));
        let due = [3, 5].map(|seconds| now + Duration::from_secs(seconds));
        let senders = due.map(|at| {
            let lane = lane.clone();
            thread::spawn(move || lane.push_timed(at, 1))
        });
        let (woken, waker) = flag();
        lane.register(&waker);
        arm(&lane, &mut lane.link());
        for sender in senders {
            sender.join().expect("no thread panics");
        }
        assert!(lane.link().armed.covers(Some(due[0])) || is_woken(&woken));
    });
}

/// As at the end of a turn: a look into the inbox, and the timer.
fn arm(lane: &Lane, link: &mut Link) {
    lane.receive(link);
    if let Some(next) = link.next_timed() {
        link.armed.arm(next);
    }
}

/// A turn removes the earliest timed work. Later work that was queued in the meantime, and so has woken no one, must
/// not wait for it.
#[test]
fn the_timer_fires_for_work_queued_while_earlier_work_is_sent() {
    let now = Instant::now();
    check(move || {
        let lane = Arc::new(Lane::new(Link::default()));
        let due = [3, 5].map(|seconds| now + Duration::from_secs(seconds));
        lane.push_timed(due[0], 1);
        let (woken, waker) = flag();
        let queueing = lane.clone();
        let sender = thread::spawn(move || queueing.push_timed(due[1], 2));
        lane.register(&waker);
        let mut link = lane.link();
        lane.receive(&mut link);
        let is_later = |(at, _): &(Instant, u32)| *at > due[0];
        link.timed.retain(is_later);
        arm(&lane, &mut link);
        drop(link);
        sender.join().expect("no thread panics");
        assert!(lane.link().armed.covers(Some(due[1])) || is_woken(&woken));
    });
}

#[test]
fn the_timer_fires_for_a_request_of_another_task_or_the_driver_is_woken() {
    let now = Instant::now();
    check(move || {
        let lane = Arc::new(Lane::new(Link::default()));
        let deadline = now + Duration::from_secs(1);
        lane.link().armed.arm(now);
        let sending = lane.clone();
        let sender = thread::spawn(move || {
            sending.push(1, |link| {
                pump(&sending, link);
                link.in_flight += 1;
                if link.armed.covers(Some(deadline)) { Left::Nothing } else { Left::ToDriver }
            });
        });
        let (woken, waker) = flag();
        lane.register(&waker);
        // The timer has fired.
        let mut timer = None;
        lane.link().armed.fired();
        let mut link = lane.link();
        pump(&lane, &mut link);
        if link.in_flight > 0 && link.armed.arm(deadline) {
            timer = Some(deadline);
        }
        drop(link);
        sender.join().expect("no thread panics");
        let has_timer = lane.link().in_flight == 0 || timer == Some(deadline);
        assert!(lane.link().sent == 1 && has_timer || is_woken(&woken));
    });
}
