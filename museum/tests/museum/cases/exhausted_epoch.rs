//! A producer's epochs are exhausted.
//!
//! - Client: sarama, Dekaf
//! - Threads: https://github.com/IBM/sarama/pull/2178, https://github.com/thomhurst/Dekaf/pull/3341
//! - Failure: the epoch overflowed, or the bump failed each time and the send loop spun while every batch expired
//! - Promise: a producer recovers from an expired batch without a restart

use std::{collections::BTreeSet, time::Duration};

use curtail_wire::{ApiKey, cold::messages::InitProducerIdResponse};

use crate::stage::{Request, Stage, Step, Work, ends, run};

#[test]
pub(crate) fn the_next_bump_gets_a_new_producer_id() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let mut first = true;
        stage.script(move |request| {
            if request.api == ApiKey::INIT_PRODUCER_ID && std::mem::take(&mut first) {
                return request.edit(|r: &mut InitProducerIdResponse| r.producer_epoch = i16::MAX);
            }
            Step::Pass
        });
        let producer = stage.producer(|config| {
            config
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        stage.script(|request| {
            if request.api == ApiKey::PRODUCE { Step::Swallow } else { Step::Pass }
        });
        work.send(&producer, 0, "expires").await;
        ends("flush", producer.flush()).await.unwrap();
        stage.honest();
        for n in 0..3 {
            work.deliver(&producer, 0, &format!("after {n}")).await;
        }
        let requests = stage.seen(ApiKey::PRODUCE);
        let batches = requests.iter().flat_map(Request::batches);
        let identities: BTreeSet<_> = batches
            .map(|(_, batch)| (batch.header.producer_id, batch.header.producer_epoch))
            .collect();
        assert!(identities.iter().all(|(_, epoch)| *epoch >= 0), "{identities:?}");
        let ids: BTreeSet<_> = identities.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 2, "{identities:?}");
        let outcomes = work.verdict(&stage).await;
        assert!(outcomes["expires"].is_err());
    });
}
