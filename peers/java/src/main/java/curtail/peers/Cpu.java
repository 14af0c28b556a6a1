package curtail.peers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** User and system time of this process, in the kernel's ticks of 10 ms. */
record Cpu(long userMicros, long systemMicros) {
    private static final long MICROS_PER_TICK = 10_000;

    static Cpu now() throws IOException {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        // The second field, the command's name in brackets, may hold spaces.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return new Cpu(Long.parseLong(fields[11]) * MICROS_PER_TICK, Long.parseLong(fields[12]) * MICROS_PER_TICK);
    }
}
