//! Log compaction of a replica. Each replica cleans its own log, as in Kafka: replicas may have different
//! gaps, but a record that stays has the same offset on all.

use super::{Inner, Partition};
use crate::log::{Cleaned, Cleaning, LogError, Step};
use curtail_wire::Report;

impl Partition {
    /// Compacts the log if it is due. The lock is held only to begin and to exchange a segment.
    ///
    /// # Cancel safety
    /// Cancel safe: the log is as before or has some of the new segments.
    pub(crate) async fn clean(&self, now_ms: i64) {
        if let Err(error) = self.try_clean(now_ms).await
            && self.inner.lock().gone.is_none()
        {
            tracing::error!(topic = %self.topic, partition = self.key.index, error = %Report::new(&error), "log was not compacted");
        }
    }

    async fn try_clean(&self, now_ms: i64) -> Result<(), LogError> {
        let Some(mut cleaning) = self.begin_cleaning(now_ms)? else { return Ok(()) };
        loop {
            match cleaning.step()? {
                Step::More => {}
                Step::Swap(cleaned) => match self.swap(*cleaned)? {
                    Some(version) => cleaning.swapped(version),
                    None => return Ok(()),
                },
                Step::Done => return self.finish_cleaning(&cleaning),
            }
            tokio::task::yield_now().await;
        }
    }

    fn begin_cleaning(&self, now_ms: i64) -> Result<Option<Cleaning>, LogError> {
        let inner = self.inner.lock();
        if inner.gone.is_some() || inner.log.is_offline() {
            return Ok(None);
        }
        inner.log.clean(now_ms, Self::last_stable(&inner))
    }

    fn swap(&self, cleaned: Cleaned) -> Result<Option<u64>, LogError> {
        let mut inner = self.inner.lock();
        // The directory may belong to a later topic of the same name.
        if inner.gone.is_some() { Ok(None) } else { inner.log.swap(cleaned) }
    }

    fn finish_cleaning(&self, cleaning: &Cleaning) -> Result<(), LogError> {
        let mut inner = self.inner.lock();
        if inner.gone.is_some() {
            return Ok(());
        }
        inner.log.finish_cleaning(cleaning)?;
        let Inner { log, .. } = &*inner;
        tracing::debug!(topic = %self.topic, partition = self.key.index, bytes = log.size_bytes(), "log compacted");
        Ok(())
    }
}
