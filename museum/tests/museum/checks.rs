//! The verdict must detect every violation: in these tests the brokers cheat.

use curtail_cluster::Plant;
use curtail_wire::ApiKey;

use crate::stage::{Reply, Stage, Step, Work, run};

#[test]
#[should_panic(expected = "\"lost\" was acknowledged")]
fn verdict_catches_an_acknowledged_record_that_is_not_written() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| config);
        let mut work = Work::default();
        work.deliver(&producer, 0, "written").await;
        stage.script(|request| match request.api {
            ApiKey::PRODUCE => request.pretend_written(1),
            _ => Step::Pass,
        });
        work.send(&producer, 0, "lost").await;
        work.all_acknowledged(&stage).await;
    });
}

#[test]
#[should_panic(expected = "\"doubled\" was acknowledged")]
fn verdict_catches_a_record_written_twice() {
    run(async {
        let forgets = |config: &mut curtail_cluster::ClusterConfig| {
            config.plant = Some(Plant::NoSequenceCheck);
        };
        let stage = Stage::with(1, 1, forgets, &[]).await;
        let producer = stage.producer(|config| config);
        let mut loses = true;
        stage.script(move |request| {
            if request.api == ApiKey::PRODUCE && std::mem::take(&mut loses) {
                return Step::PassThen(Reply::Cut);
            }
            Step::Pass
        });
        let mut work = Work::default();
        work.send(&producer, 0, "doubled").await;
        work.all_acknowledged(&stage).await;
    });
}

#[test]
#[should_panic(expected = "out of order")]
fn verdict_catches_records_out_of_order() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| config);
        let mut second = Work::default();
        second.deliver(&producer, 0, "second").await;
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        work.append(second);
        work.all_acknowledged(&stage).await;
    });
}
