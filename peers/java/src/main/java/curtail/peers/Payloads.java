package curtail.peers;

import java.util.SplittableRandom;

/** Random values, generated before the run. */
final class Payloads {
    private static final int COUNT = 1024;

    private final byte[][] pool = new byte[COUNT][];

    Payloads(int size) {
        SplittableRandom random = new SplittableRandom(1);
        for (int i = 0; i < COUNT; i++) {
            pool[i] = new byte[size];
            random.nextBytes(pool[i]);
        }
    }

    byte[] get(long index) {
        return pool[(int) (index % COUNT)];
    }
}
