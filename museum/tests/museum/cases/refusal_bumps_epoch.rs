//! A refusal in one partition raises the epoch while another partition has a batch in doubt.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/issues/4953, https://github.com/confluentinc/librdkafka/pull/4972
//! - Failure: NOT_LEADER_OR_FOLLOWER for one batch made the next one OUT_OF_ORDER_SEQUENCE_NUMBER; the producer bumped its epoch, and a batch of another partition that was already written was sent again under it
//! - Promise: an acknowledged record is written once

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Gate, Reply, Request, Stage, Step, Work, pipelined, run};

#[test]
pub(crate) fn out_of_order_after_a_refusal_keeps_the_epoch() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let producer = stage.producer(pipelined);
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        work.deliver(&producer, 1, "second").await;
        let gate = Gate::closed();
        let (mut refused, mut lost, held) = (false, false, gate.clone());
        stage.script(move |request| {
            if request.produces_to(0) && !refused {
                refused = true;
                let refusal = request.refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
                return Step::Hold(held.clone(), Box::new(refusal));
            }
            if request.produces_to(1) && !lost {
                lost = true;
                return Step::PassThen(Reply::Cut);
            }
            Step::Pass
        });
        let before = stage.count(ApiKey::PRODUCE);
        for (n, index) in [(1, 0), (2, 0), (3, 1)] {
            work.send(&producer, index, &format!("in flight {n}")).await;
            stage.arrived(ApiKey::PRODUCE, before + n).await;
        }
        gate.open();
        work.all_acknowledged(&stage).await;
        let requests = stage.seen(ApiKey::PRODUCE);
        let batches = requests.iter().flat_map(Request::batches);
        let epochs: Vec<i16> = batches.map(|(_, batch)| batch.header.producer_epoch).collect();
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    });
}
