//! Callers outside the client's runtime: on a plain thread, under another executor, on another tokio runtime.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::{broker::TOPIC, *};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor without tokio.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs `calls` on a thread without a runtime. The producer's runtime is on another thread.
fn elsewhere(calls: impl FnOnce(&Broker, Producer) + Send) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (broker, producer) = runtime.block_on(async {
        let broker = Broker::honest().await;
        let config = producer_config(&broker.address.to_string())
            .max_block(BLOCK)
            .batch_size(1000)
            .batch_max_size(1000)
            .buffer_memory(4000);
        let producer = Producer::with_env(config, &broker.env()).unwrap();
        // The client has the topic's metadata, but the producer has not adopted it yet.
        producer.warm_up(&["no-such-topic", TOPIC]).await.unwrap_err();
        (broker, producer)
    });
    thread::scope(|scope| {
        scope.spawn(|| calls(&broker, producer)).join().expect("no call panics");
    });
}

#[test]
fn try_send_on_a_plain_thread_delivers() {
    elsewhere(|broker, producer| {
        let first = producer.try_send(record("first")).unwrap();
        block_on(first).unwrap();
        let second = producer.try_send(record("second")).unwrap();
        block_on(second).unwrap();
        assert_eq!(broker.model.lock().log[&0].len(), 2);
        drop(producer);
    });
}

fn calls_that_wait(producer: Producer, wait: impl Fn(BoxFuture<'_>)) {
    wait(Box::pin(async {
        producer.connect().await.unwrap();
        assert_eq!(producer.partitions_for(TOPIC).await.unwrap(), 1);
        producer.warm_up(&[TOPIC]).await.unwrap();
        // More than `buffer.memory`: some records wait for memory.
        let value = "x".repeat(900);
        let mut sent = Vec::new();
        for _ in 0..50 {
            sent.push(producer.send(record(&value)).await.unwrap());
        }
        producer.flush().await.unwrap();
        for delivery in sent {
            delivery.await.unwrap();
        }
        let error = producer.send(Record::to("no-such-topic").value("x")).await.unwrap_err();
        check_error(&error);
    }));
    wait(Box::pin(async move { producer.close().await.unwrap() }));
}

type BoxFuture<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

#[test]
fn calls_that_wait_work_under_another_executor() {
    elsewhere(|_, producer| calls_that_wait(producer, |future| block_on(future)));
}

#[test]
fn calls_that_wait_work_on_a_tokio_runtime_without_timers_and_sockets() {
    elsewhere(|_, producer| {
        let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
        calls_that_wait(producer, |future| bare.block_on(future));
    });
}

/// Runs calls that wait, with a consumer and an admin client whose runtime is elsewhere.
fn reading_elsewhere(wait: impl Fn(BoxFuture<'_>) + Send) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut consumer, admin) = runtime.block_on(async {
        let broker = Broker::honest().await;
        let config = consumer_config(&broker.address.to_string());
        (Consumer::with_env(config, &broker.env()).unwrap(), admin(&broker))
    });
    let calls = move || {
        let at = partition(0);
        wait(Box::pin(async {
            consumer.connect().await.unwrap();
            assert_eq!(consumer.partitions_for(TOPIC).await.unwrap().len(), 1);
            consumer.beginning_offsets(std::slice::from_ref(&at)).await.unwrap();
            consumer.assign([at.clone()]);
            assert_eq!(consumer.position(&at).await.unwrap(), 0);
            assert!(consumer.poll(Duration::from_millis(20)).await.unwrap().is_empty());
            let error = consumer.partitions_for("no-such-topic").await.unwrap_err();
            check_error(&error);
        }));
        wait(Box::pin(consumer.close()));
        wait(Box::pin(async {
            assert_eq!(admin.list_topics().await.unwrap().len(), 1);
        }));
    };
    thread::scope(|scope| {
        scope.spawn(calls).join().expect("no call panics");
    });
}

#[test]
fn consumer_and_admin_calls_work_under_another_executor() {
    reading_elsewhere(|future| block_on(future));
}

#[test]
fn consumer_and_admin_calls_work_on_a_tokio_runtime_without_timers_and_sockets() {
    reading_elsewhere(|future| {
        let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
        bare.block_on(future);
    });
}
