//! The end of the process that started this one.

use std::{
    io::{self, Read as _},
    thread,
};

use tokio::sync::mpsc;

/// Returns once the parent process has ended, or has closed the pipe that is the standard input.
/// Never returns unless it is asked to watch.
///
/// Standard input counts only if it is a pipe or a socket: many programs start others with
/// `/dev/null`, which is at its end from the start. A pipe that is at its end from the start, as some
/// CI runners give to their jobs, does not count either if the parent process is watched. On Windows it counts unless it is a
/// terminal.
pub(crate) fn gone(watch: bool) -> impl Future<Output = ()> {
    let (ended, mut end) = mpsc::channel(1);
    if watch {
        let is_process_watched = watch_process(ended.clone());
        if !(is_process_watched && has_input_ended()) {
            watch_input(ended.clone());
        }
    }
    async move {
        end.recv().await;
        // Not before: without a thread that watches, the channel would be closed from the start.
        drop(ended);
    }
}

/// Watches on a thread, not on a task: the runtime would wait for a blocked one when it ends.
fn watch_input(ended: mpsc::Sender<()>) {
    if !is_input_a_pipe() {
        return;
    }
    thread::spawn(move || {
        let mut ignored = [0; 1024];
        let mut input = io::stdin().lock();
        loop {
            match input.read(&mut ignored) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        // The cluster may have ended for another reason.
        let _ = ended.blocking_send(());
    });
}

#[cfg(unix)]
fn is_input_a_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = std::fs::metadata("/dev/stdin").map(|input| input.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

#[cfg(not(unix))]
fn is_input_a_pipe() -> bool {
    use std::io::IsTerminal as _;

    !io::stdin().is_terminal()
}

/// Returns whether the other end of the standard input is closed.
#[cfg(target_os = "linux")]
fn has_input_ended() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let input = io::stdin();
    let mut watched = [PollFd::new(&input, PollFlags::RDHUP)];
    poll(&mut watched, Some(&Timespec::default())).is_ok()
        && watched[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)
}

#[cfg(not(target_os = "linux"))]
fn has_input_ended() -> bool {
    false
}

/// Returns whether it watches the parent process.
#[cfg(target_os = "linux")]
fn watch_process(ended: mpsc::Sender<()>) -> bool {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        io::Errno,
        process::{PidfdFlags, getppid, pidfd_open},
    };

    // The parent is process 1 also if the original one has ended.
    let parent = getppid().filter(|id| !id.is_init());
    // Older kernels and other process namespaces have none.
    let Some(parent) = parent.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok()) else {
        return false;
    };
    thread::spawn(move || {
        // Readable once the process has ended.
        let mut watched = [PollFd::new(&parent, PollFlags::IN)];
        loop {
            match poll(&mut watched, None) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
        // As above.
        let _ = ended.blocking_send(());
    });
    true
}

#[cfg(not(target_os = "linux"))]
fn watch_process(_: mpsc::Sender<()>) -> bool {
    false
}
