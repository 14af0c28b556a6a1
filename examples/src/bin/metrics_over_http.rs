//! Serves the metrics of a producer and a consumer to Prometheus.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{error::Error, sync::Arc, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition,
    metrics::PrometheusScrape,
};
use curtail_examples::Brokers;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

struct Clients {
    producer: Producer,
    consumer: Mutex<Consumer>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = Brokers::of_this_program().await?;
    let producer = Producer::new(ProducerConfig::new(brokers.bootstrap()))?;
    let mut consumer = Consumer::new(ConsumerConfig::new(brokers.bootstrap()))?;
    for number in 0..100 {
        producer.send(Record::to("readings").value(&number.to_string())).await?.await?;
    }
    let partition = TopicPartition::new("readings", 0);
    consumer.assign([partition.clone()]);
    consumer.seek_to_beginning([&partition])?;
    let mut read = 0;
    while read < 100 {
        read += consumer.poll(Duration::from_secs(1)).await?.len();
    }

    let clients = Arc::new(Clients { producer, consumer: Mutex::new(consumer) });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, clients));

    // What Prometheus does.
    let mut scrape = TcpStream::connect(address).await?;
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut response = String::new();
    scrape.read_to_string(&mut response).await?;
    print!("{response}");
    Ok(())
}

async fn serve(listener: TcpListener, clients: Arc<Clients>) {
    while let Ok((connection, _)) = listener.accept().await {
        let clients = clients.clone();
        tokio::spawn(async move {
            if let Err(error) = respond(connection, &clients).await {
                eprintln!("a scrape failed: {error}");
            }
        });
    }
}

/// Responds to any request. An application has its web framework for this.
async fn respond(mut connection: TcpStream, clients: &Clients) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let length = connection.read(&mut request).await?;
    let request = String::from_utf8_lossy(&request[..length]);
    let headers = request.lines().filter_map(|line| line.split_once(':'));
    let accept = headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|pair| pair.1);
    let accept = accept.collect::<Vec<_>>().join(",");
    let consumer = clients.consumer.lock().await.metrics();
    // Text with summaries, or protobuf with native histograms for a Prometheus that asks for them.
    let mut scrape = PrometheusScrape::new(Some(&accept));
    let (kind, body) = scrape.producer(&clients.producer.metrics()).consumer(&consumer).response();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len(),
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(&body).await
}
