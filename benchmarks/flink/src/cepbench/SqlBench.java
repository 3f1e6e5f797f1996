package cepbench;

import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;

/** W1 to W3 as MATCH_RECOGNIZE of Flink SQL. The source provides RowData, so that nothing is converted. */
final class SqlBench {
    private static final LogicalType[] TYPES = {
        new BigIntType(false), new BigIntType(false), new BigIntType(false), new IntType(false), new DoubleType(false)
    };
    private static final String[] NAMES = {"event_time", "user_id", "item_id", "kind", "amount"};

    private SqlBench() {}

    private static String query(String measures, String columns, String pattern, int minutes, String define) {
        return String.format(
                "SELECT %s FROM events MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY rowtime MEASURES %s ONE ROW PER MATCH "
                        + "AFTER MATCH SKIP TO NEXT ROW PATTERN (%s) WITHIN INTERVAL '%d' MINUTE DEFINE %s)",
                columns, measures, pattern, minutes, define);
    }

    private static String query(String workload) {
        switch (workload) {
            case "W1":
                return query(
                        "F1.event_time AS t1, F2.event_time AS t2, F3.event_time AS t3, K.event_time AS t4", "t1, t2, t3, t4",
                        "F1 X1* F2 X2* F3 X3* K", 10,
                        "F1 AS kind = 4, X1 AS kind <> 4, F2 AS kind = 4, X2 AS kind <> 4, F3 AS kind = 4, X3 AS kind <> 5, "
                                + "K AS kind = 5");
            case "W2":
                return query(
                        "V.event_time AS t1, C.event_time AS t2, B.event_time AS t3", "t1, t2, t3",
                        "V C B", 60,
                        "V AS kind = 0, C AS kind = 2, B AS kind = 3");
            case "W3":
                return query(
                        "A.event_time AS t1, B.event_time AS t2", "t1, t2",
                        "A X* B", 30,
                        "A AS kind = 6, X AS kind <> 6 OR amount <= 10 * A.amount, B AS kind = 6 AND amount > 10 * A.amount");
            default:
                throw new IllegalArgumentException(workload);
        }
    }

    static void build(StreamExecutionEnvironment env, DataStream<Event> events, String workload) {
        DataStream<RowData> rows = events.map(e -> (RowData) GenericRowData.of(e.eventTime, e.userId, e.itemId, e.kind, e.amount))
                .returns(InternalTypeInfo.of(RowType.of(TYPES, NAMES)));
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.createTemporaryView("events", rows, Schema.newBuilder()
                .column("event_time", "BIGINT NOT NULL").column("user_id", "BIGINT NOT NULL").column("item_id", "BIGINT NOT NULL")
                .column("kind", "INT NOT NULL").column("amount", "DOUBLE NOT NULL")
                .columnByMetadata("rowtime", "TIMESTAMP_LTZ(3)").watermark("rowtime", "SOURCE_WATERMARK()").build());
        Table matches = tables.sqlQuery(query(workload));
        long seed = Totals.GOLD + workload.charAt(1) - '0';
        tables.toDataStream(matches).map((Row match) -> {
            long h = seed;
            for (int i = 0; i < match.getArity(); i++) {
                h = Totals.step(h, (Long) match.getField(i));
            }
            return h;
        }).returns(Types.LONG).sinkTo(new Totals.CountingSink());
    }
}
