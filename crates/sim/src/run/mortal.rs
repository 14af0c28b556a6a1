//! Futures that are dropped at one of their await points.

use std::{future::poll_fn, pin::pin, task::Poll};

/// Polls a future a number of times and drops it then. Returns its output if it completes in time.
///
/// Every poll but the last ends at an await point, so the number selects where the future is dropped.
pub(super) async fn for_polls<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(cx).map(Some);
        if polled.is_pending() && left == 0 {
            return Poll::Ready(None);
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn a_future_with_two_await_points_completes_with_three_polls_only() {
        let work = || async {
            yield_now().await;
            yield_now().await;
            7
        };
        for (polls, expected) in [(0, None), (1, None), (2, None), (3, Some(7)), (9, Some(7))] {
            assert_eq!(for_polls(work(), polls).await, expected, "{polls} polls");
        }
    }
}
