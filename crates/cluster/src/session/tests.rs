use curtail_wire::fetch::{EpochEndOffset, FetchTopic};

use super::*;

const EVICTION: Duration = Duration::from_secs(120);

fn shard(slots: usize) -> Shard {
    Shard::new(slots, EVICTION, 1..i32::MAX)
}

fn request(session_id: i32, session_epoch: i32, partitions: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, fetch_offset): &(i32, i64)| FetchPartition {
        index: *index,
        current_leader_epoch: -1,
        fetch_offset: *fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 100,
    };
    FetchRequest {
        session_id,
        session_epoch,
        topics: vec![FetchTopic {
            name: "t".into(),
            topic_id: Uuid::ZERO,
            partitions: partitions.iter().map(partition).collect(),
        }],
        ..FetchRequest::default()
    }
}

fn answer(index: i32, high_watermark: i64, records: &'static [u8]) -> FetchPartitionResponse {
    FetchPartitionResponse {
        index,
        error: ErrorCode::NONE,
        high_watermark,
        last_stable_offset: high_watermark,
        log_start_offset: 0,
        diverging_epoch: None,
        current_leader: None,
        aborted_transactions: None,
        preferred_read_replica: -1,
        records: bytes::Bytes::from_static(records),
    }
}

/// Sends a request with `reply` as the response of every partition. Returns the session id and the
/// partitions in the response.
fn exchange(
    cache: &mut Shard,
    request: &FetchRequest,
    candidate: i32,
    now: Instant,
    reply: impl Fn(i32) -> FetchPartitionResponse,
) -> Result<(i32, Vec<i32>), ErrorCode> {
    let (context, items) = cache.begin(request, false, now)?;
    let answers = items.into_iter().map(|item| (item.clone(), reply(item.fetch.index))).collect();
    let (id, answers) = cache.finish(&context, answers, || candidate, now);
    Ok((id, answers.into_iter().map(|(_, answer)| answer.index).collect()))
}

fn quiet(index: i32) -> FetchPartitionResponse {
    answer(index, 5, b"")
}

#[tokio::test(start_paused = true)]
async fn responses_contain_only_changes_and_partitions_with_records_move_to_the_end() {
    let now = Instant::now();
    let mut cache = shard(10);
    let open = request(0, 0, &[(0, 0), (1, 0), (2, 0)]);
    assert_eq!(exchange(&mut cache, &open, 7, now, quiet), Ok((7, vec![0, 1, 2])));
    assert_eq!(exchange(&mut cache, &request(7, 1, &[]), 0, now, quiet), Ok((7, vec![])));
    let records_in_0 = |index| answer(index, 5, if index == 0 { b"x" } else { b"" });
    assert_eq!(exchange(&mut cache, &request(7, 2, &[]), 0, now, records_in_0), Ok((7, vec![0])));
    let everywhere = |index| answer(index, 6, b"x");
    let all = exchange(&mut cache, &request(7, 3, &[]), 0, now, everywhere);
    assert_eq!(all, Ok((7, vec![1, 2, 0])));
}

#[tokio::test(start_paused = true)]
async fn the_high_watermark_is_repeated_after_a_diverging_epoch() {
    let now = Instant::now();
    let mut cache = shard(10);
    let diverging_0 = |index| FetchPartitionResponse {
        diverging_epoch: (index == 0).then_some(EpochEndOffset { epoch: 1, end_offset: 5 }),
        ..quiet(index)
    };
    let open = request(0, 0, &[(0, 9), (1, 5)]);
    assert_eq!(exchange(&mut cache, &open, 7, now, diverging_0), Ok((7, vec![0, 1])));
    let truncated = |epoch| request(7, epoch, &[(0, 5)]);
    assert_eq!(exchange(&mut cache, &truncated(1), 0, now, quiet), Ok((7, vec![0])));
    assert_eq!(exchange(&mut cache, &request(7, 2, &[]), 0, now, quiet), Ok((7, vec![])));
    assert_eq!(exchange(&mut cache, &request(7, 3, &[]), 0, now, diverging_0), Ok((7, vec![0])));
    assert_eq!(exchange(&mut cache, &truncated(4), 0, now, quiet), Ok((7, vec![0])));
}

#[tokio::test(start_paused = true)]
async fn the_high_watermark_is_repeated_in_another_leader_epoch() {
    let now = Instant::now();
    let mut cache = shard(10);
    let in_epoch = |leader_epoch, session_id, session_epoch| {
        let mut request = request(session_id, session_epoch, &[(0, 5)]);
        request.topics[0].partitions[0].current_leader_epoch = leader_epoch;
        request
    };
    assert_eq!(exchange(&mut cache, &in_epoch(3, 0, 0), 7, now, quiet), Ok((7, vec![0])));
    assert_eq!(exchange(&mut cache, &in_epoch(3, 7, 1), 0, now, quiet), Ok((7, vec![])));
    assert_eq!(exchange(&mut cache, &in_epoch(4, 7, 2), 0, now, quiet), Ok((7, vec![0])));
    assert_eq!(exchange(&mut cache, &in_epoch(4, 7, 3), 0, now, quiet), Ok((7, vec![])));
}

#[tokio::test(start_paused = true)]
async fn partitions_are_added_changed_and_forgotten() {
    let now = Instant::now();
    let mut cache = shard(10);
    exchange(&mut cache, &request(0, 0, &[(0, 0), (1, 0)]), 7, now, quiet).unwrap();
    let mut next = request(7, 1, &[(1, 9), (2, 0)]);
    next.forgotten = vec![curtail_wire::fetch::ForgottenTopic {
        name: "t".into(),
        topic_id: Uuid::ZERO,
        partitions: vec![0],
    }];
    let (context, items) = cache.begin(&next, false, now).unwrap();
    assert_eq!(context, Context::Incremental { id: 7 });
    let offsets: Vec<_> = items.iter().map(|i| (i.fetch.index, i.fetch.fetch_offset)).collect();
    assert_eq!(offsets, [(1, 9), (2, 0)]);
    // Removing the last partition ends the session.
    let mut last = request(7, 2, &[]);
    last.forgotten = next.forgotten.clone();
    last.forgotten[0].partitions = vec![1, 2];
    assert_eq!(cache.begin(&last, false, now).unwrap().0, Context::Sessionless);
    assert_eq!(cache.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_session_or_a_wrong_epoch_is_refused() {
    let now = Instant::now();
    let mut cache = shard(10);
    exchange(&mut cache, &request(0, 0, &[(0, 0)]), 7, now, quiet).unwrap();
    let refused = |cache: &mut Shard, id, epoch, by_ids| {
        cache.begin(&request(id, epoch, &[]), by_ids, now).unwrap_err()
    };
    assert_eq!(refused(&mut cache, 8, 1, false), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(refused(&mut cache, 7, 2, false), ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(refused(&mut cache, 7, 1, true), ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
    // A final epoch closes it.
    cache.begin(&request(7, -1, &[]), false, now).unwrap();
    assert_eq!(refused(&mut cache, 7, 1, false), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_taken_by_privilege_size_and_age() {
    let begin = Instant::now();
    let open = |cache: &mut Shard, replica_id, partitions: &[(i32, i64)], id, now| {
        let request = FetchRequest { replica_id, ..request(0, 0, partitions) };
        exchange(cache, &request, id, now, quiet).unwrap().0
    };
    let mut cache = shard(1);
    assert_eq!(open(&mut cache, -1, &[(0, 0)], 1, begin), 1);
    assert_eq!(open(&mut cache, -1, &[(0, 0), (1, 0)], 2, begin), 0, "the other one is young");
    assert_eq!(open(&mut cache, 5, &[(0, 0)], 3, begin), 3, "a follower goes first");
    assert_eq!(open(&mut cache, 6, &[(0, 0), (1, 0)], 4, begin), 0, "followers are equals");

    // An old session in use: a larger one of the same kind may take its slot, a smaller one may
    // not.
    let later = begin + EVICTION + Duration::from_secs(1);
    exchange(&mut cache, &request(3, 1, &[]), 0, later, quiet).unwrap();
    assert_eq!(open(&mut cache, -1, &[(0, 0), (1, 0)], 5, later), 0);
    assert_eq!(open(&mut cache, 6, &[(0, 0), (1, 0)], 6, later), 6);

    // An unused session: any other may take its slot.
    let much_later = later + EVICTION + Duration::from_secs(1);
    assert_eq!(open(&mut cache, -1, &[(0, 0)], 7, much_later), 7);
    assert_eq!(cache.len(), 1);

    let mut none = shard(0);
    assert_eq!(open(&mut none, 5, &[(0, 0)], 1, begin), 0);
    assert_eq!(cache.evictions, 3);
}

#[tokio::test(start_paused = true)]
async fn a_session_can_be_evicted_once_it_was_used_at_the_eviction_age() {
    let begin = Instant::now();
    let mut cache = shard(1);
    exchange(&mut cache, &request(0, 0, &[(0, 0)]), 1, begin, quiet).unwrap();
    // Used shortly before it reaches the age, and not again until after.
    let used = begin + EVICTION;
    exchange(&mut cache, &request(1, 1, &[]), 0, used, quiet).unwrap();
    let larger = request(0, 0, &[(0, 0), (1, 0)]);
    let now = begin + EVICTION + Duration::from_secs(1);
    assert_eq!(exchange(&mut cache, &larger, 2, now, quiet).unwrap().0, 0);
    exchange(&mut cache, &request(1, 2, &[]), 0, now, quiet).unwrap();
    assert_eq!(exchange(&mut cache, &larger, 2, now, quiet).unwrap().0, 2);
    assert_eq!((cache.evictions, cache.partitions()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn new_sessions_rotate_over_the_shards_and_are_found_there() {
    let now = Instant::now();
    let mut cache = SessionCache::with_shards(8, 17, EVICTION);
    let mut number = 0;
    let mut exchange = |cache: &mut SessionCache, request: &FetchRequest| {
        let (context, items) = cache.begin(request, false, now)?;
        let answers = items.into_iter().map(|item| (item.clone(), quiet(item.fetch.index)));
        number += u64::from(u32::MAX);
        let random = || {
            number += 1;
            number
        };
        Ok::<i32, ErrorCode>(cache.finish(&context, answers.collect(), random, now).0)
    };
    let open = request(0, 0, &[(0, 0), (1, 0)]);
    let ids: Vec<i32> = (0..24).map(|_| exchange(&mut cache, &open).unwrap()).collect();
    let range = i32::MAX / 8;
    for (turn, id) in ids.iter().enumerate().take(16) {
        assert_eq!(*id / range, turn as i32 % 8, "{ids:?}");
    }
    // 17 slots are two for each of eight shards.
    assert!(ids[16..].iter().all(|id| *id == 0), "{ids:?}");
    let metrics = SessionMetrics { sessions: 16, partitions: 32, evictions: 0, forgotten: 0 };
    assert_eq!(cache.metrics(), metrics);
    assert_eq!(exchange(&mut cache, &request(ids[9], 1, &[])), Ok(ids[9]));
    for unknown in [i32::MIN, -1, 1, i32::MAX] {
        let refused = exchange(&mut cache, &request(unknown, 1, &[]));
        assert_eq!(refused, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND), "{unknown}");
    }
    // Closing a session frees a slot in its shard only.
    cache.begin(&request(ids[9], -1, &[]), false, now).unwrap();
    let again: Vec<i32> = (0..8).map(|_| exchange(&mut cache, &open).unwrap()).collect();
    assert_eq!(again.iter().filter(|id| **id != 0).count(), 1);
    assert_eq!(again[1] / range, 1);
    assert_eq!(cache.metrics(), metrics);
}
