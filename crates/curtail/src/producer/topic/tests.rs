use super::*;

fn topic(id: u8, count: usize) -> Topic {
    Topic {
        name: "t".into(),
        id: Uuid([id; 16]),
        leaders: vec![curtail_proto::metadata::Leader::NONE; count].into(),
        in_sync: Default::default(),
        lagging: Default::default(),
    }
}

/// After `metadata.max.idle.ms` a lagging broker may describe the topic.
#[test]
fn a_topic_id_keeps_its_partitions_and_another_id_does_not() {
    let three = Form::of(&topic(1, 3), None);
    assert_eq!((three.count, three.incarnation), (3, Incarnation::FIRST));
    assert_eq!(Form::of(&topic(1, 2), Some(three)), three);
    let four = Form::of(&topic(1, 4), Some(three));
    assert_eq!((four.count, four.incarnation), (4, three.incarnation));
    let recreated = Form::of(&topic(2, 2), Some(four));
    assert_eq!((recreated.count, recreated.incarnation), (2, three.incarnation.next()));
}

#[test]
fn without_ids_a_smaller_topic_is_a_different_one() {
    let three = Form::of(&topic(0, 3), None);
    assert_eq!(Form::of(&topic(0, 4), Some(three)).incarnation, three.incarnation);
    let recreated = Form::of(&topic(0, 2), Some(three));
    assert_eq!((recreated.count, recreated.incarnation), (2, three.incarnation.next()));
}
