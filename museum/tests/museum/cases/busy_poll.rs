//! One broker responds to a fetch while another one holds back its response.
//!
//! - Client: kafka-python
//! - Threads: https://github.com/dpkp/kafka-python/pull/3084
//! - Failure: the completed fetch, whose records were consumed, woke each later wait until the other broker answered: polls spun
//! - Promise: a poll without records does no work until its timeout

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    time::{Duration, Instant},
};

use curtail_wire::ApiKey;

use crate::stage::{Gate, Stage, Step, TOPIC, curtail_only, ends, run};

const WAIT: Duration = Duration::from_millis(500);

/// A fetch returns, is sent again, and wakes the poll; twice, for both brokers. A spin has thousands.
const FEW: usize = 20;

#[test]
fn a_poll_waits_without_work_while_one_broker_holds_its_fetch() {
    curtail_only("drivers do not count how often a poll is woken");
    run(async {
        let stage = Stage::new(2, 2).await;
        for index in 0..2 {
            if stage.cluster.leader(TOPIC, index).unwrap().0 != index + 1 {
                stage.cluster.move_leader(TOPIC, index, index + 1).unwrap();
            }
        }
        stage.fill(0, 0..10).await;
        let held = Gate::closed();
        let gate = held.clone();
        stage.script(move |request| match (request.api, request.broker) {
            (ApiKey::FETCH, 2) => Step::Hold(gate.clone(), Box::new(Step::Pass)),
            _ => Step::Pass,
        });
        // Both fetches are held for longer than the wait that is measured.
        let mut consumer = stage.consumer(|config| {
            config.fetch_max_wait(WAIT * 4).request_timeout(WAIT * 16)
        });
        consumer.assign(2).await;
        let mut records = 0;
        while records < 10 {
            records += ends("poll", consumer.poll(WAIT)).await.unwrap().len();
        }
        stage.arrived(ApiKey::FETCH, 3).await;

        let (begun, requests) = (Instant::now(), stage.count(ApiKey::FETCH));
        let mut woken = 0;
        let polled = {
            let mut poll = pin!(consumer.own().poll(WAIT));
            let counted = poll_fn(|cx| {
                woken += 1;
                poll.as_mut().poll(cx)
            });
            ends("poll", counted).await.unwrap().into_iter().count()
        };
        assert_eq!(polled, 0);
        assert!(begun.elapsed() >= WAIT, "the poll ended early");
        assert!(woken <= FEW, "woken {woken} times");
        let sent = stage.count(ApiKey::FETCH) - requests;
        assert!(sent <= FEW, "{sent} fetches");
        held.open();
        consumer.close().await;
    });
}
