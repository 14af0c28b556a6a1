//! The producer's side: what the client's lanes and settlement do, without sockets and tasks.

use super::*;

impl World {
    pub(super) fn append(&mut self, index: usize, has_key: bool, admission: Admission) {
        self.operations += 1;
        let number = self.records.len() as u32;
        self.records.push(Sent { at: self.now, home: has_key.then_some(index), outcome: None });
        let mut value = number.to_be_bytes().to_vec();
        value.resize(4 + self.random.below(800), b'x');
        let record = RecordData { key: None, value: Some(&value), headers: &[], timestamp: 0 };
        let Partition { queue, seat, leader, .. } = &mut self.partitions[index];
        let (policy, broker) = (&self.policy, *leader);
        let Broker { link, gate, .. } = &mut self.brokers[broker];
        let join = |placed: Placed<'_, Receipt>| {
            placed.completion.numbers.push(number);
            placed.completion.charged += placed.bytes;
            if admission == Admission::Lifted {
                placed.completion.beyond += placed.bytes;
            }
            gate.charge(placed.bytes);
            placed.readiness
        };
        let mut readiness = queue.try_append(policy, &record).map(join);
        if readiness.is_none()
            && let Some(growth) = queue.growth(policy, &record, gate.is_blocked())
            && queue.grow(growth, Vec::new()).is_some()
        {
            readiness = queue.try_append(policy, &record).map(join);
        }
        let readiness = readiness.unwrap_or_else(|| {
            let receipt = Receipt { numbers: Vec::new(), charged: 0, beyond: 0, broker };
            join(queue.open(policy, &record, Vec::new(), receipt, None, self.now))
        });
        if has_key {
            queue.bind();
        }
        let Some(ticket) = seat.take(readiness) else { return };
        link.handle_work(Entry { partition: index, ticket }, readiness);
        if readiness == Readiness::Now && !link.is_exhausted() {
            self.effects.push_back(Effect::Turn(broker));
        }
    }

    /// Queues a partition with a batch at its leader's link, unless it is ready there.
    pub(super) fn resubmit(&mut self, index: usize) {
        let Partition { queue, seat, leader, .. } = &mut self.partitions[index];
        if seat.is_ready() || queue.is_drained() {
            return;
        }
        let link = &mut self.brokers[*leader].link;
        let Some(ticket) = seat.take(Readiness::Now) else { return };
        link.handle_work(Entry { partition: index, ticket }, Readiness::Now);
        if !link.is_exhausted() {
            self.effects.push_back(Effect::Turn(*leader));
        }
    }

    /// A turn at a link: sends until nothing more may be sent.
    pub(super) fn turn(&mut self, broker: usize) {
        self.operations += 1;
        self.follow(broker, false);
        loop {
            let Self { brokers, partitions, now, .. } = self;
            let link = &mut brokers[broker].link;
            while let Some(entry) = link.next_due(*now) {
                if partitions[entry.partition].seat.falls_due(entry.ticket) {
                    link.handle_work(entry, Readiness::Now);
                }
            }
            let has_complete = |index: &usize| partitions[*index].queue.has_complete();
            let Some(permit) = link.poll_transmit(*now, has_complete) else { return };
            let parcels = self.collect(broker, permit);
            if parcels.is_empty() {
                return;
            }
            let connection = self.brokers[broker].connection;
            let link = &mut self.brokers[broker].link;
            if let Some(oldest) = link.in_flight().next() {
                let age = self.now - oldest.written;
                let late = link.path.late_after();
                assert!(late.is_none_or(|late| age <= late), "a request behind a late one");
                self.times.followed(age);
            }
            let request = encode(link.next_correlation_id(), &parcels);
            link.handle_sent(parcels, (), self.now);
            if self.has_faults && self.random.one_in(10) {
                if self.random.one_in(2) {
                    link.handle_begun();
                }
                link.handle_blocked();
                self.brokers[broker].unsent = Some(request);
                let lasts = match self.random.one_in(20) {
                    true => 4000 * MS,
                    false => self.random.between(MS, 5 * MS),
                };
                self.plan(lasts, Happens::Writable { broker, connection });
                return;
            }
            link.handle_begun();
            let now = self.now;
            assert!(link.handle_written(|| now).is_some());
            self.plan(self.network, Happens::Arrives { broker, connection, request });
        }
    }

    pub(super) fn collect(&mut self, broker: usize, mut permit: Permit) -> Vec<Parcel> {
        let Broker { link, gate, .. } = &mut self.brokers[broker];
        let mut policy = self.policy.clone();
        if gate.is_full() {
            // No record can join a batch.
            policy.linger = Duration::ZERO;
        }
        let mut parcels: Vec<Parcel> = Vec::new();
        while let Some(entry) = link.next_ready(&mut permit) {
            let index = entry.partition;
            let Partition { queue, seat, .. } = &mut self.partitions[index];
            if !seat.holds(entry.ticket) {
                continue;
            }
            if queue.is_next_overdue(&self.policy, self.now) {
                seat.leave();
                self.effects.push_back(Effect::Expire(index));
                continue;
            }
            if !permit.admits(queue.next_len()) {
                link.put_back(entry);
                break;
            }
            let to = Target {
                broker: broker as i32,
                branch: Branch::Main,
                incarnation: Incarnation::FIRST,
            };
            let taken = loop {
                match queue.take(&policy, Idempotence::As(IDENTITY), to, self.now) {
                    Take::Trial(batch, parts) => {
                        let shares: Vec<Share> = parts.shares().collect();
                        queue.put_back(batch, parts, |receipt| receipt.divide(&shares));
                        self.effects.push_back(Effect::Evacuate(index));
                    }
                    taken => break taken,
                }
            };
            match taken {
                Take::Batch(batch) => {
                    permit.add(batch.payload().len());
                    let twice = parcels.iter().any(|parcel| parcel.partition == index);
                    assert!(!twice, "two batches of a partition in one request");
                    parcels.push(Parcel { partition: index, broker, batch });
                    match queue.is_drained() {
                        true => seat.leave(),
                        false => link.handle_work(entry, Readiness::Now),
                    }
                }
                Take::At(at) => {
                    seat.is_put_off();
                    link.handle_work(entry, Readiness::At(at));
                }
                _ => seat.leave(),
            }
        }
        parcels
    }

    pub(super) fn answered(
        &mut self,
        broker: usize,
        id: i32,
        results: &[(usize, Told)],
        throttle: Duration,
    ) {
        let Broker { link, gate, allowance, .. } = &mut self.brokers[broker];
        let request = link.handle_response(id, self.now).expect("the oldest request");
        allowance.answered(&request, gate.outstanding(), self.now);
        self.times.answered(self.now - request.written);
        link.handle_throttle(throttle, self.now);
        self.effects.push_back(Effect::Turn(broker));
        // The response names the new leaders (KIP-951).
        for (index, (error, _)) in results {
            if *error == ErrorCode::NOT_LEADER_OR_FOLLOWER {
                self.learn(*index);
            }
        }
        for parcel in request.batches {
            let result = results.iter().find(|(index, _)| *index == parcel.partition);
            self.settle(parcel, result.expect("a result for each batch").1);
        }
    }

    pub(super) fn settle(&mut self, mut parcel: Parcel, (error, append): Told) {
        let index = parcel.partition;
        let queue = &self.partitions[index].queue;
        let is_next = queue.is_next(&parcel.batch);
        let sequenced = Sequenced::Idempotent;
        let context = Context { sequenced, is_next, records: parcel.batch.records };
        match classify(error, context) {
            Verdict::Written | Verdict::WrittenBefore => {
                self.partitions[index].queue.written(&parcel.batch);
                self.conclude(parcel.batch, Outcome::Written);
            }
            Verdict::Retry { .. } | Verdict::Moved => {
                return self.come_back(parcel, may_have_been_written(error, append));
            }
            Verdict::RetryInNextEpoch => {
                let backoff = Some(self.now + 100 * MS);
                let leader = self.partitions[index].leader;
                self.charge_to(leader, &mut parcel.batch.completion);
                for lost in self.partitions[index].queue.renumber(parcel.batch, backoff) {
                    self.conclude(lost, Outcome::Unknown);
                }
            }
            Verdict::Split => {
                let parts = Parts::of(&parcel.batch, &self.policy).expect("our own batch");
                let shares: Vec<Share> = parts.shares().collect();
                let leader = self.partitions[index].leader;
                self.charge_to(leader, &mut parcel.batch.completion);
                let queue = &mut self.partitions[index].queue;
                if let Some(lost) = queue.split(parcel.batch, parts, |all| all.divide(&shares)) {
                    self.conclude(lost, Outcome::Unknown);
                }
            }
            Verdict::Fail | Verdict::FailAndBumpEpoch => {
                let unknown =
                    parcel.batch.outcome_unknown() || may_have_been_written(error, append);
                self.fail(parcel, unknown);
            }
        }
        self.resubmit(index);
    }

    /// Returns a batch to its queue.
    pub(super) fn come_back(&mut self, mut parcel: Parcel, unknown: bool) {
        let (index, from) = (parcel.partition, parcel.broker);
        if parcel.created() + self.policy.delivery_timeout <= self.now {
            let unknown = unknown || parcel.batch.outcome_unknown();
            self.fail(parcel, unknown);
            return self.resubmit(index);
        }
        let leader = self.partitions[index].leader;
        let backoff = self.now + self.random.between(20 * MS, 100 * MS);
        let not_before = (leader == from).then_some(backoff);
        self.charge_to(leader, &mut parcel.batch.completion);
        let queue = &mut self.partitions[index].queue;
        let lost = queue.retry(parcel.batch, unknown, not_before);
        let is_left_behind = leader != from && queue.is_regrouping();
        if let Some(lost) = lost {
            self.conclude(lost, Outcome::Unknown);
        }
        if is_left_behind {
            self.effects.push_back(Effect::Follow(from));
        }
        if self.partitions[index].elected != leader {
            self.plan(20 * MS, Happens::Learns { partition: index });
        }
        self.resubmit(index);
        self.effects.push_back(Effect::Evacuate(index));
    }

    pub(super) fn fail(&mut self, parcel: Parcel, unknown: bool) {
        let lost = self.partitions[parcel.partition].queue.fail(&parcel.batch);
        self.conclude(parcel.batch, if unknown { Outcome::Unknown } else { Outcome::NotWritten });
        for batch in lost {
            self.conclude(batch, Outcome::Unknown);
        }
    }

    pub(super) fn expire(&mut self, index: usize) {
        let queue = &mut self.partitions[index].queue;
        let expired = queue.expire(&self.policy, self.now);
        let lost: Vec<_> = expired.iter().flat_map(|batch| queue.fail(batch)).collect();
        for batch in expired.into_iter().chain(lost) {
            let unknown = batch.outcome_unknown();
            self.conclude(batch, if unknown { Outcome::Unknown } else { Outcome::NotWritten });
        }
        self.resubmit(index);
    }

    pub(super) fn take_overdue(&mut self, broker: usize) {
        let Broker { link, unsent, .. } = &mut self.brokers[broker];
        if let Some(withdrawn) = link.handle_expiry(self.now, |()| {}) {
            *unsent = None;
            if !withdrawn.batches.is_empty() {
                *unsent = Some(encode(link.next_correlation_id(), &withdrawn.batches));
                link.handle_sent_again(withdrawn, ());
            }
            self.effects.push_back(Effect::Turn(broker));
        }
        self.carry_out(broker);
    }

    /// Batches whose partition has another leader leave the requests in flight.
    pub(super) fn follow(&mut self, broker: usize, has_refused: bool) {
        let Self { brokers, partitions, .. } = self;
        brokers[broker].link.handle_moved(has_refused, |parcel, is_suspect| {
            let partition = &partitions[parcel.partition];
            partition.leader != broker && (is_suspect || partition.queue.is_regrouping())
        });
        self.carry_out(broker);
    }

    /// Carries out the events of a link.
    pub(super) fn carry_out(&mut self, broker: usize) {
        while let Some(event) = self.brokers[broker].link.poll_event() {
            match event {
                Event::Expired { batch: parcel, is_begun } => {
                    let index = parcel.partition;
                    let unknown = is_begun || parcel.batch.outcome_unknown();
                    self.fail(parcel, unknown);
                    self.resubmit(index);
                }
                Event::Moved(parcel) => self.come_back(parcel, true),
                Event::LookUp { .. } => {
                    let requests = self.brokers[broker].link.in_flight();
                    let parcels = requests.flat_map(|request| &request.batches);
                    let partitions: BTreeSet<usize> =
                        parcels.map(|parcel| parcel.partition).collect();
                    for partition in partitions {
                        self.plan(10 * MS, Happens::Learns { partition });
                    }
                }
                Event::Dead(_) => self.lose(broker),
            }
        }
    }

    /// A connection ends.
    pub(super) fn lose(&mut self, broker: usize) {
        let Broker { link, gate, connection, unsent, allowance, .. } = &mut self.brokers[broker];
        *connection += 1;
        *unsent = None;
        allowance.lost();
        gate.set_unreachable();
        let (requests, connection) = (link.handle_lost(), *connection);
        for parcel in requests.into_iter().flat_map(|request| request.batches) {
            self.come_back(parcel, true);
        }
        let after = self.random.between(10 * MS, 200 * MS);
        self.plan(after, Happens::Connects { broker, connection });
    }

    /// The client learns a partition's leader.
    pub(super) fn learn(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        let (former, leader) = (partition.leader, partition.elected);
        if former == leader {
            return;
        }
        partition.seat.leave();
        partition.leader = leader;
        partition.queue.leader_is_news();
        partition.queue.leader_is_untried();
        for receipt in partition.queue.waiting_mut() {
            self.brokers[receipt.broker].gate.release(receipt.charged);
            self.brokers[leader].gate.charge(receipt.charged);
            receipt.broker = leader;
            receipt.beyond = receipt.charged;
        }
        let has_refused = partition.queue.is_regrouping();
        self.resubmit(index);
        if has_refused {
            self.effects.push_back(Effect::Follow(former));
        }
        self.effects.push_back(Effect::Turn(former));
    }

    /// Moves batches without keys to a partition that acknowledges.
    pub(super) fn evacuate(&mut self, index: usize) {
        if !self.partitions[index].queue.is_doubtful() {
            return;
        }
        let is_better = |other: &usize| !self.partitions[*other].queue.is_doubtful();
        let better: Vec<usize> = (0..self.partitions.len()).filter(is_better).collect();
        let to = better.get(self.random.below(better.len().max(1))).copied().unwrap_or(index);
        for mut batch in self.partitions[index].queue.take_movable(&self.policy) {
            let leader = self.partitions[to].leader;
            self.charge_to(leader, &mut batch.completion);
            self.partitions[to].queue.adopt(batch);
        }
        self.resubmit(to);
    }

    pub(super) fn charge_to(&self, broker: usize, receipt: &mut Receipt) {
        self.brokers[receipt.broker].gate.release(receipt.charged);
        self.brokers[broker].gate.charge(receipt.charged);
        receipt.broker = broker;
        receipt.beyond = receipt.charged;
    }

    /// A batch has its outcome.
    pub(super) fn conclude(&mut self, batch: Batch<Receipt>, outcome: Outcome) {
        let (_, receipt) = batch.into_parts();
        self.brokers[receipt.broker].gate.release(receipt.charged);
        for number in receipt.numbers {
            let sent = &mut self.records[number as usize];
            if !self.has_faults {
                self.times.of_records.push(self.now - sent.at);
            }
            let former = sent.outcome.replace(outcome);
            assert_eq!(former, None, "record {number} has two outcomes");
        }
    }
}

fn encode(id: i32, parcels: &[Parcel]) -> Bytesful {
    let payload = |parcel: &Parcel| (parcel.partition, parcel.batch.payload().clone());
    (id, parcels.iter().map(payload).collect())
}
