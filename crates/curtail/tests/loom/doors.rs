//! A topic's door and its kept partitions: records neither overtake others nor stay without need.

use std::{collections::VecDeque, sync::Arc};

use loom::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::{
    check,
    door::{Door, Kept},
    sync::Mutex,
};

#[test]
fn a_door_is_not_closed_past_a_record_that_enters() {
    check(|| {
        let door = Arc::new(Door::new());
        door.open();
        let entering = door.clone();
        let entrant = thread::spawn(move || entering.enter());
        let is_closed = !door.was_used() && door.close();
        let has_entered = entrant.join().expect("no thread panics");
        assert!(!(has_entered && is_closed));
        assert_eq!(door.is_open(), !is_closed);
    });
}

#[test]
fn of_two_records_that_enter_at_once_one_marks_the_door_as_used() {
    check(|| {
        let door = Arc::new(Door::new());
        door.open();
        let entering = door.clone();
        let entrant = thread::spawn(move || entering.enter());
        assert!(door.enter());
        assert!(entrant.join().expect("no thread panics"));
        assert!(!door.close() && door.was_used());
    });
}

#[test]
fn a_record_enters_after_those_that_waited_for_the_topic() {
    check(|| {
        let door = Arc::new(Door::new());
        let queue = Arc::new(Mutex::new(Vec::new()));
        let (opening, appending) = (door.clone(), queue.clone());
        let server = thread::spawn(move || {
            appending.lock().push("waited");
            opening.open();
        });
        if door.enter() {
            queue.lock().push("later");
            assert_eq!(*queue.lock(), ["waited", "later"]);
        }
        server.join().expect("no thread panics");
    });
}

#[test]
fn a_record_that_comes_to_wait_is_served_or_finds_the_door_open() {
    check(|| {
        let door = Arc::new(Door::new());
        let room = Arc::new(Mutex::new(VecDeque::from([1])));
        let (opening, serving) = (door.clone(), room.clone());
        // As `WaitingRoom::next`: the door opens under the room's lock.
        let server = thread::spawn(move || {
            loop {
                let mut room = serving.lock();
                if room.pop_front().is_none() {
                    return opening.open();
                }
            }
        });
        let mut waiting = room.lock();
        if !door.is_open() {
            waiting.push_back(2);
        }
        drop(waiting);
        server.join().expect("no thread panics");
        assert!(door.is_open() && room.lock().is_empty());
    });
}

#[test]
fn records_kept_while_a_trouble_ends_are_taken_or_reconsidered() {
    check(|| {
        let kept = Arc::new(Kept::new());
        let is_over = Arc::new(AtomicBool::new(false));
        let (taking, ends) = (kept.clone(), is_over.clone());
        let ending = thread::spawn(move || {
            ends.store(true, Ordering::Release);
            taking.take()
        });
        let ends = kept.ends();
        let found_better = is_over.load(Ordering::Acquire);
        let looks_again = !found_better && kept.keep(7, ends);
        let taken = ending.join().expect("no thread panics");
        assert!(found_better || looks_again || taken.contains(&7));
    });
}
