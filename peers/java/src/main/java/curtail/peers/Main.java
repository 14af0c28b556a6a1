package curtail.peers;

import java.nio.file.Files;
import java.nio.file.Path;

/** The load of {@code curtail perf}, with Apache Kafka's Java client. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) {
        try {
            Args args = Args.parse(arguments);
            if (args.tool.equals(Args.GROUP_CONSUME)) {
                GroupConsume.run(args);
                return;
            }
            if (args.tool.equals(Args.DRIVE)) {
                Drive.run(args);
                return;
            }
            Report report = switch (args.tool) {
                case "produce" -> Produce.run(args);
                case "consume" -> Consume.run(args);
                case "load" -> Load.run(args);
                case Args.FOLLOW -> Follow.run(args);
                case Args.CHURN -> Churn.run(args);
                default -> EndToEnd.run(args);
            };
            System.out.println(report.summary());
            if (args.json != null) {
                Files.writeString(Path.of(args.json), report.json() + "\n");
            }
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            System.err.println("error: " + (cause.getMessage() == null ? cause : cause.getMessage()));
            System.exit(1);
        }
    }
}
