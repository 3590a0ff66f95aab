import java.lang.reflect.Field;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Starts a query, and times that and the part of it that Spark spends on listeners.
 *
 * <p>The thread of the query, which start() waits for, first posts that the query has started to
 * the listener bus and then calls the session's listeners. The clock times both: in place
 * of the bus, which it passes every event on to, and as the session's last listener.
 */
public class StartClock {
  private final Last last = new Last();
  private final First first;
  private volatile long postedAt;
  private volatile long calledAt;
  private long nanos;

  public StartClock(SparkConf conf, LiveListenerBus bus) {
    first = new First(conf, bus);
  }

  /** Takes the place of the bus that a session posts to. */
  public void standBefore(Object streamingQueryListenerBus) throws Exception {
    Field bus = streamingQueryListenerBus.getClass().getDeclaredField("sparkListenerBus");
    bus.setAccessible(true);
    bus.set(streamingQueryListenerBus, scala.Option.apply(first));
  }

  /** For addListener, after all others. */
  public StreamingQueryListener last() {
    return last;
  }

  public StreamingQuery start(DataStreamWriter writer) throws Exception {
    calledAt = 0;
    long began = System.nanoTime();
    StreamingQuery query = writer.start();
    nanos = System.nanoTime() - began;
    if (calledAt == 0) {
      throw new IllegalStateException("the last listener was not called");
    }
    return query;
  }

  /** How long the last start took. */
  public long nanos() {
    return nanos;
  }

  /** How much of it went into listeners. */
  public long listenerNanos() {
    return calledAt - postedAt;
  }

  private class First extends LiveListenerBus {
    private final LiveListenerBus bus;

    First(SparkConf conf, LiveListenerBus bus) {
      super(conf);
      this.bus = bus;
    }

    public void post(SparkListenerEvent event) {
      if (event instanceof StreamingQueryListener.QueryStartedEvent) {
        postedAt = System.nanoTime();
      }
      bus.post(event);
    }
  }

  private class Last extends StreamingQueryListener {
    public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
      calledAt = System.nanoTime();
    }

    public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

    public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
  }
}
