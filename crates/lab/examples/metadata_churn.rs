//! `metadata-churn`, both arms at full size: `metadata_churn [SECONDS]`.

use std::time::Duration;

use curtail_lab::churn::{Arm, Churn, run};

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(20), |seconds| seconds.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let churn = Churn { duration: Duration::from_secs(seconds), ..Churn::default() };
    let mut p99 = Vec::new();
    for arm in [Arm::Locked, Arm::Snapshots] {
        let report = runtime.block_on(run(arm, churn))?;
        let send = report.send;
        println!(
            "{arm:?}: {} sends, {:.0} topics/s refreshed, send p50 {:.1} us, p99 {:.1} us, \
             p99.9 {:.1} us, max {:.1} us",
            report.sends, report.topics_per_second, send.p50, send.p99, send.p999, send.max
        );
        p99.push(send.p99);
    }
    println!("p99 locked / snapshots: {:.0}", p99[0] / p99[1]);
    Ok(())
}
