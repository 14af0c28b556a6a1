use std::{
    io::{Read as _, Write as _},
    net::TcpStream as StdStream,
    thread,
    time::Instant as StdInstant,
};

use super::*;

/// A server that echoes its input, and the proxy in front of it.
fn echo() -> (DelayingProxy, thread::JoinHandle<()>) {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let proxy = DelayingProxy::bind().expect("a port");
    proxy.forward_to(&listener.local_addr().expect("an address").to_string());
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut back = socket.try_clone().expect("the same socket");
        io::copy(&mut socket, &mut back).expect("an echo");
    });
    (proxy, server)
}

#[test]
fn responses_are_delayed_in_order_without_limiting_throughput() {
    let (proxy, server) = echo();
    let delay = Duration::from_millis(100);
    proxy.set_delay(delay);
    let mut client = StdStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy");
    client.set_nodelay(true).expect("a setting");
    let start = StdInstant::now();
    // One request after the other would take as many delays as there are requests.
    let requests = 200_u32;
    let mut writer = client.try_clone().expect("the same socket");
    let writer = thread::spawn(move || {
        for number in 0..requests {
            writer.write_all(&number.to_be_bytes()).expect("room");
        }
    });
    for number in 0..requests {
        let mut answer = [0; 4];
        client.read_exact(&mut answer).expect("a response");
        assert_eq!(u32::from_be_bytes(answer), number);
        assert!(start.elapsed() >= delay);
    }
    assert!(start.elapsed() < delay * requests / 4, "{:?}", start.elapsed());
    writer.join().expect("no panic");
    drop(client);
    server.join().expect("no panic");
}
