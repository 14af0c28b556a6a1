//! Effects of a turn at a link, applied after the link's lock is released.
//!
//! A turn only decides and writes. Everything that may take other locks, wake tasks of the application or hand work to
//! another link is an [`Effect`]. An effect may run another turn, whose effects join the same list: the list of a
//! thread is applied by one frame of its stack, so that no chain of effects recurses.

use std::{cell::RefCell, collections::VecDeque, sync::Arc};

use super::{delivery::Divided, lane::Request, partition::Partition, settle, shared::Shared};

/// Something that must not happen under a link's lock.
pub(super) enum Effect {
    /// With acks=0: the socket has accepted a request, so its batches count as written.
    Written(Request),
    /// The partition's next batch is past `delivery.timeout.ms`. The partition has no seat: the rest is queued
    /// again.
    Expire(Arc<Partition>),
    /// A batch was divided: its first record tries a leader.
    Divided(Divided),
    /// A batch tries the partition's leader; those behind it move elsewhere if possible.
    Trial(Arc<Partition>),
    /// A partition has exhausted the epochs of this producer id.
    AnotherId(i64),
}

impl Effect {
    fn apply(self, shared: &Shared) {
        match self {
            Self::Written(request) => settle::written_without_answer(shared, request),
            Self::Expire(partition) => shared.expire(&partition, None),
            Self::Divided(whole) => whole.tell(),
            Self::Trial(partition) => shared.evacuate(&partition),
            Self::AnotherId(spent) => shared.ask_for_another_id(spent),
        }
    }
}

/// The effects of one turn, in their order.
#[derive(Default)]
#[must_use = "effects that are not applied are lost"]
pub(super) struct Effects(Vec<Effect>);

/// Effects, each with its producer.
type Queue = VecDeque<(Arc<Shared>, Effect)>;

thread_local! {
    /// Effects to apply in this thread; `None` while no frame applies any. Producers may share a thread.
    static LIST: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Applies the effects, or leaves them to the frame that applies those of this thread. The caller holds no lock
    /// except that of the lanes.
    pub(super) fn apply(self, shared: &Shared) {
        if self.0.is_empty() {
            return;
        }
        // Without a strong reference the producer is being dropped, and its batches have failed.
        let Some(shared) = shared.me().upgrade() else { return };
        let effects = self.0.into_iter().map(|effect| (shared.clone(), effect));
        let is_first = LIST.with_borrow_mut(|list| {
            let is_first = list.is_none();
            list.get_or_insert_default().extend(effects);
            is_first
        });
        if !is_first {
            return;
        }
        let _end = End;
        let next = || LIST.with_borrow_mut(|list| list.as_mut().and_then(VecDeque::pop_front));
        while let Some((shared, effect)) = next() {
            effect.apply(&shared);
        }
    }
}

/// Ends the thread's list, also when an effect panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let rest = LIST.take();
        drop(rest);
    }
}
