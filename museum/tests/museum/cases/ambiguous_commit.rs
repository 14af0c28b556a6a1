//! The response to EndTxn is lost, and the retry is refused for a while.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/pull/3370
//! - Failure: a retriable refusal of the retry cleared the doubt about the first request, so the commit was reported as failed though the coordinator had applied it
//! - Promise: a commit is reported as failed only if it is known to have failed

use curtail::ErrorCode;
use curtail_wire::{ApiKey, cold::messages::EndTxnResponse};

use crate::stage::{Reply, Stage, Step, ends, run};

#[test]
fn a_commit_applied_once_is_reported_as_done() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let mut producer = stage.transactions("museum");
        ends("init", producer.init()).await.unwrap();
        let mut requests = 0;
        stage.script(move |request| {
            if request.api != ApiKey::END_TXN {
                return Step::Pass;
            }
            requests += 1;
            let refusal = |code: ErrorCode| EndTxnResponse::default().with_error_code(code.0);
            match requests {
                1 => Step::PassThen(Reply::Cut),
                2 => request.answer(&refusal(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)),
                3 => request.answer(&refusal(ErrorCode::CONCURRENT_TRANSACTIONS)),
                4 => Step::Cut,
                _ => Step::Pass,
            }
        });
        for n in 0..2 {
            ends("commit", producer.transact(&[&n.to_string()])).await.unwrap();
        }
        assert_eq!(stage.committed_values().await, ["0", "1"]);
    });
}
