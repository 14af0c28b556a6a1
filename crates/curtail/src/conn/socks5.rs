//! SOCKS5 proxy: the handshake of RFC 1928, with the login of RFC 1929.
//!
//! The proxy receives names, not addresses, so that only it must know the names of the brokers.

use std::{fmt, io, net::IpAddr, time::Duration};

use curtail_net::{Env, Socket, SocketExt as _, SocketOptions};
use curtail_proto::sasl::Secret;

use super::{DialError, dial, parse_address};
use crate::{config::CommonConfig, error::ConnectionProblem};

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// `curtail.socks5.*`.
pub(super) struct Proxy<'a> {
    host: &'a str,
    port: u16,
    login: Option<(&'a str, &'a Secret)>,
}

/// Why the proxy gave no connection to a broker.
pub(super) enum Trouble {
    /// A connection attempt failed, and a later one may succeed.
    Failed(DialError),
    /// The proxy needs another login.
    Login(String),
}

impl<'a> Proxy<'a> {
    /// The proxy that the settings name. [`CommonConfig::validate`] has checked them.
    pub(super) fn of(common: &'a CommonConfig) -> Option<Self> {
        let (host, port) = parse_address(common.socks5_proxy.as_deref()?)?;
        let login = common.socks5_username.as_deref().zip(common.socks5_password.as_ref());
        Some(Self { host, port, login })
    }

    /// Connects to a broker by name.
    pub(super) async fn connect(
        &self,
        env: &Env,
        (host, port): (&str, u16),
        options: SocketOptions,
        limit: Duration,
    ) -> Result<Box<dyn Socket>, Trouble> {
        let dialled = dial(env, self.host, self.port, options, limit).await;
        let (socket, _) = dialled.map_err(|error| Trouble::Failed(error.of(&self.to_string())))?;
        self.log_in(&*socket).await?;
        self.request(&*socket, host, port).await?;
        Ok(socket)
    }

    /// Agrees on a method, and logs in if that is it.
    async fn log_in(&self, socket: &dyn Socket) -> Result<(), Trouble> {
        let methods: &[u8] = if self.login.is_some() { &[NO_LOGIN, LOGIN] } else { &[NO_LOGIN] };
        let greeting = [&[VERSION, methods.len() as u8][..], methods].concat();
        socket.write_all(&greeting).await.map_err(|error| self.lost(error))?;
        let [version, method] = self.read(socket).await?;
        if version != VERSION {
            return Err(self.failed(ConnectionProblem::Other, "the peer does not speak SOCKS5"));
        }
        match (method, self.login) {
            (NO_LOGIN, _) => Ok(()),
            (LOGIN, Some((user, password))) => {
                self.authenticate(socket, user, password.reveal()).await
            }
            (_, None) => Err(self.refused(
                "requires a login; set curtail.socks5.username and curtail.socks5.password",
            )),
            (_, Some(_)) => Err(self.refused("accepts no login with user name and password")),
        }
    }

    async fn authenticate(
        &self,
        socket: &dyn Socket,
        user: &str,
        password: &str,
    ) -> Result<(), Trouble> {
        const LOGIN_VERSION: u8 = 1;
        let mut login = vec![LOGIN_VERSION];
        for text in [user, password] {
            login.push(text.len() as u8);
            login.extend(text.as_bytes());
        }
        let login = zeroize::Zeroizing::new(login);
        socket.write_all(&login).await.map_err(|error| self.lost(error))?;
        match self.read(socket).await? {
            [_, 0] => Ok(()),
            [_, _] => Err(self.refused(
                "refuses the login; check curtail.socks5.username and curtail.socks5.password",
            )),
        }
    }

    /// Requests a connection to the broker.
    async fn request(&self, socket: &dyn Socket, host: &str, port: u16) -> Result<(), Trouble> {
        let mut request = vec![VERSION, CONNECT, 0];
        match host.parse() {
            Ok(IpAddr::V4(address)) => request.extend([&[IPV4][..], &address.octets()].concat()),
            Ok(IpAddr::V6(address)) => request.extend([&[IPV6][..], &address.octets()].concat()),
            Err(_) => {
                let Ok(length) = u8::try_from(host.len()) else {
                    return Err(self.failed(
                        ConnectionProblem::UnknownHost,
                        "the broker's name is longer than 255 bytes",
                    ));
                };
                request.extend([NAME, length]);
                request.extend(host.as_bytes());
            }
        }
        request.extend(port.to_be_bytes());
        socket.write_all(&request).await.map_err(|error| self.lost(error))?;
        let [_, reply, _, kind] = self.read(socket).await?;
        if reply != 0 {
            return Err(self.failed(problem_of(reply), meaning_of(reply)));
        }
        // The address from which the proxy has connected, which does not matter.
        let length = match kind {
            IPV4 => 4,
            IPV6 => 16,
            NAME => usize::from(self.read::<1>(socket).await?[0]),
            _ => return Err(self.failed(ConnectionProblem::Other, "its reply is malformed")),
        };
        self.read_exactly(socket, &mut vec![0; length.saturating_add(2)]).await
    }

    async fn read<const N: usize>(&self, socket: &dyn Socket) -> Result<[u8; N], Trouble> {
        let mut bytes = [0; N];
        self.read_exactly(socket, &mut bytes).await?;
        Ok(bytes)
    }

    /// Reads no byte more: those after the handshake are the broker's.
    async fn read_exactly(&self, socket: &dyn Socket, mut rest: &mut [u8]) -> Result<(), Trouble> {
        while !rest.is_empty() {
            let read = socket.read(rest).await.map_err(|error| self.lost(error))?;
            if read == 0 {
                return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
            }
            rest = &mut rest[read..];
        }
        Ok(())
    }

    fn lost(&self, error: io::Error) -> Trouble {
        let reason = format!("{self}: the connection broke off during the handshake");
        Trouble::Failed(DialError {
            problem: ConnectionProblem::Other,
            reason,
            source: Some(error),
        })
    }

    fn failed(&self, problem: ConnectionProblem, reason: &str) -> Trouble {
        Trouble::Failed(DialError { problem, reason: format!("{self}: {reason}"), source: None })
    }

    fn refused(&self, reason: &str) -> Trouble {
        Trouble::Login(format!("{self} {reason}"))
    }
}

impl fmt::Display for Proxy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy of curtail.socks5.proxy={}:{}", self.host, self.port)
    }
}

fn problem_of(reply: u8) -> ConnectionProblem {
    match reply {
        4 => ConnectionProblem::UnknownHost,
        5 => ConnectionProblem::Refused,
        _ => ConnectionProblem::Other,
    }
}

fn meaning_of(reply: u8) -> &'static str {
    match reply {
        1 => "it failed to connect to the broker",
        2 => "its rules forbid connections to the broker",
        3 => "the broker's network is unreachable from there",
        4 => "the broker's host is unreachable from there, or its name unknown",
        5 => "the broker refused its connection; is anything listening there?",
        6 => "its connection to the broker expired",
        7 => "it supports no CONNECT",
        8 => "it does not support this kind of address",
        _ => "it refused the connection with a code that RFC 1928 does not define",
    }
}
