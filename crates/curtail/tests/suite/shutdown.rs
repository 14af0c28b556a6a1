//! Clients whose tokio runtime shuts down while other threads and runtimes use them.
//!
//! A round makes a client on one runtime and calls it elsewhere. The seed selects the poll before which that runtime
//! shuts down, how it does, and what the brokers do by then. Every call must end, before and after. No setting may be
//! the reason: the limits of all calls are an hour.

mod admins;
mod closed;
mod consumers;
mod producers;
mod transactions;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use crate::common::Backend;
use curtail_net::Entropy;
use tokio::{
    runtime::{Builder, Handle, Runtime, RuntimeFlavor},
    sync::oneshot,
};

/// Rounds of each test.
const ROUNDS: u64 = 40;

/// Seconds after which a round hangs.
const PATIENCE: u32 = 120;

/// Limits of the calls, far beyond [`PATIENCE`].
const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: &str = "3600000";

const ADD_PARTITIONS_TO_TXN: i16 = 24;
const WRITE_TXN_MARKERS: i16 = 27;

/// A cluster of one broker, on a runtime that stays.
struct Rig {
    runtime: Runtime,
    backend: Backend,
}

impl Rig {
    fn start() -> Self {
        let runtime = workers(2);
        let backend = runtime.block_on(Backend::embedded(1));
        Self { runtime, backend }
    }

    fn create_topic(&self, name: &str, partitions: i32) {
        self.runtime.block_on(self.backend.create_topic(name, partitions, 1));
    }

    fn trouble(&self, trouble: Trouble) {
        let Backend::Embedded(cluster) = &self.backend else { return };
        match trouble {
            Trouble::None => {}
            Trouble::Frozen => cluster.freeze(1),
            Trouble::Silent(api) => {
                cluster.delay(Some(1), api, HOUR);
                // The broker's own requests are responded to. It would repeat them only after 30 s: no round's
                // verdict must wait for that. The delay of one API takes precedence over that of all.
                for own in [ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS] {
                    cluster.delay(Some(1), Some(own), Duration::from_nanos(1));
                }
            }
        }
    }

    fn no_trouble(&self) {
        let Backend::Embedded(cluster) = &self.backend else { return };
        cluster.clear_delays();
        cluster.thaw(1);
        self.runtime.block_on(cluster.settled());
    }
}

/// What the broker does from some step of a round on.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// It reads no requests.
    Frozen,
    /// It handles requests, but sends clients no responses to this API or to any.
    Silent(Option<i16>),
}

impl Trouble {
    fn draw(draw: &Entropy, apis: &[i16]) -> Self {
        match draw.below(4) {
            0 => Self::Frozen,
            1 => Self::Silent(None),
            2 => Self::Silent(apis.get(draw.below(apis.len() as u64) as usize).copied()),
            _ => Self::None,
        }
    }
}

/// Begins a shutdown. Returns the thread that carries it out, if that is known.
type End = Box<dyn FnOnce() -> Option<JoinHandle<()>> + Send>;

/// The runtime of a round's client. Clones share it.
#[derive(Clone)]
struct Doomed(Arc<Life>);

struct Life {
    handle: Handle,
    ended: AtomicBool,
    end: Mutex<Option<End>>,
    ending: Mutex<Option<JoinHandle<()>>>,
    /// Whether [`Doomed::end`] waits until the runtime has ended.
    waits: bool,
}

impl Doomed {
    fn start(draw: &Entropy) -> Self {
        let runtime = match draw.below(3) {
            0 => Builder::new_current_thread().enable_all().build().expect("a runtime"),
            n => workers(n as usize),
        };
        let handle = runtime.handle().clone();
        let is_driven_by_a_thread =
            draw.below(2) == 0 || handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        let end: End = if is_driven_by_a_thread {
            let (stop, stopped) = oneshot::channel::<()>();
            let driver = thread::spawn(move || {
                // The sender is dropped to stop.
                let _ = runtime.block_on(stopped);
            });
            Box::new(move || {
                drop(stop);
                Some(driver)
            })
        } else if draw.below(2) == 0 {
            Box::new(move || Some(thread::spawn(move || drop(runtime))))
        } else {
            Box::new(move || {
                runtime.shutdown_background();
                None
            })
        };
        Self(Arc::new(Life {
            handle,
            ended: AtomicBool::new(false),
            end: Mutex::new(Some(end)),
            ending: Mutex::default(),
            waits: draw.below(2) == 0,
        }))
    }

    fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Shuts the runtime down.
    fn end(&self) {
        let end = self.0.end.lock().expect("no panic").take();
        let Some(end) = end else { return };
        *self.0.ending.lock().expect("no panic") = end();
        if self.0.waits {
            self.wait();
        }
        self.0.ended.store(true, Ordering::Release);
    }

    /// Waits for the thread that drops the runtime.
    fn wait(&self) {
        let ending = self.0.ending.lock().expect("no panic").take();
        if let Some(ending) = ending {
            ending.join().expect("the runtime ends without a panic");
        }
    }
}

fn workers(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Where the application's calls are polled.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On a thread without a runtime.
    Plain,
    /// On another runtime.
    Other,
    /// On a plain thread with the client's runtime, as `Handle::block_on` does.
    Doomed,
}

/// Polls an application's calls, and shuts the client's runtime down before one of the polls.
struct Trap {
    doomed: Doomed,
    polls: u64,
    place: Place,
    other: Runtime,
    steps: Steps,
}

impl Trap {
    fn set(draw: &Entropy, steps: Steps) -> Self {
        let place = match draw.below(3) {
            0 => Place::Plain,
            1 => Place::Other,
            _ => Place::Doomed,
        };
        let polls = draw.below(1 << draw.below(18));
        Self { doomed: Doomed::start(draw), polls, place, other: workers(1), steps }
    }

    /// Runs a call to its end.
    fn run<T>(&mut self, step: &str, call: impl Future<Output = T>) -> T {
        self.steps.enter(format!("{step}, {:?}", self.place));
        let (doomed, polls) = (self.doomed.clone(), &mut self.polls);
        let mut call = pin!(call);
        let trapped = poll_fn(|cx| {
            match polls.checked_sub(1) {
                Some(less) => *polls = less,
                None => doomed.end(),
            }
            let polled = call.as_mut().poll(cx);
            if polled.is_pending() && !doomed.has_ended() {
                // Polls go on while the call waits, so that the trap shuts in the middle of its wait.
                cx.waker().wake_by_ref();
            }
            polled
        });
        match self.place {
            Place::Plain => park_on(trapped),
            Place::Other => self.other.block_on(trapped),
            Place::Doomed => self.doomed.0.handle.block_on(trapped),
        }
    }

    /// Runs a call that does not wait.
    fn now<T>(&mut self, step: &str, call: impl FnOnce() -> T) -> T {
        self.run(step, async { call() })
    }

    /// Shuts the runtime down unless that has happened.
    fn shut(&mut self) {
        self.steps.enter("the shutdown".into());
        self.doomed.end();
    }
}

/// The current step of a round, for the verdict of a hang.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<String>>);

impl Steps {
    fn enter(&self, step: String) {
        *self.0.lock().expect("no panic") = step;
    }
}

/// Runs all rounds, each on a new thread.
fn rounds(round: fn(&Rig, u64, Steps)) {
    let rig = Arc::new(Rig::start());
    for seed in 0..ROUNDS {
        let (rig, steps) = (rig.clone(), Steps::default());
        let (done, ended) = mpsc::channel::<()>();
        let seen = steps.clone();
        let running = thread::spawn(move || {
            round(&rig, seed, steps);
            rig.no_trouble();
            drop(done);
        });
        let hangs = hangs(&ended);
        let step = seen.0.lock().expect("no panic").clone();
        assert!(!hangs, "seed {seed}: {step} does not end");
        assert!(running.join().is_ok(), "seed {seed}: {step}: see the panic above");
    }
}

/// Waits for the end of a round.
fn hangs(ended: &mpsc::Receiver<()>) -> bool {
    let second = Duration::from_secs(1);
    // Second by second: a pause of the whole process counts as one.
    (0..PATIENCE).all(|_| ended.recv_timeout(second) == Err(mpsc::RecvTimeoutError::Timeout))
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on a thread without a runtime.
fn park_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
