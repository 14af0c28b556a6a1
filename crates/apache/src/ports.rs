//! Loopback ports that are reserved for one cluster.
//!
//! A broker that is killed and restarted must return to its port. Ports are therefore below the
//! range that the kernel assigns to outgoing connections. A file lock reserves each port among all
//! processes of this machine's user for the lifetime of the cluster.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Socket, Type};

use crate::error::Error;

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// One reserved port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Holds the lock.
    reservation: File,
}

impl Drop for Port {
    /// Unlocks explicitly, because closing the file is not enough: a child process being started
    /// also has the file open until it executes its program.
    fn drop(&mut self) {
        // The lock ends with the last process that has the file open, at the latest.
        let _ = self.reservation.unlock();
    }
}

/// Reserves `count` ports on which nothing listens.
pub(crate) fn reserve(count: usize) -> Result<Vec<Port>, Error> {
    let directory = std::env::temp_dir().join("curtail-apache-ports");
    std::fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let start = starting_point();
    let mut ports = Vec::with_capacity(count);
    for step in 0..COUNT {
        if ports.len() == count {
            break;
        }
        let number = FIRST + (start + step) % COUNT;
        if let Some(port) = try_reserve(&directory.join(number.to_string()), number)? {
            ports.push(port);
        }
    }
    if ports.len() < count {
        return Err(Error::Invalid(format!(
            "no {count} free loopback ports from {FIRST} to {}",
            FIRST + COUNT - 1
        )));
    }
    Ok(ports)
}

fn try_reserve(path: &PathBuf, number: u16) -> Result<Option<Port>, Error> {
    let file = File::create(path).map_err(Error::file("create", path))?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    if bind_without_listening(number).is_err() {
        return Ok(None);
    }
    Ok(Some(Port { number, reservation: file }))
}

/// Binds a socket to the port, and fails while something listens there.
///
/// The socket does not listen: a child process being started inherits a copy of it until it
/// executes its program, and the port must be free for a listener during that time as well.
fn bind_without_listening(number: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
    Ok(socket)
}

/// Spreads processes that start at the same time over the range; the locks decide, this only
/// shortens the search.
fn starting_point() -> u16 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let mixed = nanos.wrapping_mul(2_654_435_761) ^ std::process::id().wrapping_mul(40_503);
    (mixed % u32::from(COUNT)) as u16
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn reserved_ports_are_distinct_free_and_released_on_drop() {
        let first = reserve(4).unwrap();
        let second = reserve(4).unwrap();
        let numbers: BTreeSet<u16> = first.iter().chain(&second).map(|p| p.number).collect();
        assert_eq!(numbers.len(), 8);
        for number in &numbers {
            bind_without_listening(*number).unwrap();
        }
        let path = std::env::temp_dir().join("curtail-apache-ports");
        let number = first[0].number;
        let path = path.join(number.to_string());
        assert!(try_reserve(&path, number).unwrap().is_none(), "held while the port lives");
        let of_a_process_being_started = first[0].reservation.try_clone().unwrap();
        drop(first);
        assert!(try_reserve(&path, number).unwrap().is_some(), "released with it");
        drop(of_a_process_being_started);
    }

    #[test]
    fn a_port_is_free_for_a_listener_while_its_check_is_inherited_by_a_child() {
        let port = reserve(1).unwrap().remove(0);
        let inherited = bind_without_listening(port.number).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)).unwrap();
        drop(inherited);
        assert!(bind_without_listening(port.number).is_err(), "something listens");
        drop(listener);
    }
}
