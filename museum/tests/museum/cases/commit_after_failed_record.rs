//! A transaction is committed although one of its records failed.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/pull/3370
//! - Failure: the commit overwrote the abortable state, and the transaction committed without the failed record
//! - Promise: a commit that returns Ok has committed every record of the transaction

use crate::stage::{Stage, ends, run};

#[test]
fn a_commit_fails_if_a_record_failed() {
    run(async {
        let stage = Stage::with(1, 1, |_| {}, &[("max.message.bytes", "1000")]).await;
        let mut producer = stage.transactions("museum");
        ends("init", producer.init()).await.unwrap();
        let large = "x".repeat(5000);
        ends("commit", producer.transact(&["small", &large])).await.unwrap_err();
        ends("abort", producer.abort()).await.unwrap();
        ends("commit", producer.transact(&["after"])).await.unwrap();
        assert_eq!(stage.committed_values().await, ["after"]);
    });
}
