//! The world of a client: sockets, wall clock and randomness.
//!
//! Clients use the machine's own unless they are created with `with_env`, as the simulation does.

pub use curtail_net::{
    BoxFuture, Entropy, Env, Listener, Net, ReadSide, RealNet, Socket, SocketOptions, SystemClock,
    WallClock,
};
