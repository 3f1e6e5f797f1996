package cepbench;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.util.Collector;

/** The patterns of the workloads; benchmarks/README.md says what they find. */
final class Patterns {
    static final int VIEW = 0, SEARCH = 1, CART = 2, BUY = 3, FAIL = 4, OK = 5, TRANSFER = 6, LOGOUT = 7;
    static final List<String> KINDS = List.of("view", "search", "cart", "buy", "login_fail", "login_ok", "transfer", "logout");

    private Patterns() {}

    static SimpleCondition<Event> is(int kind) { return SimpleCondition.of(e -> e.kind == kind); }

    static SimpleCondition<Event> is(int kind, double min) { return SimpleCondition.of(e -> e.kind == kind && e.amount >= min); }

    /** kind and amount, and amount above factor times that of the first event of stage "a". */
    static class Grown extends IterativeCondition<Event> {
        private final int kind;
        private final double min;
        private final double factor;

        Grown(int kind, double min, double factor) { this.kind = kind; this.min = min; this.factor = factor; }

        @Override
        public boolean filter(Event e, Context<Event> context) throws Exception {
            if (e.kind != kind || !(e.amount >= min)) {
                return false;
            }
            for (Event a : context.getEventsForPattern("a")) {
                return e.amount > factor * a.amount;
            }
            return false;
        }
    }

    static Pattern<Event, ?> of(String workload) {
        switch (workload) {
            case "W1":
                return Pattern.<Event>begin("a").where(is(FAIL)).times(3)
                        .followedBy("b").where(is(OK)).within(Duration.ofMinutes(10));
            case "W2":
                return Pattern.<Event>begin("a").where(is(VIEW))
                        .next("b").where(is(CART)).next("c").where(is(BUY)).within(Duration.ofHours(1));
            case "W3":
                return Pattern.<Event>begin("a").where(is(TRANSFER))
                        .followedBy("b").where(new Grown(TRANSFER, -1, 10)).within(Duration.ofMinutes(30));
            case "W4":
                return Pattern.<Event>begin("a").where(is(CART))
                        .notFollowedBy("b").where(is(BUY)).within(Duration.ofMinutes(30));
            case "W5":
                return Pattern.<Event>begin("a").where(is(VIEW, 60))
                        .followedByAny("b").where(is(CART, 50)).oneOrMore().allowCombinations()
                        .followedByAny("c").where(is(BUY)).within(Duration.ofMinutes(10));
            default:
                throw new IllegalArgumentException(workload);
        }
    }

    /** Kinds a workload's conditions can accept; null where contiguity is strict and nothing may be dropped. */
    static int mask(String workload) {
        switch (workload) {
            case "W1": return 1 << FAIL | 1 << OK;
            case "W3": return 1 << TRANSFER;
            case "W4": return 1 << CART | 1 << BUY;
            case "W5": return 1 << VIEW | 1 << CART | 1 << BUY;
            default: return -1;
        }
    }

    /** One rule of W6. */
    static class Rule {
        public int id;
        public String key;
        public String template;
        public String kind_a;
        public double min_a;
        public String kind_b;
        public double min_b;
        public double factor;
        public long within_ms;

        int a() { return KINDS.indexOf(kind_a); }
        int b() { return KINDS.indexOf(kind_b); }

        Pattern<Event, ?> pattern() {
            Pattern<Event, Event> first = Pattern.<Event>begin("a").where(is(a(), min_a));
            Pattern<Event, Event> full;
            switch (template) {
                case "pair": full = first.followedBy("b").where(is(b(), min_b)); break;
                case "strict": full = first.next("b").where(is(b(), min_b)); break;
                case "triple": full = first.times(3).followedBy("b").where(is(b(), min_b)); break;
                case "grow": full = first.followedBy("b").where(new Grown(b(), min_b, factor)); break;
                default: throw new IllegalArgumentException(template);
            }
            return full.within(Duration.ofMillis(within_ms));
        }

        KeySelector<Event, Long> selector() {
            switch (key) {
                case "user_id": return e -> e.userId;
                case "item_id": return e -> e.itemId;
                case "user_id,item_id": return e -> e.userId << 32 | e.itemId;
                default: throw new IllegalArgumentException(key);
            }
        }
    }

    /** Emits the hash of each match: its events' times in match order. */
    static class Hash extends PatternProcessFunction<Event, Long> {
        private final long seed;
        private final String[] stages;

        Hash(int tag, String... stages) { this.seed = Totals.GOLD + tag; this.stages = stages; }

        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<Long> out) {
            long h = seed;
            for (String stage : stages) {
                List<Event> events = match.get(stage);
                if (events != null) {
                    for (Event e : events) {
                        h = Totals.step(h, e.eventTime);
                    }
                }
            }
            out.collect(h);
        }
    }
}
