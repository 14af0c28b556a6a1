//! The short run: the corpus, the seeds, and a fixed number of mutated inputs of each target, with fixed seeds.
//!
//! `CURTAIL_FUZZ_ROUNDS=N` multiplies the number of mutated inputs by N; the first ones are those of the short run.
//!
//! A target that panics or that takes longer than [`LIMIT`] for one input fails its test, which writes the input to
//! `target/fuzz-artifacts` and says how to run it alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::Cell,
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{Once, mpsc},
    thread,
    time::Duration,
};

use curtail_fuzz::{Target, mutate::Mutator, target, targets};

/// Time for one input, generous for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const SEED: u64 = 0x0043_5552_5441_494c;

thread_local! {
    /// Whether there was a panic on this thread, also one that a runtime has caught.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

fn note_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            print(info);
        }));
    });
}

fn rounds() -> u32 {
    let rounds = std::env::var("CURTAIL_FUZZ_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().expect("CURTAIL_FUZZ_ROUNDS is a number"))
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs one input and returns whether it passed.
fn passes(target: &Target, input: &[u8]) -> bool {
    PANICKED.set(false);
    let run = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    run.is_ok() && !PANICKED.get()
}

fn keep(target: &Target, input: &[u8]) -> PathBuf {
    let dir =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz-artifacts").join(target.name);
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("short-{:08x}", crc32c::crc32c(input)));
    fs::write(&path, input).unwrap();
    path
}

fn short(name: &str) {
    note_panics();
    let target = *target(name).unwrap();
    let (progress, watch) = mpsc::channel::<Vec<u8>>();
    let work = thread::Builder::new().stack_size(8 << 20).spawn(move || {
        let seeds = (target.seeds)();
        let known = corpus(&target).into_iter().chain(seeds.iter().cloned());
        let mut mutator = Mutator::new(SEED, seeds.clone());
        // A file replays one input alone.
        let (known, cases): (Vec<_>, _) = match std::env::var_os("CURTAIL_FUZZ_INPUT") {
            Some(path) => (vec![fs::read(path).unwrap()], 0),
            None => (known.collect(), target.cases * rounds()),
        };
        let mutated = (0..cases).map(|_| mutator.next_input());
        for input in known.into_iter().chain(mutated) {
            progress.send(input.clone()).unwrap();
            if !passes(&target, &input) {
                return Err(input);
            }
        }
        Ok(())
    });
    let work = work.unwrap();
    let mut current = Vec::new();
    loop {
        match watch.recv_timeout(LIMIT) {
            Ok(input) => current = input,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("{name} hangs, see {}", keep(&target, &current).display());
            }
        }
    }
    if let Err(input) = work.join().unwrap() {
        let path = keep(&target, &input);
        panic!(
            "{name} fails; again: CURTAIL_FUZZ_INPUT={} cargo test -p curtail-fuzz {name}",
            path.display()
        );
    }
}

macro_rules! short_runs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                short(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_short_run() {
            let names = [$(stringify!($name)),*];
            assert!(targets::ALL.iter().all(|target| names.contains(&target.name)));
        }
    };
}

short_runs! {
    frames responses records codecs sasl groups accumulator link membership transaction fetch_session fetcher
    position metadata requests stored proxied client
}
