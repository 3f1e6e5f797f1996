package cepbench;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Reads events.bin through a memory map, as if it were a topic of `parallelism` partitions: reader k
 * takes rows k, k+p, k+2p, ..., so that all readers move through event time together.
 */
public class BinSource implements Source<Event, BinSource.Stride, Void> {
    static final int RECORD = 40;
    static final int BATCH = 128;

    private final String path;

    public BinSource(String path) { this.path = path; }

    public static class Stride implements SourceSplit {
        final int index;
        final int of;
        Stride(int index, int of) { this.index = index; this.of = of; }
        @Override public String splitId() { return index + "/" + of; }
    }

    @Override public Boundedness getBoundedness() { return Boundedness.BOUNDED; }

    @Override
    public SplitEnumerator<Stride, Void> createEnumerator(SplitEnumeratorContext<Stride> context) {
        return new SplitEnumerator<>() {
            @Override public void start() {}
            @Override public void handleSplitRequest(int subtask, String host) {}
            @Override public void addSplitsBack(List<Stride> splits, int subtask) {}
            @Override public void addReader(int subtask) {
                context.assignSplit(new Stride(subtask, context.currentParallelism()), subtask);
                context.signalNoMoreSplits(subtask);
            }
            @Override public Void snapshotState(long id) { return null; }
            @Override public void close() {}
        };
    }

    @Override public SplitEnumerator<Stride, Void> restoreEnumerator(SplitEnumeratorContext<Stride> context, Void none) {
        return createEnumerator(context);
    }

    @Override
    public SimpleVersionedSerializer<Stride> getSplitSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override public int getVersion() { return 1; }
            @Override public byte[] serialize(Stride s) { return ByteBuffer.allocate(8).putInt(s.index).putInt(s.of).array(); }
            @Override public Stride deserialize(int version, byte[] bytes) {
                ByteBuffer b = ByteBuffer.wrap(bytes);
                return new Stride(b.getInt(), b.getInt());
            }
        };
    }

    @Override
    public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override public int getVersion() { return 1; }
            @Override public byte[] serialize(Void none) { return new byte[0]; }
            @Override public Void deserialize(int version, byte[] bytes) { return null; }
        };
    }

    @Override public SourceReader<Event, Stride> createReader(SourceReaderContext context) { return new Reader(path); }

    static class Reader implements SourceReader<Event, Stride> {
        private final String path;
        private final CompletableFuture<Void> available = new CompletableFuture<>();
        private ByteBuffer data;
        private int rows;
        private int next;
        private int stride;

        Reader(String path) { this.path = path; }

        @Override public void start() {}

        @Override
        public void addSplits(List<Stride> splits) {
            Stride s = splits.get(0);
            try (RandomAccessFile file = new RandomAccessFile(path, "r")) {
                data = file.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, file.length()).order(ByteOrder.LITTLE_ENDIAN);
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
            rows = data.capacity() / RECORD;
            next = s.index;
            stride = s.of;
            available.complete(null);
        }

        @Override
        public InputStatus pollNext(ReaderOutput<Event> out) {
            if (data == null) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            int n = next;
            for (int i = 0; i < BATCH && n < rows; i++, n += stride) {
                int at = n * RECORD;
                long time = data.getLong(at);
                out.collect(new Event(time, data.getLong(at + 8), data.getLong(at + 16), data.getDouble(at + 24), data.getInt(at + 32)), time);
            }
            next = n;
            return n < rows ? InputStatus.MORE_AVAILABLE : InputStatus.END_OF_INPUT;
        }

        @Override public List<Stride> snapshotState(long id) { return new ArrayList<>(); }
        @Override public CompletableFuture<Void> isAvailable() { return available; }
        @Override public void notifyNoMoreSplits() {}
        @Override public void close() {}
    }
}
