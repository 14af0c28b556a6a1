//! Demand for producer ids: no partition waits for an id that no task requests.

use std::sync::Arc;

use loom::thread;

use crate::{block_on, check, demand::Demand};

#[test]
fn a_late_report_of_an_earlier_id_does_not_hide_that_the_newest_is_spent() {
    check(|| {
        let demand = Arc::new(Demand::new());
        demand.arrived(7);
        let late = demand.clone();
        let partition = thread::spawn(move || late.spent(7));
        demand.arrived(8);
        demand.spent(8);
        partition.join().expect("no thread panics");
        block_on(demand.until_spent());
    });
}

#[test]
fn a_report_wakes_the_task_that_requests_ids() {
    check(|| {
        let demand = Arc::new(Demand::new());
        demand.arrived(7);
        let reporting = demand.clone();
        let partition = thread::spawn(move || reporting.spent(7));
        block_on(demand.until_spent());
        partition.join().expect("no thread panics");
    });
}
