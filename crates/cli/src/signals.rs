//! Signals that ask this process to end.

use std::io;

use tokio::select;

/// Completes on Ctrl-C or SIGTERM. Catches the signals from the call on.
#[cfg(unix)]
pub(crate) fn end() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Completes on Ctrl-C, Ctrl-Break, or the end of the console or of the session. Catches them from the call on.
#[cfg(windows)]
pub(crate) fn end() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    let (mut interrupt, mut stop) = (ctrl_c()?, ctrl_break()?);
    let (mut close, mut shutdown) = (ctrl_close()?, ctrl_shutdown()?);
    Ok(async move {
        select! {
            biased;
            _ = interrupt.recv() => {}
            _ = stop.recv() => {}
            _ = close.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}

/// As [`end`], and completes on SIGHUP as well.
#[cfg(unix)]
pub(crate) fn end_or_hang_up() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let end = end()?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        select! {
            () = end => {}
            _ = hang_up.recv() => {}
        }
    })
}

/// As [`end`]: there is no SIGHUP.
#[cfg(windows)]
pub(crate) fn end_or_hang_up() -> io::Result<impl Future<Output = ()> + Send> {
    end()
}
