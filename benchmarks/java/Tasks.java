import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.apache.spark.SparkFirehoseListener;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;

/** Keeps the events of one real stage, and repeats them. */
public class Tasks extends SparkFirehoseListener {
  private final List recorded = new ArrayList();

  public void onEvent(SparkListenerEvent event) {
    String kind = event.getClass().getSimpleName();
    if (kind.startsWith("SparkListenerTask") || kind.startsWith("SparkListenerStage")) {
      recorded.add(event);
    }
  }

  public int size() {
    return recorded.size();
  }

  /** Nanoseconds of each post on average, at so many posts a millisecond. */
  public double post(LiveListenerBus bus, int perMilli, int millis) {
    long posting = 0;
    int next = 0;
    long began = System.nanoTime();
    for (int milli = 0; milli < millis; milli++) {
      while (System.nanoTime() - began < milli * 1000000L) {
        Thread.yield();
      }
      for (int i = 0; i < perMilli; i++) {
        SparkListenerEvent event = (SparkListenerEvent) recorded.get(next++ % recorded.size());
        long before = System.nanoTime();
        bus.post(event);
        posting += System.nanoTime() - before;
      }
    }
    return (double) posting / perMilli / millis;
  }

  /** Nanoseconds that a listener needs for an event on average. */
  public double receive(SparkFirehoseListener listener, int rounds) {
    long began = System.nanoTime();
    for (int round = 0; round < rounds; round++) {
      for (int i = 0; i < recorded.size(); i++) {
        listener.onEvent((SparkListenerEvent) recorded.get(i));
      }
    }
    return (double) (System.nanoTime() - began) / rounds / recorded.size();
  }

  /** Gives a listener the stage as that of the first queries, for a batch of each. */
  public void ofQueries(SparkFirehoseListener listener, int queries, int batch) {
    for (int query = 0; query < queries; query++) {
      Properties properties = new Properties();
      properties.setProperty("sql.streaming.queryId", new UUID(0, query).toString());
      properties.setProperty("streaming.sql.batchId", String.valueOf(batch));
      for (int i = 0; i < recorded.size(); i++) {
        SparkListenerEvent event = (SparkListenerEvent) recorded.get(i);
        if (event instanceof SparkListenerStageSubmitted) {
          event = new SparkListenerStageSubmitted(
              ((SparkListenerStageSubmitted) event).stageInfo(), properties);
        }
        listener.onEvent(event);
      }
    }
  }
}
