"""Makes a bill of each order, exactly once.

python examples/exactly_once.py SERVERS ORDERS BILLS WORKER

It may be killed at any time, and so may a broker: readers of committed records see each bill once.
Run several with different WORKER names to share the partitions.
"""

import asyncio
import sys

import curtail_kafka as curtail


def bill(order: curtail.Record) -> bytes:
    return b"bill for " + (order.value or b"")


async def run(servers: str, orders: str, bills: str, worker: str) -> None:
    async with (
        curtail.Consumer(
            servers,
            orders,
            group_id="billing",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            # It takes over the partitions of the program that was killed at once.
            group_instance_id=worker,
        ) as consumer,
        # It closes first: the consumer waits for the outcome of a commit, which this ends. The same
        # id after a restart ends the transaction of the program that was killed.
        curtail.TransactionalProducer(servers, transactional_id=worker) as producer,
    ):
        failures = 0
        async for records in consumer.polls():
            try:
                async with producer.transaction(consumer) as tx:
                    for order in records:
                        tx.send(bills, bill(order), key=order.key)
            except curtail.Error as error:
                # Aborted, and the consumer is at the first of these records again.
                print(f"again: {error}", file=sys.stderr)
                failures += 1
                if error.fatal or failures == 10:
                    raise
            else:
                failures = 0


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
