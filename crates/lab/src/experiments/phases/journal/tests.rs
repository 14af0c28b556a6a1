use std::time::Duration;

use super::*;

fn journal(limit: usize) -> (Journal, impl Fn(u64) -> tokio::time::Instant) {
    let journal = Journal::new("t", limit);
    let began = journal.began;
    (journal, move |nanos| tokio::time::Instant::from_std(began + Duration::from_nanos(nanos)))
}

fn entry(leader: i32, appended: u64, committed: Option<u64>) -> Option<Entry> {
    Some(Entry { leader, appended, committed })
}

#[test]
fn each_record_has_the_times_of_its_batch() {
    let (journal, at) = journal(10);
    journal.appended(1, "t", 3, 7, 9, at(150));
    journal.appended(1, "other", 3, 8, 8, at(155));
    journal.appended(1, "t", 3, 10, 10, at(160));
    journal.appended(2, "t", 4, 7, 7, at(165));
    journal.committed(1, "t", 3, 10, at(190));
    // The first pass of the high watermark counts.
    journal.committed(1, "t", 3, 10, at(195));
    let journals = journal.take(journal.began + Duration::from_nanos(100));
    for offset in 7..10 {
        assert_eq!(journals.find(3, offset), entry(1, 50, Some(90)));
    }
    assert_eq!(journals.find(3, 10), entry(1, 60, None));
    assert_eq!(journals.find(4, 7), entry(2, 65, None));
    for (partition, offset) in [(3, 6), (3, 11), (5, 7)] {
        assert_eq!(journals.find(partition, offset), None);
    }
}

#[test]
fn batches_of_a_new_leader_replace_truncated_ones() {
    let (journal, at) = journal(10);
    journal.appended(1, "t", 0, 0, 0, at(10));
    journal.appended(1, "t", 0, 1, 2, at(20));
    journal.committed(1, "t", 0, 1, at(25));
    journal.leads(2, "t", 0, 5, at(28));
    journal.appended(2, "t", 0, 1, 1, at(30));
    // The previous leader does not know about the election yet.
    journal.leads(1, "t", 0, 4, at(33));
    journal.appended(1, "t", 0, 1, 4, at(35));
    journal.committed(2, "t", 0, 2, at(40));
    let journals = journal.take(journal.began);
    assert_eq!(journals.find(0, 0), entry(1, 10, Some(25)));
    assert_eq!(journals.find(0, 1), entry(2, 30, Some(40)));
    assert_eq!(journals.find(0, 2), None);
}

#[test]
fn the_journal_keeps_no_more_than_its_limit() {
    let (journal, at) = journal(2);
    for offset in 0..5 {
        journal.appended(1, "t", 0, offset, offset, at(offset as u64));
    }
    journal.committed(1, "t", 0, 5, at(9));
    let journals = journal.take(journal.began);
    assert_eq!(journals.find(0, 1), entry(1, 1, Some(9)));
    assert_eq!(journals.find(0, 2), None);
}
