//! Replaced values that readers may still hold.

use std::{collections::VecDeque, sync::Arc};

/// Largest number of retired values. Beyond that, the last reader of the oldest value frees it.
const LIMIT: usize = 256;

/// Retired values of a pointer that readers load without waiting.
///
/// A reader with the last reference would free the value on the latency-critical path. So the writer keeps a
/// reference until it is the last one, and frees the value on the control task.
#[derive(Debug)]
pub(crate) struct Retired<T>(VecDeque<Arc<T>>);

impl<T> Default for Retired<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Retired<T> {
    /// Adds a value that was just replaced.
    pub(crate) fn push(&mut self, old: Arc<T>) {
        if self.0.len() == LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(old);
    }

    /// Removes the values that are no longer read. The caller drops them without a lock, where it delays no other
    /// task.
    pub(crate) fn unread(&mut self) -> Vec<Arc<T>> {
        let (unread, read) =
            self.0.drain(..).partition::<VecDeque<_>, _>(|old| Arc::strong_count(old) == 1);
        self.0 = read;
        unread.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_until_its_last_reader_has_gone() {
        let mut retired = Retired::default();
        let (read, unread) = (Arc::new(1), Arc::new(2));
        let reader = read.clone();
        retired.push(read);
        retired.push(unread);
        assert_eq!(retired.unread(), [Arc::new(2)]);
        assert!(retired.unread().is_empty());
        drop(reader);
        assert_eq!(retired.unread(), [Arc::new(1)]);
    }

    #[test]
    fn not_more_than_the_limit_is_kept() {
        let mut retired = Retired::default();
        let readers: Vec<Arc<usize>> = (0..LIMIT + 10).map(Arc::new).collect();
        for value in &readers {
            retired.push(value.clone());
        }
        assert_eq!(Arc::strong_count(&readers[0]), 1);
        drop(readers);
        assert_eq!(retired.unread().len(), LIMIT);
    }
}
