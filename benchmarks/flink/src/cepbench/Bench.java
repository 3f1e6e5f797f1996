package cepbench;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.cep.CEP;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs a workload on Flink CEP, on a MiniCluster in this JVM, and prints one JSON line per run.
 *
 * <p>Arguments are key=value: data (folder), workload (W1 to W6), rules (file, for W6), cores (parallelism), mode (streaming or
 * batch), filter (true: drop events that no condition accepts before they are keyed, as a user does by hand), sql (true: W1 to W3
 * as MATCH_RECOGNIZE), runs (the first one warms up).
 */
public final class Bench {
    private static final int WATERMARK_INTERVAL_MS = 50;

    private Bench() {}

    private static Map<String, String> arguments(String[] args) {
        Map<String, String> out = new HashMap<>();
        for (String arg : args) {
            int at = arg.indexOf('=');
            out.put(arg.substring(0, at), arg.substring(at + 1));
        }
        return out;
    }

    private static StreamExecutionEnvironment environment(int cores, boolean batch) {
        Configuration conf = new Configuration();
        conf.set(TaskManagerOptions.NUM_TASK_SLOTS, cores);
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.parse("512m"));
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.parse("512m"));
        conf.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.parse(batch ? "1g" : "64m"));
        conf.setString("state.backend.type", "hashmap");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(cores, conf);
        env.getConfig().setAutoWatermarkInterval(WATERMARK_INTERVAL_MS);
        env.getConfig().enableObjectReuse();
        env.setMaxParallelism(128);
        if (batch) {
            env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        }
        return env;
    }

    private static void build(StreamExecutionEnvironment env, Map<String, String> args, long disorder) throws Exception {
        String workload = args.get("workload");
        boolean filter = Boolean.parseBoolean(args.getOrDefault("filter", "false"));
        WatermarkStrategy<Event> watermarks = WatermarkStrategy.forBoundedOutOfOrderness(Duration.ofMillis(disorder));
        DataStream<Event> events =
                env.fromSource(new BinSource(args.get("data") + "/events.bin"), watermarks, "events", new EventTypeInfo());
        if (workload.equals("W6")) {
            for (Patterns.Rule rule : new ObjectMapper().readValue(new File(args.get("rules")), Patterns.Rule[].class)) {
                CEP.pattern(events.keyBy(rule.selector(), Types.LONG), rule.pattern())
                        .process(new Patterns.Hash(100 + rule.id, "a", "b"), Types.LONG)
                        .sinkTo(new Totals.CountingSink());
            }
            return;
        }
        if (Boolean.parseBoolean(args.getOrDefault("sql", "false"))) {
            SqlBench.build(env, events, workload);
            return;
        }
        if (filter) {
            int mask = Patterns.mask(workload);
            events = events.filter(e -> (mask >> e.kind & 1) != 0);
        }
        KeySelector<Event, Long> user = e -> e.userId;
        CEP.pattern(events.keyBy(user, Types.LONG), Patterns.of(workload))
                .process(new Patterns.Hash(workload.charAt(1) - '0', "a", "b", "c"), Types.LONG)
                .sinkTo(new Totals.CountingSink());
    }

    /** The largest resident memory of this process so far; -1 where /proc is missing. */
    private static long peakRssMb() throws Exception {
        Path status = Path.of("/proc/self/status");
        if (Files.exists(status)) {
            for (String line : Files.readAllLines(status)) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
                }
            }
        }
        return -1;
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    public static void main(String[] argv) throws Exception {
        Map<String, String> args = arguments(argv);
        long rows = Files.size(Path.of(args.get("data"), "events.bin")) / BinSource.RECORD;
        long disorder = new ObjectMapper().readTree(new File(args.get("data"), "meta.json")).get("disorder_ms").asLong();
        int runs = Integer.parseInt(args.getOrDefault("runs", "4"));
        for (int run = 0; run < runs; run++) {
            Totals.reset();
            System.gc();
            StreamExecutionEnvironment env =
                    environment(Integer.parseInt(args.getOrDefault("cores", "2")), args.getOrDefault("mode", "").equals("batch"));
            build(env, args, disorder);
            double cpu = cpuSeconds();
            JobExecutionResult result = env.execute(args.get("workload"));
            double seconds = result.getNetRuntime(TimeUnit.MILLISECONDS) / 1000.0;
            System.out.println(String.format(Locale.ROOT,
                    "{\"round\": %d, \"events\": %d, \"seconds\": %.3f, \"events_per_s\": %.0f, \"cpu_s\": %.2f, "
                            + "\"matches\": %d, \"checksum\": \"%016x\", \"peak_rss_mb\": %d}",
                    run, rows, seconds, rows / seconds, cpuSeconds() - cpu, Totals.matches(), Totals.checksum(), peakRssMb()));
        }
        System.exit(0);
    }
}
