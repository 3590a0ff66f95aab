import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/** Replaces another listener in Spark's list, and times how long that one holds the thread. */
public class Stopwatch extends StreamingQueryListener {
  private final StreamingQueryListener timed;
  private final int settleMillis;
  private final ConcurrentLinkedQueue nanoseconds = new ConcurrentLinkedQueue();
  private volatile Object last;

  public Stopwatch(StreamingQueryListener timed, int settleMillis) {
    this.timed = timed;
    this.settleMillis = settleMillis;
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
    timed.onQueryStarted(event);
  }

  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
    settle();
    long began = System.nanoTime();
    timed.onQueryProgress(event);
    nanoseconds.add(Long.toString(System.nanoTime() - began));
    last = event;
  }

  public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {
    timed.onQueryIdle(event);
  }

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
    timed.onQueryTerminated(event);
  }

  /** Nanoseconds of each progress event so far. */
  public String read() {
    return String.join(" ", nanoseconds);
  }

  /** The newest progress event. */
  public Object last() {
    return last;
  }

  /** Lets threads that the listener before us woke finish, at nobody's expense. */
  private void settle() {
    try {
      Thread.sleep(settleMillis);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
