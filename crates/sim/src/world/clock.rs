//! Virtual time to the nanosecond, on a tokio runtime whose own timers know milliseconds.
//!
//! Tokio's paused clock does not advance by itself. Left alone it would jump from timer to timer. Here it advances
//! whenever no task of the runtime is ready ([`Clock::advance`], called before the thread would park). It advances to
//! the next event of the world, and never past a whole millisecond, at which tokio's own timers may be due. So the
//! clients' and brokers' timers are as exact as in reality, and messages as exact as their model.

use std::{
    cmp::{Ordering as Order, Reverse},
    collections::BinaryHeap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;

use super::pipe::Pipe;

/// Tokio's timers are due at multiples of this, in nanoseconds.
const TICK: u64 = 1_000_000;

/// The time of a world, and its scheduled events. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Clock(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Nanoseconds since the world began.
    now: AtomicU64,
    agenda: Mutex<Agenda>,
    /// Waker of the task that runs after each advance of time.
    root: Mutex<Option<Waker>>,
}

#[derive(Default)]
struct Agenda {
    events: BinaryHeap<Reverse<Event>>,
    /// Events of the same moment happen in the order in which they were scheduled.
    planned: u64,
    due: Vec<Happening>,
}

struct Event {
    at: u64,
    number: u64,
    what: Happening,
}

/// An event.
pub(super) enum Happening {
    /// A wait has ended.
    Alarm(Arc<Mutex<Option<Waker>>>),
    /// Bytes have arrived at the end of a pipe.
    Arrival(Arc<Pipe>),
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Order {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Clock {
    /// Nanoseconds since the world began.
    pub(super) fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }

    /// Schedules an event at a time, now at the earliest.
    pub(super) fn plan(&self, at: u64, what: Happening) {
        let mut agenda = self.0.agenda.lock();
        agenda.planned += 1;
        let number = agenda.planned;
        agenda.events.push(Reverse(Event { at: at.max(self.now()), number, what }));
    }

    /// Waits until a time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) fn until(&self, at: u64) -> impl Future<Output = ()> + Send + use<> {
        Wait { clock: self.clone(), at, alarm: None }
    }

    /// Advances time to the next event and runs it. Call it when no task is ready.
    pub(super) fn advance(&self) {
        let mut due = {
            let mut agenda = self.0.agenda.lock();
            let now = self.now();
            let tick = (now / TICK + 1) * TICK;
            let next = agenda.events.peek().map_or(tick, |Reverse(event)| event.at.min(tick));
            self.0.now.store(next, Ordering::Relaxed);
            move_tokio(Duration::from_nanos(next - now));
            let mut due = std::mem::take(&mut agenda.due);
            while agenda.events.peek().is_some_and(|Reverse(event)| event.at <= next) {
                due.extend(agenda.events.pop().map(|Reverse(event)| event.what));
            }
            due
        };
        for happening in due.drain(..) {
            match happening {
                Happening::Alarm(waker) => wake(&waker),
                Happening::Arrival(pipe) => pipe.arrived(),
            }
        }
        self.0.agenda.lock().due = due;
        // Even if no task was woken, tokio must check its timers and must not park: it would skip time.
        if let Some(root) = self.0.root.lock().as_ref() {
            root.wake_by_ref();
        }
    }

    /// Sets the waker that is woken after each advance of time.
    pub(super) fn set_root(&self, waker: &Waker) {
        let mut root = self.0.root.lock();
        if !root.as_ref().is_some_and(|root| root.will_wake(waker)) {
            *root = Some(waker.clone());
        }
    }

    /// Drops all scheduled events: their waiters hold the runtime, which holds the clock.
    pub(super) fn stop(&self) {
        *self.0.root.lock() = None;
        let events = std::mem::take(&mut self.0.agenda.lock().events);
        drop(events);
    }
}

fn wake(waker: &Mutex<Option<Waker>>) {
    let waker = waker.lock().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Moves tokio's clock, which it does at the first poll; the future would then give other tasks a turn.
fn move_tokio(step: Duration) {
    let mut advance = pin!(tokio::time::advance(step));
    let _ = advance.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

struct Wait {
    clock: Clock,
    at: u64,
    alarm: Option<Arc<Mutex<Option<Waker>>>>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        match &self.alarm {
            Some(alarm) => *alarm.lock() = Some(cx.waker().clone()),
            None => {
                let alarm = Arc::new(Mutex::new(Some(cx.waker().clone())));
                self.clock.plan(self.at, Happening::Alarm(Arc::clone(&alarm)));
                self.alarm = Some(alarm);
            }
        }
        Poll::Pending
    }
}
