//! Cost of the producer, without the perf tool: `produce_cost BOOTSTRAP TOPIC RECORDS SIZE`.
//!
//! Sends as fast as `buffer.memory` allows. Prints records per second and CPU time per record of this process.

use std::time::Instant;

use curtail::{Producer, ProducerConfig, Record};

/// User and system time of this process so far, in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, records, size] = &args[..] else {
        return Err("usage: produce_cost BOOTSTRAP TOPIC RECORDS SIZE".into());
    };
    let (records, size): (u64, usize) = (records.parse()?, size.parse()?);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let _context = runtime.enter();
    let mut config = ProducerConfig::new(bootstrap);
    for pair in std::env::var("PROPS").unwrap_or_default().split_whitespace() {
        let (name, value) = pair.split_once('=').ok_or("PROPS holds name=value pairs")?;
        config.set(name, value)?;
    }
    let producer = Producer::new(config)?;
    runtime.block_on(producer.warm_up(&[topic]))?;
    let value = vec![b'x'; size];
    let mut last = None;
    let mut failed = 0u64;
    let (started, cpu_before) = (Instant::now(), cpu());
    for _ in 0..records {
        let record = Record::to(topic).value(&value);
        let delivery = match producer.try_send(record) {
            Ok(delivery) => delivery,
            Err(_) => runtime.block_on(producer.send(record))?,
        };
        last = Some(delivery);
    }
    runtime.block_on(producer.flush())?;
    if let Some(last) = last
        && runtime.block_on(last).is_err()
    {
        failed += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu() - cpu_before;
    println!(
        "{records} records, {:.0} records/s, {:.3} us CPU per record, last failed: {failed}",
        records as f64 / seconds,
        cpu / records as f64 * 1e6
    );
    Ok(())
}
