import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/** Replaces another listener in Spark's list, and times how long that one holds the thread. */
public class Stopwatch extends StreamingQueryListener {
  private final StreamingQueryListener timed;
  private final int settleMillis;
  private final ConcurrentLinkedQueue lines = new ConcurrentLinkedQueue();

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
    long nanos = System.nanoTime() - began;
    lines.add(event.progress().runId() + "/" + event.progress().batchId() + " " + nanos);
  }

  public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {
    timed.onQueryIdle(event);
  }

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
    timed.onQueryTerminated(event);
  }

  /** One line for each progress event so far: which one, how many nanoseconds. */
  public String read() {
    return String.join("\n", lines);
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
