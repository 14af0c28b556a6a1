package curtail.peers;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * Outcome of each record, in nanoseconds since the start; see peers/README.md for the file format. Each slot is written by one
 * thread and read after all threads have ended.
 */
final class Fates {
    private static final int SIZE = 28;
    private static final int FAILED = -2;

    private final long[] sent;
    private final long[] acknowledged;
    private final int[] partition;
    private final long[] offset;

    Fates(int records) {
        sent = new long[records];
        acknowledged = new long[records];
        partition = new int[records];
        offset = new long[records];
        Arrays.fill(acknowledged, -1);
        Arrays.fill(partition, -1);
        Arrays.fill(offset, -1);
    }

    void sent(int index, long nanos) {
        sent[index] = Math.max(0, nanos);
    }

    void acknowledged(int index, long nanos, int partition, long offset) {
        acknowledged[index] = Math.max(sent[index], nanos);
        this.partition[index] = partition;
        this.offset[index] = offset;
    }

    /** For a call that is timed until its return; the record itself may have failed by then. */
    synchronized void returned(int index, long called, long returned, int partition) {
        sent(index, called);
        if (this.partition[index] != FAILED) {
            acknowledged(index, returned, partition, -1);
        }
    }

    /** A record whose call was timed. */
    synchronized void failed(int index) {
        partition[index] = FAILED;
        acknowledged[index] = -1;
    }

    long sentAt(int index) {
        return sent[index];
    }

    /** -1 if not acknowledged. */
    long acknowledgedAt(int index) {
        return acknowledged[index];
    }

    int size() {
        return sent.length;
    }

    void write(String path) throws IOException {
        ByteBuffer one = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(path)), 1 << 16)) {
            for (int i = 0; i < sent.length; i++) {
                one.clear();
                one.putLong(sent[i]).putLong(acknowledged[i]).putInt(partition[i]).putLong(offset[i]);
                out.write(one.array());
            }
        }
    }
}
