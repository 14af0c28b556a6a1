//! A file descriptor that wakes an event loop: an eventfd on Linux, elsewhere a socket pair.

use std::{io, os::fd::AsRawFd};

use rustix::event::{PollFd, PollFlags, poll};

#[cfg(target_os = "linux")]
mod imp {
    use std::{io, os::fd::OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    pub(super) struct Pair(pub(super) OwnedFd);

    impl Pair {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
        }

        pub(super) fn raise(&self) {
            // Fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(super) fn lower(&self) {
            // Fails if it is not raised.
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::{
        io::{self, Read, Write},
        os::unix::net::UnixStream,
    };

    pub(super) struct Pair(pub(super) UnixStream, UnixStream);

    impl Pair {
        pub(super) fn new() -> io::Result<Self> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            write.set_nonblocking(true)?;
            Ok(Self(read, write))
        }

        pub(super) fn raise(&self) {
            // Fails only if the socket is full, and then the descriptor is readable.
            let _ = (&self.1).write(&[1]);
        }

        pub(super) fn lower(&self) {
            let mut bytes = [0; 64];
            while matches!((&self.0).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        }
    }
}

/// The descriptor.
pub(crate) struct Signal(imp::Pair);

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        imp::Pair::new().map(Self)
    }

    /// The descriptor to watch for reading.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.0.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn raise(&self) {
        self.0.raise();
    }

    /// Waits until the descriptor is readable.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.0.0, PollFlags::IN)];
        // A signal's handler runs in the interpreter, which calls again.
        let _ = poll(&mut fds, None);
    }

    /// Makes the descriptor unreadable until it is raised again.
    pub(crate) fn lower(&self) {
        self.0.lower();
    }
}
