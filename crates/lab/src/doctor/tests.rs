use std::{net::TcpListener, thread, time::Instant};

use super::*;

fn options() -> Options {
    let producer = ProducerConfig::new("127.0.0.1:1");
    let consumer = ConsumerConfig::new("127.0.0.1:1");
    let admin = AdminConfig::new("127.0.0.1:1");
    Options {
        producer,
        consumer,
        admin,
        target: Duration::from_millis(50),
        throughput: 1e6,
        record_size: 1024,
        partitions: None,
        replication_factor: None,
        duration: Duration::from_secs(60),
    }
}

#[test]
fn options_that_no_run_can_have_are_refused_by_name() {
    options().checked().unwrap();
    type Change = fn(&mut Options);
    let refused: [(&str, Change); 11] = [
        ("record size", |options| options.record_size = 15),
        ("max.request.size", |options| {
            options.record_size = usize::MAX;
            options.throughput = f64::MAX;
        }),
        ("throughput", |options| options.throughput = f64::NAN),
        ("throughput", |options| options.throughput = f64::INFINITY),
        ("throughput", |options| options.throughput = -1.0),
        ("throughput", |options| options.throughput = 1023.0),
        ("target", |options| options.target = Duration::MAX),
        ("target", |options| options.target = Duration::ZERO),
        ("duration", |options| options.duration = Duration::MAX),
        ("duration", |options| options.duration = Duration::ZERO),
        ("partitions", |options| options.partitions = Some(i32::MIN)),
    ];
    for (name, change) in refused {
        let mut options = options();
        change(&mut options);
        let error = options.checked().unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_stop_ends_a_wait_for_an_unresponsive_broker() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut options = options();
    options.admin = AdminConfig::new(address);
    let stop = Stop::default();
    let (examined, took) = thread::scope(|scope| {
        let examining = scope.spawn(|| run(&options, &stop, &mut |_| {}));
        // The connection is accepted, and no request is answered.
        let _connection = listener.accept().unwrap();
        let begun = Instant::now();
        stop.set();
        (examining.join().unwrap(), begun.elapsed())
    });
    assert!(matches!(examined, Err(Error::Interrupted)), "{examined:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
