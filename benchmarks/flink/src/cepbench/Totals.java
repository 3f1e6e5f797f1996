package cepbench;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** The number and the checksum of the matches of the job that runs in this JVM. */
public final class Totals {
    static final long GOLD = 0x9E3779B97F4A7C15L;
    private static long matches;
    private static long checksum;

    private Totals() {}

    static synchronized void reset() {
        matches = 0;
        checksum = 0;
    }

    static synchronized void add(long n, long sum) {
        matches += n;
        checksum += sum;
    }

    static synchronized long matches() { return matches; }
    static synchronized long checksum() { return checksum; }

    static long step(long h, long time) {
        long z = h ^ time;
        z ^= z >>> 30;
        z *= 0xBF58476D1CE4E5B9L;
        z ^= z >>> 27;
        z *= 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /** Takes the hash of each match. */
    public static class CountingSink implements Sink<Long> {
        @Override
        public SinkWriter<Long> createWriter(WriterInitContext context) {
            return new SinkWriter<>() {
                private long n;
                private long sum;
                @Override public void write(Long hash, Context c) { n++; sum += hash; }
                @Override public void flush(boolean end) {}
                @Override public void close() { add(n, sum); }
            };
        }
    }
}
