//! The assignors of the classic protocol and those of the Java client, on the same random groups. Outcomes are equal,
//! except those of the sticky assignors for members with different topics. In total these are as balanced as Java's, and
//! match as many racks and keep as many partitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use curtail::config::Assignor;
use curtail_proto::assignor::{
    Assignments, Key, Layout, Member, RackSet, Topics, by_topic, flat, wanted_topics,
};
use curtail_wire::consumer_protocol::{StickyData, Subscription};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/Assignors.java");
const CASES: usize = 4000;
/// Java's hash maps have the order of these ids.
const IDS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const TOPICS: [&str; 4] = ["t", "u", "v", "w"];
const RACKS: [&str; 3] = ["x", "y", "z"];

#[derive(Debug)]
struct Case {
    assignor: Assignor,
    topics: Topics,
    members: Vec<Member>,
}

impl Case {
    fn random(random: &mut SmallRng) -> Self {
        let assignor = *Assignor::ALL.choose(random).unwrap();
        let count = random.random_range(1..=TOPICS.len());
        let topics: Topics =
            TOPICS[..count].iter().map(|topic| ((*topic).into(), layout(random))).collect();
        let same = random.random_bool(0.5);
        let mut members: Vec<Member> = IDS[..random.random_range(1..=IDS.len())]
            .iter()
            .map(|id| member(random, id, &TOPICS[..count], same))
            .collect();
        // An earlier assignment of some of the partitions to some of the members.
        if random.random_bool(0.7) {
            let mut earlier = topics.clone();
            let shrunk = earlier.values_mut().next().unwrap();
            shrunk.count = random.random_range(1..=shrunk.count);
            let left = random.random_range(1..=members.len());
            let held = Assignor::Sticky.assign(&earlier, &members[..left]);
            members.iter_mut().for_each(|member| hold(member, held.get(&member.id)));
            if left > 2 && random.random_bool(0.5) {
                members.remove(0);
            }
        }
        Self { assignor, topics, members }
    }

    /// The line that the Java program reads.
    fn line(&self) -> String {
        let topics: Vec<String> = self
            .topics
            .iter()
            .map(|(topic, layout)| {
                let racks: Vec<String> =
                    layout.racks.iter().map(|racks| joined(&**racks, "")).collect();
                format!("{topic}={}", racks.join(","))
            })
            .collect();
        let members: Vec<String> = self.members.iter().map(line_of).collect();
        format!("{} {} {}", self.assignor.name(), topics.join(";"), members.join(";"))
    }

    /// Whether this client has exactly Java's outcome. If members have different topics, the sticky assignors may move
    /// other partitions (decision 0018).
    fn is_determined(&self) -> bool {
        let first: BTreeSet<_> = self.members[0].subscription.topics.iter().collect();
        let same = |m: &Member| m.subscription.topics.iter().collect::<BTreeSet<_>>() == first;
        matches!(self.assignor, Assignor::Range | Assignor::RoundRobin)
            || self.members.iter().all(same)
    }

    /// Partitions that stay with their member.
    fn kept(&self, assigned: &BTreeMap<String, Vec<Key>>) -> usize {
        let of = |member: &Member| {
            let owned = flat(&member.subscription.owned);
            assigned[&*member.id].iter().filter(|key| owned.contains(key)).count()
        };
        self.members.iter().map(of).sum()
    }

    /// Partitions with a replica in the rack of their member.
    fn aligned(&self, assigned: &BTreeMap<String, Vec<Key>>) -> usize {
        let of = |member: &Member| {
            let rack = member.subscription.rack.as_ref();
            let near = |(topic, index): &&Key| {
                rack.is_some_and(|rack| self.topics[topic].racks[*index as usize].contains(rack))
            };
            assigned[&*member.id].iter().filter(near).count()
        };
        self.members.iter().map(of).sum()
    }
}

fn layout(random: &mut SmallRng) -> Layout {
    let count = random.random_range(1..7);
    let replicas = random.random_range(1..3);
    let racks = |_| -> RackSet {
        let racks = RACKS.choose_multiple(random, replicas).map(|rack| (*rack).into());
        RackSet::new(racks.collect())
    };
    Layout { racks: (0..count).map(racks).collect(), ..Layout::from(count) }
}

fn member(random: &mut SmallRng, id: &str, topics: &[&str], same: bool) -> Member {
    let wanted = match same {
        true => topics.iter(),
        false => {
            let count = random.random_range(1..=topics.len());
            topics[topics.len() - count..].iter()
        }
    };
    let rack = random.random_bool(0.7).then(|| (*RACKS.choose(random).unwrap()).into());
    let topics = wanted.map(|topic| (*topic).into()).collect();
    let subscription = Subscription { topics, rack, ..Subscription::default() };
    Member { id: id.into(), instance: None, subscription }
}

/// Gives the member an earlier assignment, in every form that members use.
fn hold(member: &mut Member, held: Option<&Vec<Key>>) {
    let Some(held) = held else { return };
    let subscription = &mut member.subscription;
    subscription.owned = by_topic(held);
    subscription.generation = 1;
    let data = StickyData { partitions: subscription.owned.clone(), generation: Some(1) };
    subscription.user_data = Some(data.encode());
}

fn line_of(member: &Member) -> String {
    let Subscription { topics, user_data, owned, generation, rack } = &member.subscription;
    let owned: Vec<String> = owned
        .iter()
        .flat_map(|(topic, indexes)| indexes.iter().map(move |index| format!("{topic}-{index}")))
        .collect();
    let mut data = String::new();
    for byte in user_data.iter().flatten() {
        write!(data, "{byte:02x}").unwrap();
    }
    let (topics, owned) = (joined(topics, ","), owned.join(","));
    let rack = rack.as_deref().unwrap_or_default();
    format!("{}={topics}/{rack}/{generation}/{owned}/{data}", member.id)
}

fn joined<'a>(names: impl IntoIterator<Item = &'a Arc<str>>, separator: &str) -> String {
    names.into_iter().map(|name| &**name).collect::<Vec<_>>().join(separator)
}

/// `a: t-0 t-1; b: `, as the Java program prints it.
fn shown(assignments: &Assignments) -> String {
    let one = |(id, keys): (&Arc<str>, &Vec<Key>)| {
        let keys: BTreeSet<String> =
            keys.iter().map(|(topic, index)| format!("{topic}-{index}")).collect();
        format!("{id}: {}", keys.into_iter().collect::<Vec<_>>().join(" "))
    };
    assignments.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn read(shown: &str) -> BTreeMap<String, Vec<Key>> {
    let one = |part: &str| {
        let (id, partitions) = part.split_once(": ").unwrap();
        let key = |text: &str| {
            let (topic, index) = text.split_once('-').unwrap();
            (topic.into(), index.parse().unwrap())
        };
        (id.to_owned(), partitions.split_whitespace().map(key).collect())
    };
    shown.split("; ").map(one).collect()
}

/// The sum of the squares of the members' numbers of partitions: the smaller, the better balanced.
fn imbalance(assigned: &BTreeMap<String, Vec<Key>>) -> usize {
    assigned.values().map(|keys| keys.len().pow(2)).sum()
}

/// Results of many groups whose members have different topics.
#[derive(Debug, Default)]
struct Outcome {
    groups: usize,
    imbalance: usize,
    aligned: usize,
    kept: usize,
}

impl Outcome {
    fn add(&mut self, case: &Case, assigned: &BTreeMap<String, Vec<Key>>) {
        self.groups += 1;
        self.imbalance += imbalance(assigned);
        self.aligned += case.aligned(assigned);
        self.kept += case.kept(assigned);
    }
}

#[test]
fn assignors_agree_with_those_of_java() {
    let Some(toolchain) = curtail_apache::require_or_skip("assignors_agree_with_those_of_java")
    else {
        return;
    };
    let mut random = SmallRng::seed_from_u64(881);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::random(&mut random)).collect();
    let lines: Vec<String> = cases.iter().map(Case::line).collect();
    // Kafka reports an error for partitions with two owners, which is intended.
    let quiet = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka=off";
    let tool = toolchain.tool(PROGRAM).short_lived().jvm(quiet);
    let output = tool.stdin(lines.join("\n")).run().unwrap();
    assert!(output.success(), "{}", output.stderr);
    let theirs: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(theirs.len(), CASES);
    let mut compared = 0;
    let (mut ours_total, mut theirs_total) = (Outcome::default(), Outcome::default());
    for (case, theirs) in cases.iter().zip(theirs) {
        let wanted = wanted_topics(&case.members);
        let mut topics = case.topics.clone();
        topics.retain(|topic, _| wanted.contains(topic));
        let ours = shown(&case.assignor.assign(&topics, &case.members));
        if case.is_determined() {
            assert_eq!(ours, theirs, "{}", case.line());
            compared += 1;
        } else if case.assignor == Assignor::Sticky {
            let (ours, theirs) = (read(&ours), read(theirs));
            ours_total.add(case, &ours);
            theirs_total.add(case, &theirs);
        }
    }
    assert!(compared > CASES / 2, "{compared}");
    assert!(ours_total.imbalance <= theirs_total.imbalance, "{ours_total:?} {theirs_total:?}");
    assert!(ours_total.aligned >= theirs_total.aligned, "{ours_total:?} {theirs_total:?}");
    assert!(ours_total.kept >= theirs_total.kept, "{ours_total:?} {theirs_total:?}");
}
