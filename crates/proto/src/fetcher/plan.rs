//! Which request comes next.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    Buffered, Fetch, Fetcher, Main, Purpose, SESSION_REST, Transmit,
    credit::{HeldBack, Share, Wake},
    partitions::{Duty, Entry},
    session_key,
};
use crate::{TopicPartition, later::Later, position::FetchFrom};

/// Room in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// This lane's share. Each lane has its own, so that one broker's records do not block another's.
    pub share: Share,
    /// Buffered bytes of all lanes, for [`Buffered::SkipAll`].
    pub all_used: usize,
}

/// The right to send the session's next fetch.
#[derive(Debug)]
pub struct Permit {
    pub(super) max_bytes: usize,
    pub(super) max_wait: Duration,
}

impl<H> Fetcher<H> {
    /// Plans the next requests, with this much room in the buffer. `bytes_of` returns the buffered bytes of a handle.
    /// Returns after how many drained bytes to call again. Bytes count that were drained since before [`Self::due`] and
    /// `room` were read.
    pub fn handle_drained(
        &mut self,
        room: Room,
        bytes_of: impl Fn(&H) -> usize,
        now: Instant,
    ) -> Wake {
        let is_free = matches!(self.main, Main::Closed | Main::Idle | Main::Resting);
        if !is_free || self.pause_until.is_some_and(|until| until > now) {
            return Wake::Never;
        }
        self.pause_until = None;
        self.main = self.unused();
        if self.partitions.has_lookups() {
            self.main = Main::LookingUp;
            self.transmits.push_back(Transmit::LookUp(self.partitions.lookups()));
            return Wake::Never;
        }
        match self.settings.buffered {
            Buffered::Credit => self.plan_by_credit(room.share, bytes_of, now),
            Buffered::Omit => self.plan_without_buffered(room.share, bytes_of),
            Buffered::SkipBroker => self.plan_when_drained(room.share, 0),
            Buffered::SkipAll => self.plan_when_drained(room.share, room.all_used),
        }
    }

    fn permit(&mut self, max_bytes: usize, max_wait: Duration) {
        self.main = Main::Sending;
        self.transmits.push_back(Transmit::Session(Permit { max_bytes, max_wait }));
    }

    /// With [`Buffered::Credit`].
    fn plan_by_credit(
        &mut self,
        share: Share,
        bytes_of: impl Fn(&H) -> usize,
        now: Instant,
    ) -> Wake {
        let (held_back, wake) = self.held_back(share, bytes_of);
        if self.session.is_empty() {
            self.close_sessionless();
        } else if held_back.is_empty() {
            // Known records arrive at once. Requested here as well, they would arrive twice.
            if !self.sessionless.awaits_known() {
                self.permit(share.request(), self.settings.max_wait);
            }
        } else if self.session.is_open() && self.used.later(SESSION_REST) <= now {
            self.use_session();
        } else {
            if self.session.is_open() {
                self.main = Main::Resting;
            }
            if !share.is_spent() {
                self.ask_beside(&held_back, share, now);
            }
        }
        wake
    }

    /// Returns the session's partitions that must not be fetched now, and when that may have changed.
    fn held_back(&mut self, share: Share, bytes_of: impl Fn(&H) -> usize) -> (HeldBack, Wake) {
        let mut held_back = self.partitions.paused().clone();
        if share.is_ample() {
            return (HeldBack::Some(held_back), Wake::Never);
        }
        let mut wake = Wake::Never;
        for (at, held, duty) in self.partitions.buffered(bytes_of) {
            let Duty::Read(read) = duty else { continue };
            // A partition with records both here and at the broker waits until there is room for a large response.
            if read.has_more() {
                wake = wake.or_after(share.above_half());
            } else if !share.grants(held) {
                wake = wake.or_after(share.lacking(held));
            } else {
                continue;
            }
            held_back.insert(at.clone());
        }
        match share.is_spent() {
            true => (HeldBack::All, wake.or_after(share.lacking(0))),
            false => (HeldBack::Some(held_back), wake),
        }
    }

    /// Uses the session so that it is not evicted, although some partitions must not be read. Paused partitions leave
    /// it first; the others receive at most one batch.
    fn use_session(&mut self) {
        for at in self.partitions.paused().clone() {
            let review_at = self.partitions.entry(&at).and_then(|entry| entry.review_at);
            self.stop(&at, review_at);
        }
        if !self.session.is_empty() {
            self.permit(1, Duration::ZERO);
        }
    }

    /// Sends sessionless fetches for the partitions that have credit and are in no request yet.
    fn ask_beside(&mut self, held_back: &HeldBack, share: Share, now: Instant) {
        let with_credit = || self.partitions.reads().filter(move |(at, _)| !held_back.contains(at));
        let is_asked = |at: &TopicPartition, from| self.sessionless.asks(at, from);
        let coming = || with_credit().filter(|(_, read)| !read.has_more());
        let mut known = BTreeMap::new();
        if !self.sessionless.awaits_known() {
            let unasked =
                with_credit().filter(|(at, read)| read.has_more() && !is_asked(at, read.from));
            known.extend(unasked.map(|(at, read)| (at.clone(), read.from)));
        }
        // A request without all of them would delay the rest by up to its own wait at the broker. So one in flight is
        // abandoned.
        let mut all_coming = BTreeMap::new();
        if coming().any(|(at, read)| !is_asked(at, read.from)) {
            all_coming.extend(coming().map(|(at, read)| (at.clone(), read.from)));
        }
        if !known.is_empty() {
            self.start_beside(Purpose::Known, known, share, now);
        }
        if !all_coming.is_empty() {
            self.start_beside(Purpose::Coming, all_coming, share, now);
        }
    }

    fn start_beside(
        &mut self,
        purpose: Purpose,
        asked: BTreeMap<TopicPartition, FetchFrom>,
        share: Share,
        now: Instant,
    ) {
        let max_wait = match purpose {
            Purpose::Known => Duration::ZERO,
            Purpose::Coming => self.settings.max_wait,
        };
        let list = asked.iter().filter_map(|(at, from)| {
            let topic_id = self.partitions.read(at)?.topic_id;
            Some((session_key(at, topic_id), self.params(*from)))
        });
        let fetch = Fetch {
            session: self.session.request_without_session(list),
            naming: self.session.naming(),
            max_bytes: share.request(),
            max_wait,
            is_opening: false,
        };
        self.sessionless.sent(purpose, asked, now.later(max_wait).later(self.limit()));
        self.transmits.push_back(Transmit::Sessionless(purpose, fetch));
    }

    /// With [`Buffered::Omit`].
    fn plan_without_buffered(&mut self, share: Share, bytes_of: impl Fn(&H) -> usize) -> Wake {
        let mut wake = Wake::Never;
        let mut held = Vec::new();
        for (at, bytes, _) in self.partitions.buffered(bytes_of) {
            // One drained since `due` was called returns at once.
            wake = wake.or_after(bytes.min(1));
            held.push(at.clone());
        }
        for at in held {
            let review_at = self.partitions.entry(&at).and_then(|entry| entry.review_at);
            self.put(&at, Some(Entry { review_at, duty: Duty::Omit }));
        }
        if !self.session.is_empty() {
            self.permit(share.request(), self.settings.max_wait);
        }
        wake
    }

    /// With [`Buffered::SkipBroker`] and [`Buffered::SkipAll`].
    fn plan_when_drained(&mut self, share: Share, elsewhere: usize) -> Wake {
        if !self.session.is_empty() && share.used == 0 && elsewhere == 0 {
            self.permit(share.request(), self.settings.max_wait);
        }
        if share.used > 0 { Wake::After(share.used) } else { Wake::Never }
    }
}
